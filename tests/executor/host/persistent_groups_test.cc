// The example of docs/step.md, "Running ahead", step by step; and the state of
// groups at their beginning and end.
#include "executor/host/persistent_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kPageSize = 4;
constexpr TokenId kEos = 99;
constexpr RequestId kGroup{7};

std::vector<PageId> Pages(std::vector<int> ids) {
  std::vector<PageId> pages;
  for (const int id : ids) pages.push_back(PageId{id});
  return pages;
}

void AddRow(std::vector<TokenId> tokens, int first_position, int num_logits,
            std::vector<int> pages, StepPlan* plan) {
  plan->rows.push_back({.first_token = static_cast<int>(plan->tokens.size()),
                        .num_tokens = static_cast<int>(tokens.size()),
                        .first_position = first_position,
                        .num_logits = num_logits,
                        .first_logits = plan->num_logits});
  plan->tokens.insert(plan->tokens.end(), tokens.begin(), tokens.end());
  plan->num_logits += num_logits;
  for (const PageId page : Pages(pages)) plan->page_indices.push_back(page);
  plan->page_indptr.push_back(static_cast<int>(plan->page_indices.size()));
}

// The end of a prompt of six tokens, `num_slots` slots to come.
StepPlan PromptPlan(int num_slots, RequestId group = kGroup) {
  StepPlan plan;
  AddRow({15, 16}, 4, 1, {0, 1}, &plan);
  PlanSelection selection;
  selection.request = group;
  selection.num_rows = 1;
  selection.choice = BeamSelection{.num_candidates = 2 * num_slots};
  selection.cum_log_probs = {0};
  selection.slots = {0};
  selection.num_slots = num_slots;
  selection.eos_token_ids = {kEos};
  plan.selections = {selection};
  return plan;
}

StepPlan Continuation(int position, std::vector<int> tails) {
  const std::vector<PageId> pages = Pages(tails);
  StepPlan plan;
  plan.continuations.push_back({.request = kGroup,
                                .position = position,
                                .tail_pages = {pages.begin(), pages.end()},
                                .num_candidates = 6,
                                .num_generated = position - 5});
  return plan;
}

StepResult Answer(SmallVector<Candidate> candidates) {
  return {.selections = {{kGroup, std::move(candidates)}},
          .forward_time = {},
          .select_time = {}};
}

std::vector<std::vector<PageId>> Tables(const StepPlan& plan) {
  std::vector<std::vector<PageId>> tables;
  for (size_t row = 0; row < plan.rows.size(); ++row) {
    const auto pages = plan.row_pages(row);
    tables.emplace_back(pages.begin(), pages.end());
  }
  return tables;
}

