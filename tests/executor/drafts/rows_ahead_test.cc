// Rows ahead of a result, one call after the other. That they are those of a
// planner that has read the result, drafts_ahead_test.cc shows.
#include "executor/drafts/rows_ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "executor/drafts/fill_drafts.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TokenId kEos = 9;
constexpr int kPageSize = 2;

// Appends two samples, 3 and 4, after a prompt of four tokens that have
// generated 5, and feed it with two drafts. Their rows have ten pages.
void AddSamples(RequestId request, StepPlan* plan) {
  auto params = std::make_shared<SelectionParams>();
  PlanSelection selection = {.request = request, .params = params};
  selection.first_logits = plan->num_logits;
  selection.num_rows = selection.num_slots = 2;
  selection.num_generated = 1;
  selection.cum_log_probs = {-1, -2};
  const SmallVector<int> samples = {3, 4};
  selection.slots = {1, 0};
  selection.eos_token_ids = {kEos};
  selection.choice =
      DrawSelection{.samples = samples, .drafts = {.tokens = {{0, 0}, {0, 0}}}};
  const auto prompt = std::make_shared<const std::vector<TokenId>>(4, 1);
  for (int i = 0; i < 2; ++i) {
    const DraftTarget target = {static_cast<int>(plan->rows.size()),
                                static_cast<int>(plan->selections.size()), i};
    plan->rows.push_back({.sequence = SequenceId{10 + i},
                          .first_token = static_cast<int>(plan->tokens.size()),
                          .num_tokens = 3,
                          .first_position = 4,
                          .num_logits = 3,
                          .first_logits = plan->num_logits});
    plan->num_logits += 3;
    plan->tokens.insert(plan->tokens.end(), {5, 0, 0});
    for (int page = 0; page < 10; ++page) {
      plan->page_indices.push_back(PageId{10 * i + page});
    }
    plan->page_indptr.push_back(static_cast<int>(plan->page_indices.size()));
    plan->drafting.push_back({.request = request,
                              .sample = samples[i],
                              .prompt = prompt,
                              .generated = {5},
                              .num_tokens = 2,
                              .params = params,
                              .verified_by = target});
  }
  plan->selections.push_back(std::move(selection));
}

StepPlan TwoSamples(RequestId request) {
  StepPlan plan;
  AddSamples(request, &plan);
  return plan;
}

// Appends these samples with two drafts more, ahead of the result.
void AddAhead(RequestId request, StepPlan* plan) {
  const size_t first_row = plan->rows.size();
  AddSamples(request, plan);
  PlanSelection& selection = plan->selections.Edit(plan->selections.size() - 1);
  selection.num_generated = 2;
  selection.EditDraws().drafts.is_ahead = true;
  for (size_t row = first_row; row < plan->rows.size(); ++row) {
    plan->rows[row].first_position = 5;
  }
}

StepPlan TwoAhead(RequestId request) {
  StepPlan plan;
  AddAhead(request, &plan);
  return plan;
}

StepResult AnswerOf(RequestId request, std::vector<int> num_tokens,
                    std::vector<Candidate> candidates) {
  StepResult result;
  SelectionResult& answer = result.selections.emplace_back();
  answer.request = request;
  answer.num_tokens = std::move(num_tokens);
  answer.candidates.assign(candidates.begin(), candidates.end());
  return result;
}

// Completes the plan and inserts empty drafts.
RowsAhead::Asked Fill(RowsAhead* rows, StepPlan* plan) {
  RowsAhead::Asked asked = rows->Complete(plan);
  std::vector<DraftedTokens> drafts(plan->drafting.size());
  FillDrafts(kPageSize, drafts, plan, asked.ended_rows);
  return asked;
}

absl::StatusOr<StepResult> Answer(RowsAhead* rows, RowsAhead::Asked asked,
                                  absl::StatusOr<StepResult> answer) {
  const std::vector<DraftedTokens> drafts(8);
  rows->Advance(drafts, &asked, &answer);
  return answer;
}

