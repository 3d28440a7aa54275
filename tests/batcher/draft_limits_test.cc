// A draft model that cannot draft costs nothing, or soon next to nothing: no
// step requests drafts of a sequence that it can never feed, and a model that
// returns none is requested ever more rarely. Steps are counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "exec_request/step_executor.h"
#include "executor/host/model_executor.h"
#include "tests/batcher/toy_requests.h"
#include "tests/executor/drive.h"
#include "tests/status_matchers.h"
#include "tests/toy_model.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

ToyModelOptions TargetModel() {
  ToyModelOptions options;
  options.num_tokens_read = 2;
  options.num_pages = 1000;
  options.has_shareable_pages = true;
  return options;
}

// Has no answer.
class FailingModel : public ToyModel {
 public:
  using ToyModel::ToyModel;
  absl::Status Forward(const StepPlan&, std::span<float>) override {
    return absl::InternalError("it fails");
  }
};

// Returns a request for 80 tokens after a prompt of 10, with drafts by a model.
Request DraftedRequest() {
  Request request{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {}};
  request.params.max_new_tokens = 80;
  request.params.ignore_eos = true;
  request.params.speculate = {SpeculationMethod::kDraft};
  return request;
}

std::vector<Request> EveryKind() {
  std::vector<Request> requests(4, DraftedRequest());
  requests[1].params.num_beams = 4;
  for (const int i : {2, 3}) {
    requests[i].params.do_sample = true;
    requests[i].params.num_return_sequences = 4;
    requests[i].params.seed = 5;
  }
  requests[3].params.speculate->mode = SpeculationMode::kRejection;
  return requests;
}

// Counts the plans that request drafts.
class DraftPlanCounter : public StepExecutor {
 public:
  explicit DraftPlanCounter(std::shared_ptr<StepExecutor> steps)
      : steps_(std::move(steps)) {}

  const ModelDescription& description() const override {
    return steps_->description();
  }
  void Execute(StepPlan plan, Done done) override {
    if (!plan.drafting.empty()) ++num_draft_plans_;
    const bool decodes = plan.tokens.size() == size_t(plan.num_logits);
    steps_->Execute(std::move(plan),
                    [this, decodes, done = std::move(done)](
                        absl::StatusOr<StepResult> result) mutable {
                      if (decodes && result.ok()) {
                        most_rows_ = std::max(most_rows_, result->num_logits);
                      }
                      done(std::move(result));
                    });
  }
  int num_draft_plans() const { return num_draft_plans_; }
  // Largest number of rows of logits that a decode step reports.
  int most_rows() const { return most_rows_; }

 private:
  const std::shared_ptr<StepExecutor> steps_;
  int num_draft_plans_ = 0;
  int most_rows_ = 0;
};

struct DraftedRun {
  absl::StatusOr<Result> result;
  SchedulerStats stats;
  int num_draft_plans = 0;  // plans that request drafts
  int most_rows = 0;        // most rows of logits of a decode step
};

DraftedRun RunWith(std::shared_ptr<Model> draft, Request request) {
  DraftPlanCounter steps(*ModelExecutor::Create(
      std::make_shared<ToyModel>(TargetModel()), *ThreadPool::Create(1),
      {.draft_model = std::move(draft)}));
  EXPECT_OK(ValidateRequest(steps.description(), &request));
  DraftedRun run;
  DriveOptions options;
  options.before_plan = [&](Scheduler& scheduler, int) {
    run.stats = scheduler.stats();
  };
  run.result = Drive(steps, {request}, options)[0];
  run.num_draft_plans = steps.num_draft_plans();
  run.most_rows = steps.most_rows();
  EXPECT_OK(run.result);
  return run;
}

std::shared_ptr<Model> Draft(int max_context, int page_size, int num_pages) {
  ToyModelOptions options = TargetModel();
  options.max_context = max_context;
  options.page_size = page_size;
  options.num_pages = num_pages;
  return std::make_shared<ToyModel>(options);
}