TEST(PersistentGroupsTest, ABeamKeepsItsSlotAndAForkedChildItsTail) {
  PersistentGroups groups(kPageSize);
  StepPlan plan = PromptPlan(3);
  groups.ExpandContinuations(&plan);
  EXPECT_THAT(plan.rows, SizeIs(1));
  groups.Advance(Answer({{0, 1, -1}, {0, kEos, -2}, {0, 2, -3}, {0, 3, -4}}));

  // Three beams in slots 0, 1 and 2: two forked children copy two tokens of the
  // prompt.
  plan = Continuation(6, {1, 2, 3});
  groups.ExpandContinuations(&plan);
  EXPECT_THAT(plan.page_copies,
              ElementsAre(PageCopy{{1}, {2}, 2}, PageCopy{{1}, {3}, 2}));
  EXPECT_THAT(plan.tokens, ElementsAre(1, 2, 3));
  EXPECT_THAT(Tables(plan),
              ElementsAre(Pages({0, 1}), Pages({0, 2}), Pages({0, 3})));
  EXPECT_THAT(plan.continuations, IsEmpty());
  ASSERT_THAT(plan.selections, SizeIs(1));
  EXPECT_EQ(plan.selections[0].request, kGroup);
  EXPECT_EQ(plan.selections[0].num_rows, 3);
  EXPECT_EQ(plan.selections[0].num_candidates(), 6);
  EXPECT_EQ(plan.selections[0].num_generated, 1);
  EXPECT_THAT(plan.selections[0].cum_log_probs, ElementsAre(-1, -3, -4));
  for (const PlanRow& row : plan.rows) EXPECT_EQ(row.first_position, 6);

  // Rank 2 has two children and rank 0 one, so slot 1 is reused.
  groups.Advance(Answer({{2, 4, -5}, {2, 5, -6}, {0, 6, -7}, {1, 7, -8}}));
  plan = Continuation(7, {1, 2, 3});
  groups.ExpandContinuations(&plan);
  EXPECT_THAT(plan.page_copies, ElementsAre(PageCopy{{3}, {2}, 3}));
  EXPECT_THAT(plan.tokens, ElementsAre(4, 5, 6));
  EXPECT_THAT(Tables(plan),
              ElementsAre(Pages({0, 3}), Pages({0, 2}), Pages({0, 1})));

  // At a page boundary a forked child shares the full page, and nothing is
  // copied.
  groups.Advance(Answer({{0, 8, -9}, {0, 9, -10}, {1, 10, -11}}));
  plan = Continuation(8, {4, 5, 6});
  groups.ExpandContinuations(&plan);
  EXPECT_THAT(plan.page_copies, IsEmpty());
  EXPECT_THAT(Tables(plan), ElementsAre(Pages({0, 3, 6}), Pages({0, 3, 4}),
                                        Pages({0, 2, 5})));
}

TEST(PersistentGroupsTest, ASlotWithoutABeamKeepsItsTail) {
  PersistentGroups groups(kPageSize);
  StepPlan plan = PromptPlan(2);
  groups.ExpandContinuations(&plan);
  groups.Advance(Answer({{0, 1, -1}}));  // fewer candidates than slots
  plan = Continuation(6, {1, 2});
  groups.ExpandContinuations(&plan);
  EXPECT_THAT(plan.page_copies, IsEmpty());
  EXPECT_THAT(Tables(plan), ElementsAre(Pages({0, 1})));
  groups.Advance(Answer({{0, 3, -2}, {0, 4, -3}}));
  plan = Continuation(7, {1, 2});
  groups.ExpandContinuations(&plan);
  EXPECT_THAT(plan.page_copies, ElementsAre(PageCopy{{1}, {2}, 3}));
  EXPECT_THAT(Tables(plan), ElementsAre(Pages({0, 1}), Pages({0, 2})));
}

TEST(PersistentGroupsTest, ABeamsHistoryIsItsParentsAndItsToken) {
  PersistentGroups groups(kPageSize);
  StepPlan plan = PromptPlan(2);
  plan.selections.Edit(0).histories = {{11, 12, 13, 14, 15, 16}};
  groups.ExpandContinuations(&plan);
  groups.Advance(Answer({{0, 1, -1}, {0, 2, -2}}));
  plan = Continuation(6, {1, 2});
  groups.ExpandContinuations(&plan);
  EXPECT_THAT(plan.selections[0].histories,
              ElementsAre(ElementsAre(11, 12, 13, 14, 15, 16, 1),
                          ElementsAre(11, 12, 13, 14, 15, 16, 2)));
  groups.Advance(Answer({{1, 3, -3}, {1, kEos, -4}, {1, 4, -5}}));
  plan = Continuation(7, {1, 2});
  groups.ExpandContinuations(&plan);
  EXPECT_THAT(plan.selections[0].histories,
              ElementsAre(ElementsAre(11, 12, 13, 14, 15, 16, 2, 3),
                          ElementsAre(11, 12, 13, 14, 15, 16, 2, 4)));

  // A plan without histories keeps none.
  plan = PromptPlan(2);
  groups.ExpandContinuations(&plan);
  groups.Advance(Answer({{0, 1, -1}}));
  plan = Continuation(6, {1, 2});
  groups.ExpandContinuations(&plan);
  EXPECT_THAT(plan.selections[0].histories, IsEmpty());
}

