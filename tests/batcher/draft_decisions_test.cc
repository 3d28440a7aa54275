// The number of drafted tokens follows from the cost of drafts and from earlier
// verifications, as results of steps report them. A draft model's time counts
// per sequence, not per row, for beams as for samples, and unverified drafts do
// not count.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "batcher/scheduler/scheduler.h"
#include "executor/drafts/draft_model.h"
#include "tests/batcher/toy_requests.h"
#include "tests/status_matchers.h"
#include "tests/toy_model.h"

namespace espalier::testing {
namespace {

constexpr int kNumTokens = 200;  // that a request generates

// A draft model whose drafts are all accepted.
ToyModelOptions LoopingModel() {
  return {.eos_boost = -100,
          .num_tokens_read = 1,
          .num_pages = 2000,
          .has_shareable_pages = true};
}

Request DraftingRequest(SpeculationMethod method, int num_beams) {
  Request request;
  request.prompt_tokens = {1, 2, 3};
  GenerationParams& params = request.params;
  params.max_new_tokens = kNumTokens;
  params.ignore_eos = true;
  params.num_beams = num_beams;
  params.speculate = {
      .method = method, .num_tokens = 6, .mode = SpeculationMode::kCoupled};
  return request;
}

struct DraftingOptions {
  int max_step_tokens = 256;
  bool async_scheduling = false;
  // From a plan to its answer, beside the time on the device.
  absl::Duration wait = absl::ZeroDuration();
};

struct DraftingRun {
  int num_plans_with_drafts = 0;
  int num_plans_that_ask = 0;
  int num_steps = 0;  // steps of the model
};

// Runs a request beside one that generates a few tokens without drafts, so that
// steps differ in tokens; `report` may change a step's result.
DraftingRun RunDrafting(
    Request request,
    const std::function<void(const StepPlan&, StepResult*)>& report,
    const DraftingOptions& options = {}) {
  ToyModel model(LoopingModel());
  const auto draft = *DraftModel::Create(
      std::make_shared<ToyModel>(LoopingModel()), *ThreadPool::Create(1));
  ModelDescription description = model.description();
  description.limits.max_drafted_length = std::numeric_limits<int>::max();
  EXPECT_OK(ValidateRequest(description, &request));
  Scheduler scheduler(
      description,
      {.max_step_tokens = options.max_step_tokens, .validate_steps = true},
      options.async_scheduling);
  scheduler.Submit(RequestId{0}, PreparedRequest(std::move(request)),
                   [](const auto& result) { EXPECT_OK(result.status()); });
  Request plain;
  plain.prompt_tokens = {4};
  plain.params.max_new_tokens = 30;
  EXPECT_OK(ValidateRequest(description, &plain));
  scheduler.Submit(RequestId{1}, PreparedRequest(std::move(plain)),
                   [](const auto& result) { EXPECT_OK(result.status()); });
  DraftingRun run;
  absl::Duration now;
  while (true) {
    scheduler.SetTime(absl::ToInt64Nanoseconds(now));
    StepPlan plan = scheduler.Plan();
    if (plan.empty()) return run;
    run.num_steps += !plan.rows.empty();
    run.num_plans_that_ask += !plan.drafting.empty();
    run.num_plans_with_drafts += std::ranges::any_of(
        plan.selections,
        [](const PlanSelection& s) { return !s.drafts().empty(); });
    absl::StatusOr<StepResult> result = RunPlan(model, &plan, draft.get());
    EXPECT_OK(result.status());
    report(plan, &*result);
    now += result->forward_time + result->draft_time + options.wait;
    scheduler.SetTime(absl::ToInt64Nanoseconds(now));
    scheduler.Advance(std::move(result));
  }
}

// A step lasts 1 ms and so much for each token, a row of the draft model that.
auto StepsThatTake(absl::Duration token, absl::Duration draft_row) {
  return [=](const StepPlan& plan, StepResult* result) {
    result->forward_time =
        absl::Milliseconds(1) + std::ssize(plan.tokens) * token;
    result->draft_time = result->num_draft_rows * draft_row;
  };
}

// At first the draft model's time is unknown.
TEST(DraftDecisionsTest, ADraftModelThatTakesLongIsNotAsked) {
  for (const int num_beams : {1, 4}) {
    SCOPED_TRACE(num_beams);
    const Request request =
        DraftingRequest(SpeculationMethod::kDraft, num_beams);
    const auto ask = [&](absl::Duration draft_row) {
      return RunDrafting(request,
                         StepsThatTake(absl::Microseconds(1), draft_row))
          .num_plans_that_ask;
    };
    EXPECT_GE(ask(absl::Microseconds(1)), kNumTokens / 7);
    EXPECT_LE(ask(absl::Milliseconds(20)), kNumTokens / 14);
  }
}

// Four beams have paths of 17 rows and more.
TEST(DraftDecisionsTest, RowsOfPathsAreNotTakenForSequences) {
  const DraftingRun run =
      RunDrafting(DraftingRequest(SpeculationMethod::kDraft, 4),
                  StepsThatTake(absl::Microseconds(50), absl::Nanoseconds(1)));
  EXPECT_LE(run.num_steps, kNumTokens / 2);
}

// In as many plans as chunks, without the pauses that a draft model gets which
// has nothing.
TEST(DraftDecisionsTest, ADraftModelThatIsBehindIsAskedOn) {
  Request request = DraftingRequest(SpeculationMethod::kDraft, 1);
  request.prompt_tokens.resize(150, 1);
  request.params.max_new_tokens = 60;
  int num_behind = 0;
  const DraftingRun run =
      RunDrafting(request,
                  [&](const StepPlan& plan, StepResult* result) {
                    EXPECT_LE(plan.max_draft_step_tokens, 20);
                    for (size_t i = 0; i < plan.selections.size(); ++i) {
                      num_behind += !plan.selections[i].drafts().empty() &&
                                    result->selections[i].num_drafted.empty();
                    }
                  },
                  {.max_step_tokens = 20});
  EXPECT_GE(num_behind, 7);
  EXPECT_LE(num_behind, 9);
  EXPECT_GE(run.num_plans_with_drafts, 6);
}

// Six accepted tokens are worth a wait of four steps, but not of seven. A draft
// model that a plan of its own requests doubles the wait, and one that drafts
// in the step waits for nothing. With one plan in flight, steps without drafts
// wait as well.
TEST(DraftDecisionsTest, DraftsThatAreNotWorthTheWaitAreTurnedOff) {
  struct Case {
    SpeculationMethod method;
    int num_beams;
    int num_waits;
  };
  for (const auto& [method, num_beams, num_waits] :
       {Case{SpeculationMethod::kNgram, 1, 1},
        Case{SpeculationMethod::kDraft, 1, 0},
        Case{SpeculationMethod::kDraft, 2, 2}}) {
    SCOPED_TRACE(num_beams + 10 * num_waits);
    const auto num_drafting = [&](bool async_scheduling, int wait_ms) {
      return RunDrafting(
                 DraftingRequest(method, num_beams),
                 StepsThatTake(absl::Microseconds(1), absl::Nanoseconds(1)),
                 {.async_scheduling = async_scheduling,
                  .wait = absl::Milliseconds(wait_ms)})
          .num_plans_with_drafts;
    };
    if (num_waits > 0) {
      EXPECT_GE(num_drafting(true, 4 / num_waits), kNumTokens / 8);
      // Until it is known.
      EXPECT_LE(num_drafting(true, 7), 18);
    } else {
      EXPECT_GE(num_drafting(true, 7), kNumTokens / 8);
    }
    EXPECT_GE(num_drafting(false, 7), kNumTokens / 8);
  }
}

// Leaves drafts unverified, like an executor whose step is full.
void LeaveUnverified(const StepPlan& plan, StepResult* result) {
  for (size_t i = 0; i < plan.selections.size(); ++i) {
    SelectionResult& answer = result->selections[i];
    if (plan.selections[i].drafts().empty()) continue;
    answer.has_unverified_drafts = true;
    answer.further.clear();
    if (plan.selections[i].has_paths()) continue;
    answer.candidates.resize(1);
    answer.num_tokens = {1};
  }
}

class UnverifiedDraftsTest : public ::testing::TestWithParam<int> {};

TEST_P(UnverifiedDraftsTest, TheySayNothing) {
  constexpr int kNumWithoutRoom = 60;  // steps
  int num_steps = 0;
  int num_unverified = 0;
  const DraftingRun run = RunDrafting(
      DraftingRequest(GetParam() == 1 ? SpeculationMethod::kNgram
                                      : SpeculationMethod::kDraft,
                      GetParam()),
      [&](const StepPlan& plan, StepResult* result) {
        num_steps += !plan.rows.empty();
        if (num_steps > kNumWithoutRoom) return;
        const bool drafts = std::ranges::any_of(
            plan.selections,
            [](const PlanSelection& s) { return !s.drafts().empty(); });
        if (!drafts) return;
        ++num_unverified;
        LeaveUnverified(plan, result);
      });
  // So many tokens that are fed for nothing are a step's, or half of it, and
  // then one in nine steps.
  EXPECT_GE(num_unverified, 6);
  EXPECT_LE(num_unverified, 14);
  // Includes these steps, a few before the text repeats itself, and several
  // tokens per step once there is room again.
  EXPECT_LE(run.num_steps, kNumWithoutRoom + 50);
}

INSTANTIATE_TEST_SUITE_P(Beams, UnverifiedDraftsTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace espalier::testing
