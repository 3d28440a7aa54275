#include "beam/sequence_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "beam/strategy/beam_strategy.h"
#include "tests/beam/group_driver.h"
#include "tests/beam/search_alone.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::GroupDriver;
using ::espalier::testing::StatusIs;
using ::espalier::testing::ToyModelOptions;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Request MakeRequest(std::vector<TokenId> prompt, int64_t num_beams,
                    int64_t max_new_tokens) {
  Request request;
  request.prompt_tokens = std::move(prompt);
  request.params.num_beams = num_beams;
  request.params.num_return_sequences = num_beams;
  request.params.max_new_tokens = max_new_tokens;
  request.params.eos_token_id = std::vector<int64_t>();
  return request;
}

// A group for itself on a pool of 20 pages of 4 tokens; the test answers.
class SequenceGroupTest : public ::testing::Test {
 protected:
  SequenceGroup MakeGroup(const Request& request) {
    return SequenceGroup(RequestId{7}, PreparedRequest(request), &pool_, &ids_);
  }

  // Plans a step of the group, with the forks and releases that the last
  // Advance() has left.
  StepPlan Plan(SequenceGroup& group, int max_tokens = 100) {
    StepPlan plan = std::move(next_);
    next_ = StepPlan();
    EXPECT_OK(group.PlanStep(max_tokens, &plan));
    return plan;
  }
  absl::Status Answer(SequenceGroup& group, SmallVector<Candidate> candidates) {
    return group.Advance({RequestId{7}, std::move(candidates)}, &next_);
  }

  PagePool pool_{20, 4};
  SequenceIdSource ids_;
  StepPlan next_;
};

std::vector<SequenceId> SequencesOf(const StepPlan& plan) {
  std::vector<SequenceId> sequences;
  for (const PlanRow& row : plan.rows) sequences.push_back(row.sequence);
  return sequences;
}

TEST_F(SequenceGroupTest, APromptIsFedInChunksAndItsLastTokenSelects) {
  SequenceGroup group = MakeGroup(MakeRequest({5, 6, 7, 8, 9}, 2, 3));
  EXPECT_TRUE(group.prefilling());
  EXPECT_EQ(group.num_pending_tokens(), 5);

  StepPlan plan = Plan(group, 2);
  EXPECT_THAT(plan.tokens, ElementsAre(5, 6));
  EXPECT_EQ(plan.rows.at(0).first_position, 0);
  EXPECT_EQ(plan.rows.at(0).num_logits, 0);
  EXPECT_EQ(plan.num_logits, 0);
  EXPECT_THAT(plan.selections, IsEmpty());
  EXPECT_EQ(group.num_pending_tokens(), 3);

  plan = Plan(group, 2);
  EXPECT_THAT(plan.tokens, ElementsAre(7, 8));
  EXPECT_EQ(plan.rows.at(0).first_position, 2);
  EXPECT_THAT(plan.selections, IsEmpty());
  EXPECT_THAT(plan.page_indices, SizeIs(1));

  plan = Plan(group, 2);
  EXPECT_THAT(plan.tokens, ElementsAre(9));
  EXPECT_EQ(plan.rows.at(0).first_position, 4);
  EXPECT_EQ(plan.rows.at(0).num_logits, 1);
  EXPECT_THAT(plan.page_indices, SizeIs(2));
  EXPECT_FALSE(group.prefilling());
  ASSERT_THAT(plan.selections, SizeIs(1));
  EXPECT_EQ(plan.selections[0].request, RequestId{7});
  EXPECT_EQ(plan.selections[0].num_rows, 1);
  EXPECT_EQ(plan.selections[0].num_candidates(), 4);
}

TEST_F(SequenceGroupTest, RowsFollowWhatThePlanAlreadyHas) {
  SequenceGroup group = MakeGroup(MakeRequest({5, 6}, 2, 3));
  StepPlan plan;
  plan.rows.push_back({.sequence = {99}, .num_tokens = 3, .num_logits = 2});
  plan.tokens = {1, 2, 3};
  plan.num_logits = 2;
  plan.page_indptr = {0, 1};
  plan.page_indices = {PageId{19}};
  ASSERT_OK(group.PlanStep(100, &plan));
  EXPECT_EQ(plan.rows.at(1).first_token, 3);
  EXPECT_EQ(plan.rows.at(1).first_logits, 2);
  EXPECT_EQ(plan.num_logits, 3);
  EXPECT_THAT(plan.page_indptr, ElementsAre(0, 1, 2));
  EXPECT_EQ(plan.selections.at(0).first_logits, 2);
}