TEST(PersistentGroupsTest, WrittenOutRowsFollowThePlansOwn) {
  PersistentGroups groups(kPageSize);
  StepPlan plan = PromptPlan(2);
  groups.ExpandContinuations(&plan);
  groups.Advance(Answer({{0, 1, -1}, {0, 2, -2}}));

  plan = Continuation(6, {1, 2});
  AddRow({20, 21, 22}, 0, 0, {9}, &plan);  // a chunk of another's prompt
  const StepPlan other = PromptPlan(1, RequestId{8});
  AddRow({15, 16}, 4, 1, {7, 8}, &plan);
  plan.selections = other.selections;
  groups.ExpandContinuations(&plan);
  EXPECT_THAT(plan.tokens, ElementsAre(20, 21, 22, 15, 16, 1, 2));
  EXPECT_EQ(plan.num_logits, 3);
  EXPECT_EQ(plan.rows[2].first_token, 5);
  EXPECT_EQ(plan.rows[2].first_logits, 1);
  EXPECT_EQ(plan.rows[3].first_logits, 2);
  EXPECT_EQ(plan.selections[1].first_logits, 1);
  EXPECT_THAT(Tables(plan), ElementsAre(Pages({9}), Pages({7, 8}),
                                        Pages({0, 1}), Pages({0, 2})));
}

TEST(PersistentGroupsTest, RowsSetAGroupWhateverItWas) {
  PersistentGroups groups(kPageSize);
  StepPlan plan = PromptPlan(2);
  groups.ExpandContinuations(&plan);
  groups.Advance(Answer({{0, 1, -1}, {0, 2, -2}}));

  plan = PromptPlan(2);
  plan.rows.clear();
  plan.tokens.clear();
  plan.num_logits = 0;
  plan.page_indptr = {0};
  plan.page_indices.clear();
  AddRow({1}, 6, 1, {0, 5}, &plan);
  AddRow({2}, 6, 1, {0, 6}, &plan);
  plan.selections.Edit(0).num_rows = 2;
  plan.selections.Edit(0).slots = {1, 0};  // rank 0 lives in slot 1
  groups.ExpandContinuations(&plan);
  groups.Advance(Answer({{0, 3, -3}, {0, 4, -4}}));
  plan = Continuation(7, {6, 5});
  groups.ExpandContinuations(&plan);
  EXPECT_THAT(plan.page_copies, ElementsAre(PageCopy{{5}, {6}, 3}));
  EXPECT_THAT(Tables(plan), ElementsAre(Pages({0, 5}), Pages({0, 6})));
}

TEST(PersistentGroupsTest, WhereNoBeamGoesOnNothingIsFed) {
  PersistentGroups groups(kPageSize);
  StepPlan plan = PromptPlan(2);
  groups.ExpandContinuations(&plan);
  groups.Advance(Answer({{0, kEos, -1}}));
  for (int step = 0; step < 2; ++step) {
    plan = Continuation(6 + step, {1, 2});
    groups.ExpandContinuations(&plan);
    EXPECT_THAT(plan.rows, IsEmpty());
    EXPECT_THAT(plan.page_copies, IsEmpty());
    ASSERT_THAT(plan.selections, SizeIs(1));
    EXPECT_EQ(plan.selections[0].num_rows, 0);
    groups.Advance(Answer({}));
  }
}

