// Samples of mode kRejection through the executors themselves, with a draft
// model: the joint distribution of their first tokens against its exact
// enumeration. What may go wrong between a scheduler and an executor is
// planted, and seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "exec_request/model.h"
#include "executor/drafts/draft_model.h"
#include "executor/host/model_executor.h"
#include "tests/batcher/text_statistics.h"
#include "tests/executor/drafts/toy_device.h"
#include "tests/executor/drive.h"
#include "tests/few_cases.h"
#include "tests/p_value.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

// The executor that drafts: on the host; on the host, with steps planned before
// results are read; or on a device, where drafts also start before results are
// read.
enum class Where { kOnHost, kAhead, kOnDevice };

// Changes the plan of a step after the drafts, before they are judged.
class FilledPlanChanger : public Model {
 public:
  FilledPlanChanger(std::shared_ptr<Model> model,
                    std::function<void(StepPlan*)> change)
      : model_(std::move(model)), change_(std::move(change)) {}

  const ModelDescription& description() const override {
    return model_->description();
  }
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    // The executor's own, which is no constant, and which it selects by.
    change_(const_cast<StepPlan*>(&plan));
    return model_->Forward(plan, logits);
  }

 private:
  const std::shared_ptr<Model> model_;
  const std::function<void(StepPlan*)> change_;
};

// `change` is applied to plans between drafts and verification.
std::shared_ptr<StepExecutor> MakeExecutor(
    Where where, std::function<void(StepPlan*)> change = [](StepPlan*) {}) {
  const auto pool = *ThreadPool::Create(1);
  const auto model =
      std::make_shared<FilledPlanChanger>(MakeTextModel(), std::move(change));
  if (where != Where::kOnDevice) {
    return *ModelExecutor::Create(model, pool,
                                  {.run_ahead = where == Where::kAhead,
                                   .draft_model = MakeTextDraftModel()});
  }
  const std::shared_ptr<Model> draft_model = MakeTextDraftModel();
  const auto device = std::make_shared<ToyDevice>(0);
  return std::make_shared<ToyDeviceExecutor>(
      device, *ModelExecutor::Create(model, pool, {.run_ahead = true}),
      *DraftModel::Create(
          draft_model, pool,
          std::make_shared<ToyDeviceSampler>(device, draft_model)));
}

TextCase RejectionCase(int num_tokens, Where where = Where::kOnHost) {
  TextCase c;
  c.params.do_sample = true;
  c.params.ignore_eos = num_tokens % 2 == 1;
  c.params.temperature = num_tokens % 3 == 0 ? 0.7 : 1.0;
  if (num_tokens == 4) c.params.top_k = 3;
  if (num_tokens == 5) c.params.repetition_penalty = 1.3;
  c.params.num_return_sequences = num_tokens % 2 == 0 ? 1 : 4;
  c.params.speculate = {SpeculationMethod::kDraft, num_tokens,
                        SpeculationMode::kRejection};
  c.max_new_tokens = 5 + num_tokens / 2;
  c.first_seed = 500 * num_tokens;
  if (where == Where::kAhead || where == Where::kOnDevice) {
    c.plans_in_flight = 2;
    c.max_new_tokens += 2 * num_tokens + 2;  // no plan ahead may reach the end
  }
  return c;
}

class RejectionStatisticsTest : public ::testing::TestWithParam<Where> {};

TEST_P(RejectionStatisticsTest, TextsAreDistributedAsTheModelHasThem) {
  const std::shared_ptr<StepExecutor> executor = MakeExecutor(GetParam());
  int64_t num_drafted = 0;
  int64_t num_accepted = 0;
  for (const int num_tokens : {1, 2, 3, 4, 5, 8}) {
    SCOPED_TRACE(num_tokens);
    TextCase c = RejectionCase(num_tokens, GetParam());
    c.num_texts = Cases(c.num_texts, 300);
    const TextCounts counted = CountTextsOn(*executor, c);
    EXPECT_GE(counted.p_value, kLeastPValue);
    num_drafted += counted.num_drafted;
    num_accepted += counted.num_accepted;
  }
  EXPECT_GT(num_accepted, Cases(3000, 300));
  EXPECT_LT(num_accepted, num_drafted * 9 / 10);
}

// With a constraint the draft model draws legal tokens alone, and is judged as
// one that does.
TEST_P(RejectionStatisticsTest, LegalTextsAreDistributedAsTheModelHasThem) {
  const std::shared_ptr<StepExecutor> executor = MakeExecutor(GetParam());
  for (const int num_tokens : {1, 2, 4, 5}) {
    SCOPED_TRACE(num_tokens);
    TextCase c = RejectionCase(num_tokens, GetParam());
    c.params.ignore_eos = true;
    c.num_texts = Cases(c.num_texts, 300);
    // About half of all.
    std::vector<std::vector<int64_t>> sequences;
    for (int64_t number = 0; number < 243; ++number) {
      if (number * 7 % 11 < 6) continue;
      std::vector<int64_t>& sequence = sequences.emplace_back();
      for (int64_t rest = number; sequence.size() < 5; rest /= 3) {
        sequence.push_back(1 + rest % 3);
      }
    }
    c.params.allowed_sequences = std::move(sequences);
    const TextCounts counted = CountTextsOn(*executor, c);
    EXPECT_GE(counted.p_value, kLeastPValue);
    EXPECT_GT(counted.num_accepted, counted.num_drafted / 4);
  }
}