// A group shares its selection with the plan, and must copy it before it
// changes it.
TEST_F(SequenceGroupTest, APlanThatIsKeptStaysAsItWas) {
  SequenceGroup group = MakeGroup(MakeRequest({5, 6, 7}, 2, 4));
  const StepPlan prompt = Plan(group);
  ASSERT_OK(Answer(group, {{0, 1, -1}, {0, 2, -2}}));
  const StepPlan first = Plan(group);
  ASSERT_OK(Answer(group, {{1, 3, -3}, {0, 4, -4}}));
  const StepPlan second = Plan(group);
  EXPECT_EQ(prompt.selections.at(0).num_rows, 1);
  EXPECT_EQ(first.selections.at(0).num_generated, 1);
  EXPECT_THAT(first.selections.at(0).cum_log_probs, ElementsAre(-1, -2));
  EXPECT_THAT(first.selections.at(0).slots, ElementsAre(0, 1));
  EXPECT_EQ(second.selections.at(0).num_generated, 2);
  EXPECT_THAT(second.selections.at(0).cum_log_probs, ElementsAre(-3, -4));
  EXPECT_THAT(second.selections.at(0).slots, ElementsAre(1, 0));
}

TEST_F(SequenceGroupTest, BeamsAreRowsInRankOrderThatFeedTheirLastToken) {
  SequenceGroup group = MakeGroup(MakeRequest({5, 6, 7}, 3, 4));
  const SequenceId first = Plan(group).rows.at(0).sequence;
  ASSERT_OK(Answer(group, {{0, 1, -1}, {0, 2, -2}, {0, 3, -3}}));
  EXPECT_EQ(group.num_pending_tokens(), 3);
  StepPlan plan = Plan(group);
  const std::vector<SequenceId> rows = SequencesOf(plan);
  EXPECT_THAT(plan.tokens, ElementsAre(1, 2, 3));
  EXPECT_EQ(rows.at(0), first);
  EXPECT_THAT(plan.forks, ElementsAre(SequenceFork{first, rows.at(1)},
                                      SequenceFork{first, rows.at(2)}));
  EXPECT_THAT(plan.finished, IsEmpty());
  EXPECT_THAT(plan.selections.at(0).cum_log_probs, ElementsAre(-1, -2, -3));

  // Beam 2 has two children and beam 1 one; beam 0 is pruned.
  ASSERT_OK(Answer(group, {{2, 4, -4}, {1, 5, -5}, {2, 6, -6}}));
  plan = Plan(group);
  EXPECT_THAT(plan.tokens, ElementsAre(4, 5, 6));
  EXPECT_THAT(plan.finished, ElementsAre(first));
  ASSERT_THAT(plan.forks, SizeIs(1));
  EXPECT_EQ(plan.forks[0].parent, rows[2]);
  EXPECT_THAT(SequencesOf(plan),
              ElementsAre(rows[2], rows[1], plan.forks[0].child));
  for (const PlanRow& row : plan.rows) EXPECT_EQ(row.first_position, 4);
}

TEST_F(SequenceGroupTest, TwinsCopyTheTailAndTheBeamInItsSlotWritesInPlace) {
  SequenceGroup group = MakeGroup(MakeRequest({5, 6, 7}, 3, 4));
  const PageId tail = Plan(group).page_indices.at(0);
  ASSERT_OK(Answer(group, {{0, 1, -1}, {0, 2, -2}, {0, 3, -3}}));
  const StepPlan plan = Plan(group);
  EXPECT_THAT(plan.row_pages(0), ElementsAre(tail));
  ASSERT_THAT(plan.page_copies, SizeIs(2));
  for (const PageCopy& copy : plan.page_copies) {
    EXPECT_EQ(copy.from, tail);
    EXPECT_EQ(copy.num_tokens, 3);
  }
}

