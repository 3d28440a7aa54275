// Groups that go on with drafts, one call after the other. That their rows are
// those of a planner that has read the answer, drafts_ahead_test.cc shows.
#include "executor/drafts/drafted_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TokenId kEos = 9;

// Two samples after a prompt of four tokens that have generated 5, and feed it
// with two drafts, over pages of two tokens: 0 1 2 3 and 0 1 4 5.
StepPlan TwoSamples(RequestId request) {
  StepPlan plan;
  auto params = std::make_shared<SelectionParams>();
  PlanSelection selection = {.request = request, .params = params};
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
    plan.rows.push_back({.sequence = SequenceId{10 + i},
                         .first_token = 3 * i,
                         .num_tokens = 3,
                         .first_position = 4,
                         .num_logits = 3,
                         .first_logits = 3 * i});
    plan.tokens.insert(plan.tokens.end(), {5, 0, 0});
    for (const int page : {0, 1, 2 + 2 * i, 3 + 2 * i}) {
      plan.page_indices.push_back(PageId{page});
    }
    plan.page_indptr.push_back(static_cast<int>(plan.page_indices.size()));
    plan.drafting.push_back({.request = request,
                             .sample = samples[i],
                             .prompt = prompt,
                             .generated = {5},
                             .num_tokens = 2,
                             .params = params,
                             .verified_by = {i, 0, i}});
  }
  plan.num_logits = 6;
  plan.selections.push_back(std::move(selection));
  return plan;
}

