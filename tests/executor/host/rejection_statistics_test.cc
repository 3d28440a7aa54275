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
#include "executor/host/drafting_executor.h"
#include "executor/host/model_executor.h"
#include "tests/batcher/text_statistics.h"
#include "tests/executor/drive.h"
#include "tests/executor/host/toy_device.h"
#include "tests/few_cases.h"
#include "tests/p_value.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

// Place of the draft model: inside the executor; inside, with drafts requested
// by separate plans; beside it; beside it, with steps planned before results
// are read; or the last on a device, where drafts also start before results are
// read.
enum class Where { kInside, kApart, kBeside, kAhead, kOnDevice };

// Changes plans on their way to an executor.
class PlanChanger : public StepExecutor {
 public:
  PlanChanger(std::shared_ptr<StepExecutor> steps,
              std::function<void(StepPlan*)> change)
      : steps_(std::move(steps)),
        change_(std::move(change)),
        description_(steps_->description()) {}

  const ModelDescription& description() const override { return description_; }
  void DraftApart() { description_.drafts_before_steps = false; }
  void Execute(StepPlan plan, Done done) override {
    change_(&plan);
    steps_->Execute(std::move(plan), std::move(done));
  }

 private:
  const std::shared_ptr<StepExecutor> steps_;
  const std::function<void(StepPlan*)> change_;
  ModelDescription description_;
};

// Changes the plan of a step that the executor drafts for itself: after the
// drafts, before they are judged.
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

// `change` is applied to plans on their way to the executor; where it drafts
// for the step that it runs, to the plan between drafts and verification.
std::shared_ptr<StepExecutor> MakeExecutor(
    Where where, std::function<void(StepPlan*)> change = [](StepPlan*) {}) {
  const auto pool = *ThreadPool::Create(1);
  if (where == Where::kInside || where == Where::kApart) {
    const bool is_apart = where == Where::kApart;
    std::shared_ptr<Model> model = MakeTextModel();
    if (!is_apart) model = std::make_shared<FilledPlanChanger>(model, change);
    auto inside = *ModelExecutor::Create(std::move(model), pool,
                                         {.draft_model = MakeTextDraftModel()});
    if (!is_apart) return inside;
    auto apart =
        std::make_shared<PlanChanger>(std::move(inside), std::move(change));
    apart->DraftApart();
    return apart;
  }
  const bool is_on_device = where == Where::kOnDevice;
  std::shared_ptr<StepExecutor> steps = *ModelExecutor::Create(
      MakeTextModel(), pool,
      {.run_ahead = is_on_device || where == Where::kAhead});
  steps = std::make_shared<PlanChanger>(std::move(steps), std::move(change));
  const std::shared_ptr<Model> draft_model = MakeTextDraftModel();
  std::shared_ptr<DraftSampler> sampler;
  if (is_on_device) {
    const auto device = std::make_shared<ToyDevice>(0);
    steps = std::make_shared<ToyDeviceExecutor>(device, std::move(steps));
    sampler = std::make_shared<ToyDeviceSampler>(device, draft_model);
  }
  auto draft = *DraftModel::Create(draft_model, pool, sampler);
  return *DraftingExecutor::Create(std::move(steps), std::move(draft));
}

TextCase RejectionCase(int num_tokens, Where where = Where::kBeside) {
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

// Rejection accepts more drafts than coupled sampling does.
TEST(RejectionTest, AcceptsMoreThanCoupledDrafts) {
  TextCase c = RejectionCase(8);
  c.num_texts = 1000;
  const TextCounts rejection = CountTextsOn(*MakeExecutor(Where::kBeside), c);
  c.params.speculate->mode = SpeculationMode::kCoupled;
  const TextCounts coupled = CountTextsOn(*MakeExecutor(Where::kBeside), c);
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
      {"accepts all", Where::kInside, accepts},
      {"accepts all, beside", Where::kBeside, accepts},
      {"logits of another row, inside", Where::kInside, none, ShiftDraftLogits},
      {"logits of another row, apart", Where::kApart, none, ShiftDraftLogits},
      {"logits of another row, beside", Where::kBeside, none, ShiftDraftLogits},
      {"logits of another row, ahead", Where::kAhead, none, ShiftDraftLogits},
      {"logits of another row, on a device", Where::kOnDevice, none,
       ShiftDraftLogits},
      {"drawn from other logits", Where::kInside, hotter}};
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
                         ::testing::Values(Where::kInside, Where::kApart,
                                           Where::kBeside, Where::kAhead,
                                           Where::kOnDevice),
                         [](const auto& test) {
                           switch (test.param) {
                             case Where::kInside:
                               return "Inside";
                             case Where::kApart:
                               return "Apart";
                             case Where::kBeside:
                               return "Beside";
                             case Where::kAhead:
                               return "Ahead";
                             case Where::kOnDevice:
                               return "OnDevice";
                           }
                           return "";
                         });

}  // namespace
}  // namespace espalier::testing