TEST(PersistentGroupsTest, AFailedPlanLosesItsGroupsAndNoOther) {
  PersistentGroups groups(kPageSize);
  StepPlan other = PromptPlan(2, RequestId{8});
  groups.ExpandContinuations(&other);
  groups.Advance({.selections = {{RequestId{8}, {{0, 1, -1}}}},
                  .forward_time = {},
                  .select_time = {}});
  StepPlan plan = PromptPlan(2);
  groups.ExpandContinuations(&plan);
  EXPECT_EQ(groups.num_groups(), 2);
  groups.DiscardFailedStep();
  EXPECT_EQ(groups.num_groups(), 1);
  plan = Continuation(6, {1, 2});
  groups.ExpandContinuations(&plan);
  EXPECT_THAT(plan.rows, IsEmpty());
  ASSERT_THAT(plan.selections, SizeIs(1));
  EXPECT_EQ(plan.selections[0].num_rows, 0);
  groups.Advance(Answer({}));
  EXPECT_EQ(groups.num_groups(), 1);
}

TEST(PersistentGroupsTest, AFailedPlanLeavesTheHistoriesOfOthersAsTheyWere) {
  constexpr RequestId kOther{8};
  PersistentGroups groups(kPageSize);
  StepPlan plan = PromptPlan(2, kOther);
  plan.selections.Edit(0).histories = {{21, 22}};
  groups.ExpandContinuations(&plan);
  groups.Advance({.selections = {{kOther, {{0, 1, -1}, {0, 2, -2}}}},
                  .forward_time = {},
                  .select_time = {}});
  plan = PromptPlan(2);
  plan.selections.Edit(0).histories = {{11, 12}};
  groups.ExpandContinuations(&plan);
  groups.Advance(Answer({{0, 3, -1}, {0, 4, -2}}));
  plan = Continuation(6, {1, 2});
  groups.ExpandContinuations(&plan);
  EXPECT_THAT(plan.selections[0].histories,
              ElementsAre(ElementsAre(11, 12, 3), ElementsAre(11, 12, 4)));
  groups.DiscardFailedStep();

  // The pending continuation of the lost group feeds nothing, and the other
  // group continues.
  plan = Continuation(7, {1, 2});
  plan.continuations.push_back(Continuation(6, {1, 5}).continuations[0]);
  plan.continuations[1].request = kOther;
  groups.ExpandContinuations(&plan);
  EXPECT_THAT(plan.tokens, ElementsAre(1, 2));
  EXPECT_THAT(plan.page_copies, ElementsAre(PageCopy{{1}, {5}, 2}));
  ASSERT_THAT(plan.selections, SizeIs(2));
  EXPECT_THAT(plan.selections[0].histories, IsEmpty());
  EXPECT_THAT(plan.selections[1].histories,
              ElementsAre(ElementsAre(21, 22, 1), ElementsAre(21, 22, 2)));
  groups.Advance({.selections = {{kGroup, {}}, {kOther, {{1, 9, -3}}}},
                  .forward_time = {},
                  .select_time = {}});

  // Rows set the lost one anew, and nothing of its old history is left.
  plan = PromptPlan(2);
  plan.selections.Edit(0).histories = {{31}};
  plan.continuations = Continuation(7, {1, 5}).continuations;
  plan.continuations[0].request = kOther;
  groups.ExpandContinuations(&plan);
  EXPECT_THAT(plan.selections[0].histories, ElementsAre(ElementsAre(31)));
  EXPECT_THAT(plan.selections[1].histories,
              ElementsAre(ElementsAre(21, 22, 2, 9)));
}

TEST(PersistentGroupsTest, AnEndedGroupIsForgotten) {
  PersistentGroups groups(kPageSize);
  StepPlan plan = PromptPlan(2);
  groups.ExpandContinuations(&plan);
  groups.Advance(Answer({{0, 1, -1}}));
  EXPECT_EQ(groups.num_groups(), 1);
  StepPlan ending;
  ending.ended = {kGroup, RequestId{12}};  // one that it never knew
  groups.ExpandContinuations(&ending);
  EXPECT_EQ(groups.num_groups(), 0);
}

}  // namespace
}  // namespace espalier