TEST(RowsAheadTest, SamplesContinueWhereTheirResultEnds) {
  RowsAhead rows;
  StepPlan plan = TwoSamples(RequestId{1});
  Answer(&rows, rows.Complete(&plan),
         AnswerOf(RequestId{1}, {2, 1}, {{0, 6, -3}, {0, 7, -4}, {1, 8, -5}}))
      .IgnoreError();
  StepPlan next = TwoAhead(RequestId{1});
  EXPECT_TRUE(RowsAhead::HasRowsAhead(next));
  rows.Complete(&next);
  EXPECT_FALSE(RowsAhead::HasRowsAhead(next));
  ASSERT_EQ(next.rows.size(), 2u);
  EXPECT_EQ(next.rows[0].first_position, 6);
  EXPECT_EQ(next.rows[1].first_position, 5);
  EXPECT_EQ(next.rows[0].sequence, SequenceId{10});
  EXPECT_THAT(next.tokens, ElementsAre(7, 0, 0, 8, 0, 0));
  const PlanSelection& selection = next.selections[0];
  EXPECT_THAT(selection.as_draws()->row_num_generated, ElementsAre(3, 2));
  EXPECT_THAT(selection.cum_log_probs, ElementsAre(-4, -5));
  EXPECT_THAT(next.drafting[0].generated, ElementsAre(5, 6, 7));
  EXPECT_EQ(next.drafting[1].sample, 4);
  EXPECT_EQ(next.drafting[1].verified_by.plan_row, 1);
}

// Also by a drafted token, with others after it.
TEST(RowsAheadTest, SamplesThatEndFeedNothing) {
  RowsAhead rows;
  StepPlan plan = TwoSamples(RequestId{1});
  Answer(&rows, rows.Complete(&plan),
         AnswerOf(RequestId{1}, {3, 1},
                  {{0, 6, -3}, {0, kEos, -4}, {0, 7, -4}, {1, 8, -5}}))
      .IgnoreError();
  StepPlan next = TwoAhead(RequestId{1});
  next.selections.Edit(0).histories = {{5}, {5}};
  const RowsAhead::Asked asked = Fill(&rows, &next);
  EXPECT_THAT(next.selections[0].as_draws()->samples, ElementsAre(4));
  EXPECT_THAT(next.selections[0].slots, ElementsAre(0));
  EXPECT_THAT(next.selections[0].cum_log_probs, ElementsAre(-5));
  EXPECT_THAT(next.selections[0].histories, ElementsAre(ElementsAre(5, 8)));
  EXPECT_THAT(next.tokens, ElementsAre(8));
  ASSERT_EQ(next.rows.size(), 1u);
  EXPECT_EQ(next.rows[0].sequence, SequenceId{11});
  EXPECT_EQ(next.rows[0].first_logits, 0);
  EXPECT_EQ(next.selections[0].first_logits, 0);
  EXPECT_THAT(next.row_pages(0),
              ElementsAre(PageId{10}, PageId{11}, PageId{12}));
  Answer(&rows, asked, AnswerOf(RequestId{1}, {1}, {{0, kEos, -9}}))
      .IgnoreError();
  EXPECT_EQ(rows.num_groups(), 0);
  StepPlan last = TwoAhead(RequestId{1});
  Fill(&rows, &last);
  EXPECT_TRUE(last.rows.empty());
  EXPECT_THAT(last.selections, IsEmpty());
  EXPECT_EQ(last.num_logits, 0);
}

TEST(RowsAheadTest, GroupsThatEndAreForgotten) {
  RowsAhead rows;
  StepPlan plan = TwoSamples(RequestId{1});
  Answer(&rows, rows.Complete(&plan),
         AnswerOf(RequestId{1}, {1, 1}, {{0, 6, -3}, {1, 8, -5}}))
      .IgnoreError();
  EXPECT_EQ(rows.num_groups(), 1);
  StepPlan last;
  last.ended = {RequestId{1}};
  rows.Complete(&last);
  EXPECT_EQ(rows.num_groups(), 0);
}