TEST_F(SequenceGroupTest, ABeamThatEndsWithoutSuccessorFreesItsSlotAndPages) {
  SequenceGroup group = MakeGroup(MakeRequest({5, 6, 7, 8}, 3, 9));
  Plan(group);
  ASSERT_OK(Answer(group, {{0, 1, -1}, {0, 2, -2}, {0, 3, -3}}));
  const std::vector<SequenceId> rows = SequencesOf(Plan(group));
  EXPECT_EQ(pool_.num_held(), 4);

  ASSERT_OK(Answer(group, {{1, 4, -4}}));
  EXPECT_EQ(pool_.num_held(), 2);
  EXPECT_THAT(group.pages().Tables(), SizeIs(1));
  StepPlan plan = Plan(group);
  EXPECT_THAT(plan.finished, ElementsAre(rows.at(0), rows.at(2)));
  EXPECT_THAT(SequencesOf(plan), ElementsAre(rows.at(1)));

  ASSERT_OK(Answer(group, {{0, 5, -5}, {0, 6, -6}}));
  plan = Plan(group);
  EXPECT_THAT(plan.finished, IsEmpty());
  EXPECT_THAT(plan.forks, SizeIs(1));
  EXPECT_THAT(group.pages().Tables(), SizeIs(2));
}

TEST_F(SequenceGroupTest, HistoriesAreFilledIfProcessorsNeedThem) {
  Request request = MakeRequest({5, 6}, 2, 4);
  request.params.repetition_penalty = 1.5;
  SequenceGroup group = MakeGroup(request);
  EXPECT_THAT(Plan(group).selections.at(0).histories, ElementsAre(IsEmpty()));
  ASSERT_OK(Answer(group, {{0, 1, -1}, {0, 2, -2}}));
  Plan(group);
  ASSERT_OK(Answer(group, {{1, 3, -3}, {0, 4, -4}}));
  const StepPlan plan = Plan(group);
  const SelectionParams& params = *plan.selections.at(0).params;
  EXPECT_EQ(params.processors.repetition_penalty, 1.5f);
  EXPECT_THAT(params.edits->prompt(), ElementsAre(5, 6));
  EXPECT_THAT(plan.selections.at(0).histories,
              ElementsAre(ElementsAre(2, 3), ElementsAre(1, 4)));
}

TEST_F(SequenceGroupTest, HistoriesAreLeftOutIfNothingNeedsThem) {
  Request request = MakeRequest({5, 6}, 2, 4);
  SequenceGroup plain = MakeGroup(request);
  StepPlan plan = Plan(plain);
  EXPECT_THAT(plan.selections.at(0).histories, IsEmpty());
  request.params.suppress_tokens = {3};
  SequenceGroup banning = MakeGroup(request);
  plan = Plan(banning);
  EXPECT_THAT(plan.selections.at(0).params->processors.suppress_tokens,
              ElementsAre(3));
  EXPECT_THAT(plan.selections.at(0).histories, IsEmpty());
}

TEST_F(SequenceGroupTest, AtItsEndEverythingIsReleasedAndNamed) {
  SequenceGroup group = MakeGroup(MakeRequest({5, 6}, 2, 2));
  Plan(group);
  ASSERT_OK(Answer(group, {{0, 1, -1}, {0, 2, -2}}));
  const std::vector<SequenceId> rows = SequencesOf(Plan(group));
  ASSERT_OK(Answer(group, {{1, 3, -3}, {0, 4, -4}, {0, 5, -5}}));
  EXPECT_TRUE(group.done());
  EXPECT_THAT(next_.finished, ElementsAre(rows.at(0), rows.at(1)));
  EXPECT_THAT(next_.forks, IsEmpty());
  EXPECT_EQ(pool_.num_held(), 0);
  const Result result = group.TakeResult();
  EXPECT_THAT(result.hypotheses.at(0).tokens, ElementsAre(2, 3));
  EXPECT_EQ(result.usage.num_prompt_tokens, 2);
  EXPECT_EQ(result.usage.num_generated_tokens, 4);
  EXPECT_EQ(result.usage.num_steps, 2);
}