TEST(DraftLimitsTest, ADraftModelThatCannotHoldAPromptIsNeverAsked) {
  for (const Request& request : EveryKind()) {
    Request plain = request;
    plain.params.speculate.reset();
    const DraftedRun without = RunWith(nullptr, plain);
    for (const auto& draft :
         {Draft(10, 3, 1000), Draft(256, 16, 1), Draft(256, 5, 3)}) {
      const DraftedRun with = RunWith(draft, request);
      EXPECT_EQ(with.num_draft_plans, 0);
      EXPECT_EQ(with.stats.num_steps, without.stats.num_steps);
      EXPECT_EQ(with.stats.num_drafted_tokens, 0);
      EXPECT_TRUE(SameHypotheses(*with.result, *without.result));
    }
  }
}

// The draft model can hold this many of the 90 tokens.
TEST(DraftLimitsTest, AfterWhatADraftModelCanHoldItIsNotAsked) {
  constexpr int kHeld = 30;
  for (const Request& request : EveryKind()) {
    for (const auto& draft : {Draft(kHeld, 3, 1000), Draft(256, 3, 11)}) {
      const DraftedRun run = RunWith(draft, request);
      EXPECT_GT(run.num_draft_plans, 0);
      EXPECT_GT(run.stats.num_drafted_tokens, 0);
      // From 11 tokens on, as long as there are no more than it holds.
      EXPECT_LE(run.num_draft_plans, kHeld - 10);
      const int num_sequences = std::max<int>(
          request.params.num_beams, request.params.num_return_sequences);
      if (num_sequences > 1) continue;
      EXPECT_EQ(run.stats.num_steps + run.stats.num_accepted_tokens, 80);
    }
  }
}

// The last draft that fits is a short one.
TEST(DraftLimitsTest, DraftsAreAsLongAsADraftModelCanHold) {
  ToyModelOptions options = TargetModel();
  options.max_context = 11;
  Request request = DraftedRequest();
  request.params.max_new_tokens = 6;
  const DraftedRun run = RunWith(std::make_shared<ToyModel>(options), request);
  EXPECT_EQ(run.num_draft_plans, 1);
  EXPECT_EQ(run.stats.num_drafted_tokens, 1);
  EXPECT_EQ(run.stats.num_accepted_tokens, 1);  // the models are the same
}

TEST(DraftLimitsTest, ADraftModelWithoutAnswersIsAskedEverMoreSeldom) {
  for (const Request& request : EveryKind()) {
    Request plain = request;
    plain.params.speculate.reset();
    const DraftedRun without = RunWith(nullptr, plain);
    const DraftedRun with =
        RunWith(std::make_shared<FailingModel>(TargetModel()), request);
    EXPECT_GT(with.num_draft_plans, 0);
    // After 1, 2, 4, 7, 12, 21, 38 and 71 tokens.
    EXPECT_LE(with.num_draft_plans, 8);
    EXPECT_EQ(with.stats.num_draft_failures, with.num_draft_plans);
    // Rows that were planned for drafts are not computed, and not counted as
    // tokens that took a step's time.
    EXPECT_EQ(with.most_rows, std::max(request.params.num_beams,
                                       request.params.num_return_sequences));
    EXPECT_FALSE(with.stats.last_draft_failure.ok());
    EXPECT_EQ(with.stats.num_steps, without.stats.num_steps);
    EXPECT_TRUE(SameHypotheses(*with.result, *without.result));
  }
}

// One beam alone has room, four never do.
TEST(DraftLimitsTest, SoItIsWhereItsPagesAreTooFewForAllBeams) {
  const DraftedRun run = RunWith(Draft(256, 64, 3), EveryKind()[1]);
  EXPECT_EQ(run.stats.num_drafted_tokens, 0);
  EXPECT_LE(run.num_draft_plans, 8);
  EXPECT_EQ(run.stats.num_draft_failures, 0);
}

}  // namespace
}  // namespace espalier