// Also for groups that have no rows, because their last result is unknown, and
// plain continuations.
TEST(RowsAheadTest, ResultsAreInTheOrderOfThePlan) {
  RowsAhead rows;
  StepPlan plan = TwoSamples(RequestId{1});
  Answer(&rows, rows.Complete(&plan),
         AnswerOf(RequestId{1}, {1, 1}, {{0, 6, -3}, {1, 8, -5}}))
      .IgnoreError();
  StepPlan next = TwoAhead(RequestId{6});
  AddSamples(RequestId{2}, &next);
  AddAhead(RequestId{4}, &next);
  AddAhead(RequestId{1}, &next);
  AddAhead(RequestId{7}, &next);
  next.continuations.push_back({.request = RequestId{3}});
  RowsAhead::Asked asked = rows.Complete(&next);
  ASSERT_EQ(next.drafting.size(), 4u);
  std::vector<DraftedTokens> drafts(4);
  drafts[0].tokens = {7};
  drafts[3].tokens = {7, 7};
  FillDrafts(kPageSize, drafts, &next, asked.ended_rows);
  ASSERT_EQ(next.selections.size(), 2u);
  EXPECT_EQ(next.rows.size(), 4u);
  EXPECT_EQ(next.selections[1].first_logits, 3);
  absl::StatusOr<StepResult> result =
      AnswerOf(RequestId{2}, {1, 1}, {{0, 6, -3}, {1, 8, -5}});
  result->selections.push_back(
      AnswerOf(RequestId{1}, {1, 1}, {{0, 6, -3}, {1, 8, -5}}).selections[0]);
  result->selections.push_back({.request = RequestId{3}});
  rows.Advance(drafts, &asked, &result);
  std::vector<int64_t> order;
  for (const SelectionResult& answer : result->selections) {
    order.push_back(answer.request.value);
  }
  EXPECT_THAT(order, ElementsAre(6, 2, 4, 1, 7, 3));
  EXPECT_THAT(result->selections[1].num_drafted, ElementsAre(1, 0));
  EXPECT_THAT(result->selections[3].num_drafted, ElementsAre(0, 2));
  EXPECT_THAT(result->selections[2].num_drafted, IsEmpty());
}

TEST(RowsAheadTest, IfTheDraftModelIsBehindNothingWasDrafted) {
  RowsAhead rows;
  StepPlan plan = TwoSamples(RequestId{1});
  RowsAhead::Asked asked = rows.Complete(&plan);
  absl::StatusOr<StepResult> result =
      AnswerOf(RequestId{1}, {1, 1}, {{0, 6, -3}, {1, 8, -5}});
  std::vector<DraftedTokens> drafts(2);
  drafts[1].is_behind = true;
  rows.Advance(drafts, &asked, &result);
  EXPECT_THAT(result->selections[0].num_drafted, IsEmpty());
}

TEST(RowsAheadTest, GroupsOfInvalidResultsAreForgotten) {
  const absl::StatusOr<StepResult> answers[] = {
      absl::InternalError("no step"), StepResult(),
      AnswerOf(RequestId{1}, {1}, {{0, 6, -3}}),
      AnswerOf(RequestId{1}, {2, 1}, {{0, 6, -3}, {1, 8, -5}}),
      AnswerOf(RequestId{1}, {0, 1}, {{1, 8, -5}})};
  for (const absl::StatusOr<StepResult>& answer : answers) {
    RowsAhead rows;
    StepPlan plan = TwoSamples(RequestId{1});
    Answer(&rows, rows.Complete(&plan),
           AnswerOf(RequestId{1}, {1, 1}, {{0, 6, -3}, {1, 8, -5}}))
        .IgnoreError();
    EXPECT_EQ(rows.num_groups(), 1);
    StepPlan next = TwoAhead(RequestId{1});
    Answer(&rows, rows.Complete(&next), answer).IgnoreError();
    EXPECT_EQ(rows.num_groups(), 0);
  }
}