// From position 4 on: page 2 of each.
GroupContinuation TwoDraftsMore(RequestId request) {
  GroupContinuation continuation = {.request = request,
                                    .kind = SelectionKind::kDraws};
  continuation.drafts.num_tokens = 2;
  for (int slot = 0; slot < 2; ++slot) {
    continuation.drafts.slots.push_back(
        {.slot = slot, .first_place = 2, .pages = {}});
    for (int i = 0; i < 3; ++i) {
      continuation.drafts.slots.back().pages.push_back(
          PageId{20 + 10 * slot + i});
    }
  }
  return continuation;
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

DraftedGroups::Asked Answer(DraftedGroups* groups, DraftedGroups::Asked asked,
                            absl::StatusOr<StepResult> answer) {
  groups->Advance(&asked, &answer);
  return asked;
}

TEST(DraftedGroupsTest, SamplesGoOnFromWhereTheirAnswerTakesThem) {
  DraftedGroups groups;
  StepPlan plan = TwoSamples(RequestId{1});
  Answer(&groups, groups.Expand(&plan),
         AnswerOf(RequestId{1}, {2, 1}, {{0, 6, -3}, {0, 7, -4}, {1, 8, -5}}));
  StepPlan next;
  next.continuations.push_back(TwoDraftsMore(RequestId{1}));
  groups.Expand(&next);
  EXPECT_THAT(next.continuations, IsEmpty());
  ASSERT_EQ(next.rows.size(), 2u);
  EXPECT_EQ(next.rows[0].first_position, 6);
  EXPECT_EQ(next.rows[1].first_position, 5);
  EXPECT_EQ(next.rows[0].sequence, SequenceId{10});
  EXPECT_THAT(next.tokens, ElementsAre(7, 0, 0, 8, 0, 0));
  EXPECT_THAT(next.row_pages(0), ElementsAre(PageId{0}, PageId{1}, PageId{30},
                                             PageId{31}, PageId{32}));
  const PlanSelection& selection = next.selections[0];
  EXPECT_THAT(selection.as_draws()->row_num_generated, ElementsAre(3, 2));
  EXPECT_THAT(selection.cum_log_probs, ElementsAre(-4, -5));
  EXPECT_THAT(next.drafting[0].generated, ElementsAre(5, 6, 7));
  EXPECT_EQ(next.drafting[1].sample, 4);
  EXPECT_EQ(next.drafting[1].verified_by.plan_row, 1);
}

// Also by one that was drafted, with others after it.
TEST(DraftedGroupsTest, SamplesThatEndFeedNothing) {
  DraftedGroups groups;
  StepPlan plan = TwoSamples(RequestId{1});
  Answer(&groups, groups.Expand(&plan),
         AnswerOf(RequestId{1}, {3, 1},
                  {{0, 6, -3}, {0, kEos, -4}, {0, 7, -4}, {1, 8, -5}}));
  StepPlan next;
  next.continuations.push_back(TwoDraftsMore(RequestId{1}));
  const DraftedGroups::Asked asked = groups.Expand(&next);
  EXPECT_THAT(next.selections[0].as_draws()->samples, ElementsAre(4));
  EXPECT_THAT(next.selections[0].slots, ElementsAre(0));
  Answer(&groups, asked, AnswerOf(RequestId{1}, {1}, {{0, kEos, -9}}));
  StepPlan last;
  last.continuations.push_back(TwoDraftsMore(RequestId{1}));
  groups.Expand(&last);
  EXPECT_TRUE(last.empty());
  last.ended = {RequestId{1}};
  groups.Expand(&last);
  EXPECT_EQ(groups.num_groups(), 0);
}

// Groups that are not known among them, and plain continuations.
TEST(DraftedGroupsTest, AnswersComeInTheOrderOfThePlan) {
  DraftedGroups groups;
  StepPlan plan = TwoSamples(RequestId{1});
  Answer(&groups, groups.Expand(&plan),
         AnswerOf(RequestId{1}, {1, 1}, {{0, 6, -3}, {1, 8, -5}}));
  StepPlan next = TwoSamples(RequestId{2});
  next.continuations.push_back({.request = RequestId{3}});
  next.continuations.push_back(TwoDraftsMore(RequestId{4}));
  next.continuations.push_back(TwoDraftsMore(RequestId{1}));
  next.continuations.push_back({.request = RequestId{5}});
  const DraftedGroups::Asked asked = groups.Expand(&next);
  ASSERT_EQ(next.selections.size(), 2u);
  ASSERT_EQ(next.continuations.size(), 2u);
  ASSERT_EQ(next.drafting.size(), 4u);
  StepResult result;
  for (const int request : {2, 1, 3, 5}) {
    result.selections.push_back({.request = RequestId{request}});
  }
  std::vector<DraftedTokens> drafts(4);
  drafts[0].tokens = {7};
  drafts[3].tokens = {7, 7};
  asked.Restore(&drafts, &result);
  EXPECT_THAT(drafts, IsEmpty());
  std::vector<int64_t> order;
  for (const SelectionResult& answer : result.selections) {
    order.push_back(answer.request.value);
  }
  EXPECT_THAT(order, ElementsAre(2, 3, 4, 1, 5));
  EXPECT_THAT(result.selections[0].num_drafted, ElementsAre(1, 0));
  EXPECT_THAT(result.selections[3].num_drafted, ElementsAre(0, 2));
  EXPECT_THAT(result.selections[2].num_drafted, IsEmpty());
}

TEST(DraftedGroupsTest, WhereTheDraftModelIsBehindNobodyHasDrafted) {
  DraftedGroups groups;
  StepPlan plan = TwoSamples(RequestId{1});
  Answer(&groups, groups.Expand(&plan),
         AnswerOf(RequestId{1}, {1, 1}, {{0, 6, -3}, {1, 8, -5}}));
  StepPlan next;
  next.continuations.push_back(TwoDraftsMore(RequestId{1}));
  const DraftedGroups::Asked asked = groups.Expand(&next);
  StepResult result = AnswerOf(RequestId{1}, {1, 1}, {{0, 6, -3}, {1, 8, -5}});
  std::vector<DraftedTokens> drafts(2);
  drafts[1].is_behind = true;
  asked.Restore(&drafts, &result);
  EXPECT_THAT(result.selections[0].num_drafted, IsEmpty());
}

TEST(DraftedGroupsTest, GroupsOfWrongAnswersAreForgotten) {
  const absl::StatusOr<StepResult> answers[] = {
      absl::InternalError("no step"), StepResult(),
      AnswerOf(RequestId{1}, {1}, {{0, 6, -3}}),
      AnswerOf(RequestId{1}, {2, 1}, {{0, 6, -3}, {1, 8, -5}}),
      AnswerOf(RequestId{1}, {0, 1}, {{1, 8, -5}})};
  for (const absl::StatusOr<StepResult>& answer : answers) {
    DraftedGroups groups;
    StepPlan plan = TwoSamples(RequestId{1});
    const DraftedGroups::Asked asked = groups.Expand(&plan);
    EXPECT_EQ(groups.num_groups(), 1);
    Answer(&groups, asked, answer);
    EXPECT_EQ(groups.num_groups(), 0);
  }
}

// The drafts of TwoSamples, as a device says what becomes of them.
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

TEST(DraftedGroupsTest, RowsThatDoNotWaitBeginBehindTheDraftsOfThoseBefore) {
  DraftedGroups groups;
  VerifiedOnDevice device;
  StepPlan plan = TwoSamples(RequestId{1});
  const DraftedGroups::Asked asked = groups.Expand(&plan);
  StepPlan next;
  next.continuations.push_back(TwoDraftsMore(RequestId{1}));
  const DraftedGroups::Unread before = {&asked, device.drafts};
  ASSERT_TRUE(groups.CanFollow(next, before));
  groups.Expand(&next, before);
  ASSERT_EQ(next.rows.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(next.rows[i].first_position, 5);
    EXPECT_EQ(next.rows[i].num_tokens, 3);
    EXPECT_EQ(next.row_pages(i).size(), 5u);
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
TEST(DraftedGroupsTest, AnswersToRowsThatDidNotWaitAreCompleted) {
  DraftedGroups groups;
  VerifiedOnDevice device;
  StepPlan plan = TwoSamples(RequestId{1});
  DraftedGroups::Asked asked = groups.Expand(&plan);
  StepPlan next;
  next.continuations.push_back(TwoDraftsMore(RequestId{1}));
  DraftedGroups::Asked unread = groups.Expand(&next, {&asked, device.drafts});
  Answer(&groups, asked,
         AnswerOf(
             RequestId{1}, {2, 3},
             {{0, 7, -3}, {0, kEos, -4}, {1, 7, -5}, {1, 7, -6}, {1, 8, -7}}));
  absl::StatusOr<StepResult> result = AnswerOf(
      RequestId{1}, {1, 2}, {{0, 6, -0.5}, {1, 3, -0.25}, {1, 4, -0.5}});
  groups.Advance(&unread, &result);
  std::vector<DraftedTokens> drafts(2);
  drafts[0].tokens = {1, 1};
  drafts[1].tokens = {3};
  unread.Restore(&drafts, &*result);
  const SelectionResult& answer = result->selections[0];
  EXPECT_THAT(answer.num_tokens, ElementsAre(2));
  EXPECT_THAT(answer.candidates,
              ElementsAre(Candidate{0, 3, -7.25}, Candidate{0, 4, -7.75}));
  EXPECT_THAT(answer.num_drafted, ElementsAre(1));
  // The next rows follow both results.
  StepPlan last;
  last.continuations.push_back(TwoDraftsMore(RequestId{1}));
  groups.Expand(&last);
  ASSERT_EQ(last.rows.size(), 1u);
  EXPECT_EQ(last.rows[0].first_position, 9);
  EXPECT_THAT(last.drafting[0].generated, ElementsAre(5, 7, 7, 8, 3, 4));
  EXPECT_THAT(last.selections[0].as_draws()->samples, ElementsAre(4));
}

// Also where the answer before last has ended one of them.
TEST(DraftedGroupsTest, RowsThatDoNotWaitAreBehindThoseThatDidNotEither) {
  DraftedGroups groups;
  VerifiedOnDevice device;
  VerifiedOnDevice next_device;
  StepPlan plan = TwoSamples(RequestId{1});
  DraftedGroups::Asked asked = groups.Expand(&plan);
  StepPlan next;
  next.continuations.push_back(TwoDraftsMore(RequestId{1}));
  const DraftedGroups::Asked unread =
      groups.Expand(&next, {&asked, device.drafts});
  Answer(
      &groups, asked,
      AnswerOf(RequestId{1}, {1, 2}, {{0, kEos, -3}, {1, 7, -5}, {1, 8, -6}}));
  StepPlan last;
  last.continuations.push_back(TwoDraftsMore(RequestId{1}));
  const DraftedGroups::Unread before = {&unread, next_device.drafts};
  ASSERT_TRUE(groups.CanFollow(last, before));
  groups.Expand(&last, before);
  ASSERT_EQ(last.rows.size(), 1u);
  EXPECT_EQ(last.rows[0].first_position, 7);
  EXPECT_THAT(last.drafting[0].generated, ElementsAre(5, 7, 8));
  EXPECT_EQ(last.drafting[0].verified_before.verified(),
            &next_device.verified[1]);
}

TEST(DraftedGroupsTest, WhereSomethingDependsOnTheAnswerRowsWait) {
  const auto can_follow =
      [](const std::function<void(StepPlan*)>& change,
         const std::function<void(VerifiedOnDevice*)>& change_drafts) {
        DraftedGroups groups;
        VerifiedOnDevice device;
        StepPlan plan = TwoSamples(RequestId{1});
        const DraftedGroups::Asked asked = groups.Expand(&plan);
        change_drafts(&device);
        StepPlan next;
        next.continuations.push_back(TwoDraftsMore(RequestId{1}));
        change(&next);
        return groups.CanFollow(next, {&asked, device.drafts});
      };
  const auto as_it_is = [](auto*) {};
  const auto with = [&](const std::function<void(ScoreProcessors*)>& change) {
    return can_follow(
        [&](StepPlan* plan) {
          auto params = std::make_shared<SelectionParams>();
          change(&params->processors);
          plan->continuations[0].params = params;
        },
        as_it_is);
  };
  EXPECT_TRUE(can_follow(as_it_is, as_it_is));
  // A draft that the host has waited for, or that there is not.
  EXPECT_FALSE(can_follow(as_it_is, [](VerifiedOnDevice* device) {
    device->drafts[1].pending = {};
  }));
  EXPECT_FALSE(with([](auto* p) { p->frequency_penalty = 0.5; }));
  EXPECT_FALSE(with([](auto* p) { p->forced_last_tokens = {kEos}; }));
  // Two to six tokens are there before one that the step draws: 1 and 2 more,
  // and 2 drafts.
  for (const int min_new_tokens : {3, 4, 5, 6}) {
    EXPECT_FALSE(with([&](auto* p) { p->min_new_tokens = min_new_tokens; }));
  }
  for (const int min_new_tokens : {0, 1, 2, 7, 20}) {
    EXPECT_TRUE(with([&](auto* p) { p->min_new_tokens = min_new_tokens; }))
        << min_new_tokens;
  }
}

// A result with too few entries belongs to no request.
TEST(DraftedGroupsTest, ResultsOfOtherPlansAnswerNobody) {
  DraftedGroups groups;
  StepPlan plan;
  plan.continuations.push_back({.request = RequestId{3}});
  plan.continuations.push_back(TwoDraftsMore(RequestId{1}));
  const DraftedGroups::Asked asked = groups.Expand(&plan);
  StepResult result;
  std::vector<DraftedTokens> drafts;
  asked.Restore(&drafts, &result);
  EXPECT_THAT(result.selections, IsEmpty());
}

}  // namespace
}  // namespace espalier::testing