TEST_F(SequenceGroupTest, OptionsThatLeaveNoTokenAreNamed) {
  Request request = MakeRequest({5, 6}, 2, 4);
  request.params.suppress_tokens = {1};
  request.params.bad_words_ids = {{2}};
  request.params.no_repeat_ngram_size = 1;
  SequenceGroup group = MakeGroup(std::move(request));
  Plan(group);
  EXPECT_THAT(
      Answer(group, {}),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               "no token is possible after 0 generated tokens: "
               "suppress_tokens, bad_words_ids (or bad_words) and "
               "no_repeat_ngram_size leave none to which the model gives a "
               "chance, unless its logits are NaN"));
}

TEST_F(SequenceGroupTest, AnErrorOfTheStrategyEndsTheGroupAndReleasesItsPages) {
  SequenceGroup group = MakeGroup(MakeRequest({5, 6}, 2, 4));
  Plan(group);
  ASSERT_OK(Answer(group, {{0, 1, -1}, {0, 2, -2}}));
  const std::vector<SequenceId> rows = SequencesOf(Plan(group));
  EXPECT_THAT(Answer(group, {}),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("after 1 generated token: the model gives "
                                 "every token probability 0, or NaN")));
  EXPECT_TRUE(group.done());
  EXPECT_THAT(next_.finished, ElementsAre(rows.at(0), rows.at(1)));
  EXPECT_EQ(pool_.num_held(), 0);
  EXPECT_THAT(group.TakeResult().hypotheses, IsEmpty());
}

TEST_F(SequenceGroupTest, AGroupThatNeverRanHasNoSequencesToEnd) {
  SequenceGroup group = MakeGroup(MakeRequest({5, 6}, 2, 4));
  group.Drop(&next_);
  EXPECT_THAT(next_.finished, IsEmpty());
}

TEST_F(SequenceGroupTest, AnEmptyPoolLeavesThePlanUnchanged) {
  SequenceGroup group = MakeGroup(MakeRequest({5, 6, 7}, 3, 4));
  Plan(group);
  ASSERT_OK(Answer(group, {{0, 1, -1}, {0, 2, -2}, {0, 3, -3}}));
  std::vector<PageRef> thief;  // leaves one page for the two tail copies
  while (pool_.num_free() > 1) thief.push_back(*pool_.Allocate());
  StepPlan plan = std::move(next_);
  EXPECT_THAT(group.PlanStep(100, &plan),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "need 1 pages, 0 available"));
  EXPECT_THAT(plan.rows, IsEmpty());
  EXPECT_THAT(plan.tokens, IsEmpty());
  EXPECT_THAT(plan.page_copies, IsEmpty());
  EXPECT_THAT(plan.selections, IsEmpty());
  group.Drop(&plan);
  EXPECT_EQ(pool_.num_held(), thief.size());
  EXPECT_THAT(plan.finished, SizeIs(3));
}

std::vector<std::vector<PageId>> PagesOf(const SequenceGroup& group) {
  std::vector<std::vector<PageId>> tables;
  for (const PageTable* table : group.pages().Tables()) {
    tables.emplace_back();
    for (const PageRef& page : table->pages()) {
      tables.back().push_back(page.id());
    }
  }
  return tables;
}

