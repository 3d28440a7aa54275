// Drafts use the rest of a step: they never exceed its limits, and leave
// prompts their share of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

constexpr TokenId kOnlyToken = 7;  // all that is ever generated

ModelDescription NullModel() {
  ModelDescription model;
  model.vocab_size = 1000;
  model.max_context = 1000;
  model.page_size = 1;
  model.num_pages = 200;
  model.has_shareable_pages = true;
  return model;
}

// Accepts the drafts of samples below `num_accepting`, and no others. A draft
// model's drafts have the requested length.
StepResult AnswerTo(const StepPlan& plan, int num_accepting = 100) {
  StepResult result;
  for (const PlanSelection& selection : plan.selections) {
    SelectionResult& answer = result.selections.emplace_back();
    answer.request = selection.request;
    const SmallVector<int>& samples = selection.as_draws()->samples;
    const std::span<const std::vector<TokenId>> drafts = selection.drafts();
    for (int i = 0; i < std::ssize(samples); ++i) {
      const int row = selection.num_rows == 1 ? 0 : i;
      const bool accepts = !drafts.empty() && samples[i] < num_accepting;
      const int count = accepts ? 1 + std::ssize(drafts[row]) : 1;
      answer.candidates.resize(answer.candidates.size() + count,
                               {row, kOnlyToken, -1.0f});
      if (!drafts.empty()) answer.num_tokens.push_back(count);
    }
  }
  for (const GroupContinuation& continuation : plan.continuations) {
    SelectionResult& answer = result.selections.emplace_back();
    answer.request = continuation.request;
    answer.candidates.push_back({0, kOnlyToken, -1.0f});
  }
  for (const DraftSequence& sequence : plan.drafting) {
    const DraftTarget& target = sequence.verified_by;
    if (target.plan_row < 0) {
      DraftedTokens& drafted = result.drafts.emplace_back();
      drafted.tokens.assign(sequence.num_tokens, kOnlyToken);
      continue;
    }
    std::vector<int>& counts = result.selections[target.selection].num_drafted;
    counts.resize(plan.selections[target.selection].num_rows);
    counts[target.rank] = sequence.num_tokens;
  }
  return result;
}

int NumDrafted(const StepPlan& plan) {
  int count = 0;
  for (const PlanSelection& selection : plan.selections) {
    for (const auto& draft : selection.drafts()) {
      count += static_cast<int>(draft.size());
    }
  }
  return count;
}

bool Selects(const StepPlan& plan, RequestId request) {
  return std::ranges::any_of(plan.selections, [&](const auto& selection) {
    return selection.request == request;
  });
}

class DraftRoomTest : public ::testing::Test {
 protected:
  void Make(const ModelDescription& model, SchedulerOptions options) {
    options.validate_steps = true;
    model_ = model;
    scheduler_.emplace(model_, options);
  }
  ~DraftRoomTest() override { scheduler_->CancelAll(absl::CancelledError()); }

  // Submits a request whose text repeats itself, so that drafts are as long as
  // they may be.
  void SubmitDrafting(int id) {
    Request request = {{kOnlyToken, kOnlyToken, kOnlyToken, kOnlyToken}, {}};
    request.params.max_new_tokens = 90;
    request.params.speculate = {SpeculationMethod::kNgram, 16,
                                SpeculationMode::kCoupled};
    Submit(id, std::move(request));
  }
  void SubmitPlain(int id, int num_prompt_tokens, int max_new_tokens = 2) {
    Request request;
    for (int i = 0; i < num_prompt_tokens; ++i) {
      request.prompt_tokens.push_back(100 + i);
    }
    request.params.max_new_tokens = max_new_tokens;
    Submit(id, std::move(request));
  }
  void Submit(int id, Request request) {
    request.params.ignore_eos = true;
    ASSERT_OK(ValidateRequest(model_, &request));
    scheduler_->Submit(RequestId{id}, PreparedRequest(std::move(request)),
                       [](const absl::StatusOr<Result>&) {});
  }

  // Submits samples with drafts by a model, sampled or not.
  void SubmitDrawing(int id, int num_samples, SpeculationMode mode) {
    Request request = {{kOnlyToken, kOnlyToken, kOnlyToken, kOnlyToken}, {}};
    request.params.max_new_tokens = 20;
    request.params.do_sample = true;
    request.params.num_return_sequences = num_samples;
    request.params.seed = 1;
    request.params.speculate = {SpeculationMethod::kDraft, 6, mode};
    request.params.speculate->always_drafts = true;
    Submit(id, std::move(request));
  }