// The drafts of TwoSamples, as a device reports their verification.
struct VerifiedOnDevice {
  VerifiedOnDevice() : drafts(2) {
    for (int i = 0; i < 2; ++i) {
      drafts[i].pending =
          PendingDraft({tokens, tokens->data()}, 1, 2, &verified[i]);
    }
  }

  std::shared_ptr<std::vector<TokenId>> tokens =
      std::make_shared<std::vector<TokenId>>(2, 7);
  VerifiedDraft verified[2];
  std::vector<DraftedTokens> drafts;
};

TEST(RowsAheadTest, RowsThatDoNotWaitFollowTheDraftsBefore) {
  RowsAhead rows;
  VerifiedOnDevice device;
  StepPlan plan = TwoSamples(RequestId{1});
  const RowsAhead::Asked asked = rows.Complete(&plan);
  StepPlan next = TwoAhead(RequestId{1});
  const RowsAhead::Unread before = {&asked, device.drafts};
  ASSERT_TRUE(RowsAhead::CanFollow(next, before));
  rows.Complete(&next, before);
  ASSERT_EQ(next.rows.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(next.rows[i].first_position, 5);
    EXPECT_EQ(next.rows[i].num_tokens, 3);
    EXPECT_THAT(next.drafting[i].generated, ElementsAre(5));
    EXPECT_EQ(next.drafting[i].verified_before.verified(), &device.verified[i]);
    EXPECT_EQ(
        next.selections[0].as_draws()->drafts.verified_before[i].verified(),
        &device.verified[i]);
    EXPECT_EQ(next.selections[0].num_generated_of(i), 2);
  }
}

// Samples that the previous result has ended are dropped, and sums include the
// previous result's.
TEST(RowsAheadTest, ResultsOfRowsThatDidNotWaitAreCompleted) {
  RowsAhead rows;
  VerifiedOnDevice device;
  StepPlan plan = TwoSamples(RequestId{1});
  RowsAhead::Asked asked = rows.Complete(&plan);
  StepPlan next = TwoAhead(RequestId{1});
  RowsAhead::Asked unread = rows.Complete(&next, {&asked, device.drafts});
  Answer(
      &rows, asked,
      AnswerOf(RequestId{1}, {2, 3},
               {{0, 7, -3}, {0, kEos, -4}, {1, 7, -5}, {1, 7, -6}, {1, 8, -7}}))
      .IgnoreError();
  absl::StatusOr<StepResult> result = AnswerOf(
      RequestId{1}, {1, 2}, {{0, 6, -0.5}, {1, 3, -0.25}, {1, 4, -0.5}});
  std::vector<DraftedTokens> drafts(2);
  drafts[0].tokens = {1, 1};
  drafts[1].tokens = {3};
  rows.Advance(drafts, &unread, &result);
  const SelectionResult& answer = result->selections[0];
  EXPECT_THAT(answer.num_tokens, ElementsAre(2));
  EXPECT_THAT(answer.candidates,
              ElementsAre(Candidate{0, 3, -7.25}, Candidate{0, 4, -7.75}));
  EXPECT_THAT(answer.num_drafted, ElementsAre(1));
  // The planner has read the first result when it writes the next rows.
  StepPlan last = TwoAhead(RequestId{1});
  for (DraftSequence& sequence : last.drafting) {
    sequence.generated = {5, 7, 7, 8};
  }
  for (PlanRow& row : last.rows) row.first_position = 8;
  Fill(&rows, &last);
  ASSERT_EQ(last.rows.size(), 1u);
  EXPECT_EQ(last.rows[0].first_position, 9);
  EXPECT_THAT(last.tokens, ElementsAre(4));
  EXPECT_THAT(last.selections[0].cum_log_probs, ElementsAre(-7.75));
  EXPECT_THAT(last.selections[0].as_draws()->samples, ElementsAre(4));
}

