#include "beam/strategy/selection_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "beam/strategy/make_strategy.h"
#include "exec_request/step_plan.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(DistinctEosTokenIdsTest, AreSortedAndEachOnce) {
  GenerationParams params;
  params.eos_token_id = {7, 2, 7, 5, 2};
  EXPECT_THAT(DistinctEosTokenIds(params), ElementsAre(2, 5, 7));
  params.eos_token_id = std::vector<int64_t>();
  EXPECT_THAT(DistinctEosTokenIds(params), IsEmpty());
}

// Scheduler and group go by KindOf; the strategy writes the selection.
TEST(KindOfTest, IsTheKindThatTheStrategySelectsBy) {
  using Change = std::function<void(GenerationParams*)>;
  const std::pair<Change, SelectionKind> cases[] = {
      {[](auto*) {}, SelectionKind::kDraws},
      {[](auto* params) { params->do_sample = true; }, SelectionKind::kDraws},
      {[](auto* params) { params->num_beams = 4; }, SelectionKind::kBeams},
      {[](auto* params) {
         params->num_beams = 4;
         params->num_beam_groups = 2;
         params->diversity_penalty = 0.5;
       },
       SelectionKind::kRows},
      {[](auto* params) {
         params->num_beams = 4;
         params->do_sample = true;
       },
       SelectionKind::kRows},
      {[](auto* params) {
         params->num_beams = 4;
         params->stochastic = true;
       },
       SelectionKind::kRows}};
  for (const auto& [change, kind] : cases) {
    GenerationParams params;
    params.eos_token_id = {2};
    params.seed = 1;
    params.max_new_tokens = 5;
    change(&params);
    EXPECT_EQ(KindOf(params), kind);
    PlanSelection selection;
    MakeStrategy(params, nullptr, nullptr)->DescribeSelection(&selection);
    EXPECT_EQ(selection.kind(), kind);
  }
}

TEST(MakeSelectionParamsTest, RequestsOfOneCallShareWhatIsMadeOfItsLists) {
  GenerationParams call;
  for (int64_t i = 4; i < 100; ++i) {
    call.bad_words_ids.push_back({i});
    call.bad_words_ids.push_back({i, 5});
    call.suppress_tokens.push_back(100 + i);
  }
  call.eos_token_id = {2};
  call.stop_token_ids = {3};
  GenerationParams later = call;
  later.max_new_tokens = 7;
  later.eos_token_id = {2};  // a list of its own, as those of a model are
  const auto first = MakeSelectionParams(call, std::vector<TokenId>{1, 5});
  const auto second = MakeSelectionParams(later, std::vector<TokenId>{1, 6, 7});
  std::vector<TokenEdit> storage;
  const auto edits_of = [&](const auto& selection, int num_generated) {
    return selection->edits->WithoutText(num_generated, 1000, &storage).edits;
  };
  EXPECT_EQ(edits_of(first, 0).size(), 2 * 96u);
  EXPECT_EQ(edits_of(first, 0).data(), edits_of(second, 0).data());
  EXPECT_EQ(first->processors.bad_words.id(),
            second->processors.bad_words.id());
  EXPECT_EQ(first->processors.eos_token_ids.id(),
            second->processors.eos_token_ids.id());
  // With another EOS, and while min_new_tokens bans it, they are others.
  later.eos_token_id = {50};
  later.min_new_tokens = 1;
  const auto third = MakeSelectionParams(later);
  EXPECT_EQ(edits_of(third, 1).size(), 2 * 96u - 1);
  EXPECT_EQ(edits_of(third, 0).size(), 2 * 96u + 1);
}

TEST(MakeSelectionParamsTest, KnowsWhichOptionsReadTheHistory) {
  using Change = std::function<void(GenerationParams*)>;
  const std::pair<Change, bool> cases[] = {
      {[](auto* params) { params->repetition_penalty = 1.5; }, true},
      {[](auto* params) { params->no_repeat_ngram_size = 2; }, true},
      {[](auto* params) {
         params->bad_words_ids = {{3}, {1, 2}};
       },
       true},
      {[](auto* params) {
         params->bad_words_ids = {{3}, {4}};
       },
       false},
      {[](auto* params) { params->suppress_tokens = {4}; }, false},
      {[](auto* params) { params->min_new_tokens = 1; }, false},
  };
  for (const auto& [set, needs_history] : cases) {
    GenerationParams params;
    params.eos_token_id = {2};
    set(&params);
    const auto selection = MakeSelectionParams(params);
    EXPECT_EQ(selection->processors.needs_history(), needs_history);
  }
}

TEST(MakeSelectionParamsTest, EveryOptionArrives) {
  GenerationParams params;
  params.repetition_penalty = 1.25;
  params.no_repeat_ngram_size = 3;
  params.bad_words_ids = {{1, 2}, {3}};
  params.suppress_tokens = {8, 4};
  params.eos_token_id = {5, 2};
  params.min_new_tokens = 6;
  params.forced_bos_token_id = 7;
  params.forced_eos_token_id = {2, 5};
  params.max_new_tokens = 9;
  const auto selection = MakeSelectionParams(params);
  const ScoreProcessors* const processors = &selection->processors;
  EXPECT_EQ(processors->repetition_penalty, 1.25f);
  EXPECT_EQ(processors->no_repeat_ngram_size, 3);
  EXPECT_THAT(processors->bad_words,
              ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
  EXPECT_THAT(processors->suppress_tokens, ElementsAre(8, 4));
  EXPECT_THAT(processors->eos_token_ids, ElementsAre(2, 5));
  EXPECT_EQ(processors->min_new_tokens, 6);
  EXPECT_THAT(processors->forced_first_tokens, ElementsAre(7));
  EXPECT_THAT(processors->forced_last_tokens, ElementsAre(2, 5));
  EXPECT_EQ(processors->max_new_tokens, 9);
}

TEST(SaturateToIntTest, MoreThanIntCountsIsTheMost) {
  EXPECT_EQ(SaturateToInt(5), 5);
  EXPECT_EQ(SaturateToInt(int64_t{1} << 40), std::numeric_limits<int>::max());
}

}  // namespace
}  // namespace espalier