TEST_F(SequenceGroupTest, AheadOfAnAnswerEverySlotHasAPageToWriteInto) {
  SequenceGroup group = MakeGroup(MakeRequest({5, 6, 7, 8, 9, 10}, 3, 9));
  EXPECT_EQ(Plan(group).selections.at(0).num_slots, 3);
  ASSERT_TRUE(group.can_plan());
  StepPlan plan = Plan(group);
  EXPECT_THAT(plan.rows, IsEmpty());
  ASSERT_THAT(plan.continuations, SizeIs(1));
  GroupContinuation ahead = plan.continuations[0];
  EXPECT_EQ(ahead.request, RequestId{7});
  EXPECT_EQ(ahead.position, 6);
  EXPECT_EQ(ahead.num_candidates, 6);
  EXPECT_EQ(ahead.num_generated, 1);
  // Slot 0 continues in the prompt's second page.
  EXPECT_THAT(ahead.tail_pages, ElementsAre(PageId{1}, PageId{2}, PageId{3}));
  EXPECT_FALSE(group.can_plan());

  ASSERT_OK(Answer(group, {{0, 1, -1}, {0, 2, -2}, {0, 3, -3}}));
  EXPECT_THAT(next_.forks, IsEmpty());
  EXPECT_EQ(group.pages().num_tail_copies_ahead(), 2);
  EXPECT_THAT(PagesOf(group), ElementsAre(ElementsAre(PageId{0}, PageId{1}),
                                          ElementsAre(PageId{0}, PageId{2}),
                                          ElementsAre(PageId{0}, PageId{3})));
  EXPECT_THAT(group.pages().Tails(), IsEmpty());

  // The next step's tails are the same; slot 1 changes hands.
  ahead = Plan(group).continuations.at(0);
  EXPECT_EQ(ahead.position, 7);
  EXPECT_THAT(ahead.tail_pages, ElementsAre(PageId{1}, PageId{2}, PageId{3}));
  EXPECT_THAT(group.pages().Tails(), IsEmpty());  // all are in their tables
  ASSERT_OK(Answer(group, {{2, 4, -4}, {2, 5, -5}, {0, 6, -6}}));
  EXPECT_EQ(group.pages().num_tail_copies_ahead(), 1);

  // A page begins: fresh tails, and a forked child shares its parent's
  // full page.
  ahead = Plan(group).continuations.at(0);
  EXPECT_EQ(ahead.position, 8);
  EXPECT_THAT(ahead.tail_pages, ElementsAre(PageId{4}, PageId{5}, PageId{6}));
  ASSERT_OK(Answer(group, {{0, 1, -7}, {0, 2, -8}}));
  EXPECT_EQ(group.pages().num_tail_copies_ahead(), 0);
  EXPECT_THAT(PagesOf(group),
              ElementsAre(ElementsAre(PageId{0}, PageId{3}, PageId{4}),
                          ElementsAre(PageId{0}, PageId{3}, PageId{6})));
  EXPECT_THAT(group.pages().Tails(), SizeIs(1));  // slot 1 waits for a beam

  // Without a step ahead everything is as ever.
  ASSERT_OK(Answer(group, {{1, 1, -9}, {0, 2, -10}, {1, 3, -11}}));
  EXPECT_THAT(group.pages().Tails(), IsEmpty());
  plan = Plan(group);
  EXPECT_THAT(plan.rows, SizeIs(3));
  EXPECT_THAT(plan.page_copies, SizeIs(1));
  EXPECT_THAT(plan.selections.at(0).slots, ElementsAre(0, 2, 1));
}

TEST_F(SequenceGroupTest, NoStepIsPlannedAheadOfTheLastToken) {
  SequenceGroup group = MakeGroup(MakeRequest({5, 6}, 2, 3));
  Plan(group);
  ASSERT_TRUE(group.can_plan());
  Plan(group);
  ASSERT_OK(Answer(group, {{0, 1, -1}, {0, 2, -2}}));
  ASSERT_TRUE(group.can_plan());  // the third token
  Plan(group);
  ASSERT_OK(Answer(group, {{0, 1, -1}, {0, 2, -2}}));
  EXPECT_FALSE(group.can_plan());
  ASSERT_OK(Answer(group, {{0, 1, -1}, {0, 2, -2}}));
  EXPECT_TRUE(group.done());
  SequenceGroup one_token = MakeGroup(MakeRequest({5, 6}, 2, 1));
  EXPECT_EQ(Plan(one_token).selections.at(0).num_slots, 1);
  EXPECT_FALSE(one_token.can_plan());
}

TEST_F(SequenceGroupTest, ProcessorsDoNotKeepAGroupFromGoingAhead) {
  Request request = MakeRequest({5, 6}, 2, 4);
  request.params.suppress_tokens = {3};
  SequenceGroup banning = MakeGroup(request);
  Plan(banning);
  ASSERT_TRUE(banning.can_plan());
  EXPECT_THAT(
      Plan(banning).continuations.at(0).params->processors.suppress_tokens,
      ElementsAre(3));
  request.params.no_repeat_ngram_size = 2;
  SequenceGroup with_history = MakeGroup(request);
  EXPECT_THAT(Plan(with_history).selections.at(0).histories,
              ElementsAre(IsEmpty()));
  ASSERT_TRUE(with_history.can_plan());
  const StepPlan ahead = Plan(with_history);
  EXPECT_EQ(ahead.continuations.at(0).params->processors.no_repeat_ngram_size,
            2);
}