  StepPlan Step(int num_accepting = 100) {
    StepPlan plan = scheduler_->Plan();
    EXPECT_LE(plan.tokens.size(), model_.limits.max_step_tokens);
    EXPECT_LE(plan.num_logits, model_.limits.max_beams);
    if (!plan.is_noop()) scheduler_->Advance(AnswerTo(plan, num_accepting));
    return plan;
  }
  void StepUntilDrafted() {
    for (int i = 0; i < 5; ++i) {
      if (NumDrafted(Step()) > 0) return;
    }
    FAIL() << "nothing is drafted";
  }

  ModelDescription model_;
  std::optional<Scheduler> scheduler_;
};

TEST_F(DraftRoomTest, StepsStayWithinTheirLimits) {
  for (const int max_beams : {3, 8, 9}) {
    ModelDescription model = NullModel();
    model.limits.max_beams = max_beams;
    model.limits.max_step_tokens = 12;
    Make(model, {.prefill_share = 0.25});
    for (int i = 0; i < 3; ++i) SubmitDrafting(i);
    for (int i = 3; i < 9; ++i) SubmitPlain(i, 10);
    int num_drafted = 0;
    for (int i = 0; i < 40; ++i) num_drafted += NumDrafted(Step());
    EXPECT_GT(num_drafted, 0) << max_beams;
    scheduler_->CancelAll(absl::CancelledError());
  }
}

TEST_F(DraftRoomTest, APromptHasATokenOfEachStepAlsoWithoutAShare) {
  ModelDescription model = NullModel();
  model.limits.max_beams = 8;
  model.limits.max_step_tokens = 8;
  Make(model, {.prefill_share = 0});
  SubmitDrafting(0);
  StepUntilDrafted();
  SubmitPlain(1, 2);
  Step();
  EXPECT_TRUE(Selects(Step(), RequestId{1}));
}

// Drafts that are never accepted take pages at every step, and more than the
// request that waits leaves.
TEST_F(DraftRoomTest, DraftsLeaveThePagesThatAWaitingRequestStartsIn) {
  ModelDescription model = NullModel();
  model.num_pages = 62;
  Make(model, {.prefill_share = 0.25});
  Request request = {{kOnlyToken, kOnlyToken, kOnlyToken, kOnlyToken}, {}};
  request.params.max_new_tokens = 40;
  request.params.speculate = {SpeculationMethod::kNgram, 16,
                              SpeculationMode::kCoupled};
  request.params.speculate->always_drafts = true;
  Submit(0, std::move(request));
  int num_drafted = 0;
  for (int i = 0; i < 3; ++i) num_drafted += NumDrafted(Step(0));
  EXPECT_GT(num_drafted, 0);
  // 41 pages of 62, beside 8 that are held and one that is needed next.
  SubmitPlain(1, 40);
  EXPECT_TRUE(Selects(Step(0), RequestId{1}));
}

// Beside a request that holds most pages there are too few to verify 20 drafts.
TEST_F(DraftRoomTest, DraftsAreAskedForThatThereArePagesToVerify) {
  ModelDescription model = NullModel();
  model.limits.max_drafted_length = std::numeric_limits<int>::max();
  model.num_pages = 110;
  Make(model, {});
  SubmitPlain(1, 95, 4);
  Request request = {{kOnlyToken, kOnlyToken, kOnlyToken, kOnlyToken}, {}};
  request.params.max_new_tokens = 22;
  request.params.speculate = {SpeculationMethod::kDraft, 20,
                              SpeculationMode::kCoupled};
  request.params.speculate->always_drafts = true;
  Submit(0, std::move(request));
  int num_asks = 0;
  for (int i = 0; i < 6; ++i) {
    const StepPlan asks = Step(0);
    if (asks.drafting.empty()) continue;
    ++num_asks;
    EXPECT_LT(asks.drafting[0].num_tokens, 20);
    EXPECT_EQ(NumDrafted(asks), asks.drafting[0].num_tokens);
  }
  EXPECT_GT(num_asks, 1);
}