// Rejection accepts more drafts than coupled sampling does.
TEST(RejectionTest, AcceptsMoreThanCoupledDrafts) {
  TextCase c = RejectionCase(8);
  c.num_texts = 1000;
  const TextCounts rejection = CountTextsOn(*MakeExecutor(Where::kOnHost), c);
  c.params.speculate->mode = SpeculationMode::kCoupled;
  const TextCounts coupled = CountTextsOn(*MakeExecutor(Where::kOnHost), c);
  EXPECT_GT(1.0 * rejection.num_accepted / rejection.num_drafted,
            1.02 * coupled.num_accepted / coupled.num_drafted);
}

// A draft that follows an unread verification starts on the device. The draft
// model has then fed what it feeds after a read result, so it drafts the same
// tokens.
TEST(RejectionTest, DraftsThatBeginOnADeviceAreThoseBehindAnswers) {
  for (const int num_tokens : {1, 2, 3, 5, 8}) {
    SCOPED_TRACE(num_tokens);
    TextCase c = RejectionCase(num_tokens, Where::kAhead);
    c.params.repetition_penalty = 1;  // answers are read first
    c.params.speculate->mode = SpeculationMode::kCoupled;
    c.params.speculate->always_drafts = true;
    c.num_texts = Cases(400, 100);
    const TextCounts read = CountTextsOn(*MakeExecutor(Where::kAhead), c);
    const TextCounts unread = CountTextsOn(*MakeExecutor(Where::kOnDevice), c);
    EXPECT_EQ(unread.num_drafted, read.num_drafted);
    EXPECT_EQ(unread.num_accepted, read.num_accepted);
    EXPECT_LT(read.num_accepted, read.num_drafted * 9 / 10);
  }
}

// All are accepted, at the first place.
void AcceptFirst(const StepPlan& plan, std::span<const float>,
                 StepResult* result) {
  for (size_t i = 0; i < plan.selections.size(); ++i) {
    const PlanSelection& selection = plan.selections[i];
    size_t first = 0;  // index of the row's first candidate
    for (size_t row = 0; row < selection.drafts().size(); ++row) {
      SelectionResult& answer = result->selections[i];
      if (!selection.drafts()[row].empty() && answer.num_tokens[row] == 1) {
        answer.candidates[first].token = selection.drafts()[row][0];
      }
      first += answer.num_tokens[row];
    }
  }
}

// Drafts drawn hotter than they are judged.
void DraftHotter(StepPlan* plan) {
  for (DraftSequence& sequence : plan->drafting) {
    auto params = std::make_shared<SelectionParams>(*sequence.params);
    params->sampling.temperature *= 3;
    sequence.params = std::move(params);
  }
}

TEST(RejectionTest, EveryPlantedFaultIsSeen) {
  ExecutorFault none, accepts, hotter;
  accepts.change_result = AcceptFirst;
  hotter.change_plan = DraftHotter;
  const struct {
    const char* name;
    Where where;
    const ExecutorFault& fault;
    std::function<void(StepPlan*)> change = [](StepPlan*) {};
  } cases[] = {
      {"accepts all", Where::kOnHost, accepts},
      {"logits of another row", Where::kOnHost, none, ShiftDraftLogits},
      {"logits of another row, ahead", Where::kAhead, none, ShiftDraftLogits},
      {"logits of another row, on a device", Where::kOnDevice, none,
       ShiftDraftLogits},
      {"drawn from other logits", Where::kOnHost, hotter}};
  for (const auto& [name, where, fault, change] : cases) {
    // Each needs all texts to be seen.
    if (FewCases() && name != cases[0].name) break;
    SCOPED_TRACE(name);
    TextCase c = RejectionCase(3, where);
    c.num_texts = 12000;
    EXPECT_LT(CountTextsOn(*MakeExecutor(where, change), c, fault).p_value,
              kLeastPValue);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RejectionStatisticsTest,
                         ::testing::Values(Where::kOnHost, Where::kAhead,
                                           Where::kOnDevice),
                         [](const auto& test) {
                           switch (test.param) {
                             case Where::kOnHost:
                               return "OnHost";
                             case Where::kAhead:
                               return "Ahead";
                             case Where::kOnDevice:
                               return "OnDevice";
                           }
                           return "";
                         });

}  // namespace
}  // namespace espalier::testing