TEST_F(SequenceGroupTest, TheWorstCaseOfEditsIsWhatAllRowsShareAndWhatEachHas) {
  Request request = MakeRequest({5, 6}, 2, 4);
  request.params.suppress_tokens = {3, 4};
  EXPECT_EQ(WorstCaseEdits(PreparedRequest(request), 1000), 2);
  request.params.repetition_penalty = 2.0;
  // Two beams that have generated three tokens.
  EXPECT_EQ(WorstCaseEdits(PreparedRequest(request), 1000), 2 + 2 * (2 + 5));
  request.params.bad_words_ids = {{7, 8, 9}};
  EXPECT_EQ(WorstCaseEdits(PreparedRequest(request), 1000),
            3 + 2 * (3 + 5) + 3);
}

// Two beams, of 40 sequences of one token.
TEST_F(SequenceGroupTest, LongListsOfAllowedTokensMayTakeNoEdits) {
  Request request = MakeRequest({5, 6}, 2, 4);
  std::vector<std::vector<int64_t>> sequences;
  for (int64_t token = 10; token < 50; ++token) sequences.push_back({token});
  request.params.allowed_sequences.emplace(std::move(sequences));
  request.params.suppress_tokens = {3, 4};
  const int64_t all = WorstCaseEdits(PreparedRequest(request), 1000);
  EXPECT_GE(all, 40);
  EXPECT_EQ(WorstCaseEdits(PreparedRequest(request), 1000, 7), 2 * 7 + 2);
  EXPECT_EQ(WorstCaseEdits(PreparedRequest(request), 1000, 500), all + 2);
}

TEST_F(SequenceGroupTest, DroppedAheadOfItsAnswersAGroupHoldsNothing) {
  SequenceGroup group = MakeGroup(MakeRequest({5, 6, 7, 8, 9, 10}, 3, 9));
  Plan(group);
  Plan(group);
  ASSERT_OK(Answer(group, {{0, 1, -1}, {0, 2, -2}}));
  Plan(group);
  EXPECT_GT(pool_.num_held(), 0);
  group.Drop(&next_);
  EXPECT_THAT(next_.ended, ElementsAre(RequestId{7}));
  EXPECT_EQ(pool_.num_held(), 0);
  EXPECT_FALSE(group.can_plan());
}

// A second strategy, in step with the group, has every beam's parent.
TEST(SequenceGroupSlotsTest, TheFirstChildOfABeamKeepsItsSequence) {
  ToyModelOptions options = {.vocab_size = 9, .eos_token_ids = {0}};
  for (options.seed = 0; options.seed < 30; ++options.seed) {
    Request request = MakeRequest({1, 2, 3, 4}, 5, 12);
    request.params.eos_token_id = {0};
    BeamStrategy strategy(request.params);
    GroupDriver driver(options);
    ASSERT_OK(driver.Add(request, 100));
    ASSERT_OK(driver.Step());
    while (!driver.done()) {
      const std::vector<SequenceId> before = SequencesOf(driver.last_plan());
      const SmallVector<Candidate> candidates =
          driver.last_result().selections.at(0).candidates;
      ASSERT_OK(
          strategy.Advance(SelectionResult{.candidates = candidates}, nullptr));
      const std::span<const Continuation> beams = strategy.continuations();
      ASSERT_OK(driver.Step());
      const StepPlan& plan = driver.last_plan();
      const std::vector<SequenceId> after = SequencesOf(plan);
      ASSERT_EQ(after.size(), beams.size());
      std::set<int> parents;
      size_t num_forks = 0;
      for (size_t rank = 0; rank < beams.size(); ++rank) {
        const SequenceId parent = before[beams[rank].parent_rank];
        if (parents.insert(beams[rank].parent_rank).second) {
          EXPECT_EQ(after[rank], parent);
        } else {
          EXPECT_EQ(plan.forks.at(num_forks++),
                    (SequenceFork{parent, after[rank]}));
        }
      }
      EXPECT_EQ(plan.forks.size(), num_forks);
      EXPECT_EQ(plan.finished.size(), before.size() - parents.size());
      for (const SequenceId pruned : plan.finished) {
        EXPECT_THAT(after, ::testing::Not(::testing::Contains(pruned)));
      }
    }
  }
}

}  // namespace
}  // namespace espalier