// Also if the result before has ended one of them.
TEST(RowsAheadTest, RowsThatDoNotWaitFollowOthersThatDidNot) {
  RowsAhead rows;
  VerifiedOnDevice device;
  VerifiedOnDevice next_device;
  StepPlan plan = TwoSamples(RequestId{1});
  RowsAhead::Asked asked = rows.Complete(&plan);
  StepPlan next = TwoAhead(RequestId{1});
  const RowsAhead::Asked unread = rows.Complete(&next, {&asked, device.drafts});
  Answer(
      &rows, asked,
      AnswerOf(RequestId{1}, {1, 2}, {{0, kEos, -3}, {1, 7, -5}, {1, 8, -6}}))
      .IgnoreError();
  StepPlan last = TwoAhead(RequestId{1});
  last.drafting.erase(last.drafting.begin());  // as the planner writes it now
  const RowsAhead::Unread before = {&unread, next_device.drafts};
  ASSERT_TRUE(RowsAhead::CanFollow(last, before));
  rows.Complete(&last, before);
  EXPECT_EQ(last.drafting[0].verified_before.verified(),
            &next_device.verified[1]);
}

TEST(RowsAheadTest, RowsThatDependOnTheResultWait) {
  const auto can_follow =
      [](const std::function<void(StepPlan*)>& change,
         const std::function<void(VerifiedOnDevice*)>& change_drafts) {
        RowsAhead rows;
        VerifiedOnDevice device;
        StepPlan plan = TwoSamples(RequestId{1});
        const RowsAhead::Asked asked = rows.Complete(&plan);
        change_drafts(&device);
        StepPlan next = TwoAhead(RequestId{1});
        change(&next);
        return RowsAhead::CanFollow(next, {&asked, device.drafts});
      };
  const auto as_it_is = [](auto*) {};
  const auto with = [&](const std::function<void(ScoreProcessors*)>& change) {
    return can_follow(
        [&](StepPlan* plan) {
          auto params = std::make_shared<SelectionParams>();
          change(&params->processors);
          for (DraftSequence& sequence : plan->drafting) {
            sequence.params = params;
          }
        },
        as_it_is);
  };
  EXPECT_TRUE(can_follow(as_it_is, as_it_is));
  // A draft that the host has waited for, or that does not exist.
  EXPECT_FALSE(can_follow(as_it_is, [](VerifiedOnDevice* device) {
    device->drafts[1].pending = {};
  }));
  EXPECT_FALSE(with([](auto* p) { p->frequency_penalty = 0.5; }));
  EXPECT_FALSE(with([](auto* p) { p->forced_last_tokens = {kEos}; }));
  // Two to six tokens precede one that the step draws: 1 and 2 more, and 2
  // drafts.
  for (const int min_new_tokens : {3, 4, 5, 6}) {
    EXPECT_FALSE(with([&](auto* p) { p->min_new_tokens = min_new_tokens; }));
  }
  for (const int min_new_tokens : {0, 1, 2, 7, 20}) {
    EXPECT_TRUE(with([&](auto* p) { p->min_new_tokens = min_new_tokens; }))
        << min_new_tokens;
  }
}

// A result with too few entries is of no request.
TEST(RowsAheadTest, ResultsOfOtherPlansAreOfNoRequest) {
  RowsAhead rows;
  StepPlan plan = TwoAhead(RequestId{1});
  plan.continuations.push_back({.request = RequestId{3}});
  EXPECT_THAT(Answer(&rows, rows.Complete(&plan), StepResult())->selections,
              IsEmpty());
}

}  // namespace
}  // namespace espalier::testing