// Two groups draft a token a step. There are two pages more, which one takes to
// go ahead of its answer; the other waits. When the first answer is there
// neither has room ahead of its own, so that they have their next step together
// rather than by turns.
TEST_F(DraftRoomTest, AGroupWithoutRoomToDraftAheadIsWaitedFor) {
  ModelDescription model = NullModel();
  model.limits.max_drafted_length = std::numeric_limits<int>::max();
  model.num_pages = 2 * (4 + 2) + 2;
  Make(model, {});
  for (int id = 0; id < 2; ++id) {
    // Prompts that share no page.
    Request request = {{id + 1, kOnlyToken, kOnlyToken, kOnlyToken}, {}};
    request.params.max_new_tokens = 10;
    request.params.speculate = {SpeculationMethod::kDraft, 1,
                                SpeculationMode::kCoupled};
    request.params.speculate->always_drafts = true;
    Submit(id, std::move(request));
  }
  Step();
  const StepPlan both = scheduler_->Plan();
  EXPECT_EQ(NumDrafted(both), 2);
  const StepPlan ahead = scheduler_->Plan();
  ASSERT_EQ(ahead.selections.size(), 1u);
  EXPECT_TRUE(ahead.selections[0].as_draws()->drafts.is_ahead);
  EXPECT_EQ(NumDrafted(ahead), 1);
  EXPECT_TRUE(scheduler_->Plan().empty());
  scheduler_->Advance(AnswerTo(both, 0));
  EXPECT_TRUE(scheduler_->Plan().empty());
  scheduler_->Advance(AnswerTo(ahead, 0));
  const StepPlan next = Step(0);
  EXPECT_TRUE(Selects(next, RequestId{0}));
  EXPECT_TRUE(Selects(next, RequestId{1}));
}

// The executor reads the rows that drafts were drawn from beside those that
// verify them, so half as many have room.
TEST_F(DraftRoomTest, DrawnDraftsTakeTwoRowsOfLogitsATokenEach) {
  for (const SpeculationMode mode :
       {SpeculationMode::kCoupled, SpeculationMode::kRejection}) {
    const bool are_drawn = mode == SpeculationMode::kRejection;
    ModelDescription model = NullModel();
    model.limits.max_drafted_length = std::numeric_limits<int>::max();
    model.limits.max_beams = 8;
    model.limits.max_step_tokens = 100;
    Make(model, {});
    SubmitDrawing(0, 1, mode);
    Step();
    const StepPlan verifies = Step();
    EXPECT_EQ(verifies.drafting.at(0).num_tokens, are_drawn ? 3 : 6);
    EXPECT_EQ(NumDrafted(verifies), are_drawn ? 3 : 6);
    EXPECT_EQ(verifies.selections[0].as_draws()->drafts.max_tokens,
              are_drawn ? 3 : 6);
    scheduler_->CancelAll(absl::CancelledError());
  }
}

// The draft model can feed no further sequence, and the lengths of samples
// differ by their accepted tokens until the longer one ends.
TEST_F(DraftRoomTest, AGroupOfOneLengthRunsAheadWhenDraftsAreOff) {
  ModelDescription model = NullModel();
  model.limits.max_drafted_length = 8;
  Make(model, {});
  SubmitDrawing(0, 2, SpeculationMode::kCoupled);
  bool differed = false;
  for (int i = 0; i < 40 && scheduler_->stats().num_generated_tokens == 0;
       ++i) {
    StepPlan plan = scheduler_->Plan();
    ASSERT_FALSE(plan.empty());
    const bool selects = !plan.selections.empty();
    differed =
        differed ||
        (selects && !plan.selections[0].as_draws()->row_num_generated.empty());
    if (selects && differed && plan.selections[0].num_rows == 1) {
      // Its answer before this one made it one sequence.
      StepPlan ahead = scheduler_->Plan();
      EXPECT_EQ(ahead.continuations.size(), 1);
      scheduler_->Advance(AnswerTo(plan, 1));
      if (!ahead.is_noop()) scheduler_->Advance(AnswerTo(ahead, 1));
      return;
    }
    scheduler_->Advance(AnswerTo(plan, 1));
  }
  FAIL() << "the samples do not come to differ, or end together";
}

}  // namespace
}  // namespace espalier
