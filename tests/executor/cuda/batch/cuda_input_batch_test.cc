// A step's batch in the host's vectors, and how batches are padded.
#include "executor/cuda/batch/cuda_input_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "executor/cuda/step/cuda_step_builder.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr CudaInputBatch::Shape kShape = {
    .vocab_size = 10, .page_size = 4, .max_positions = 80};

CudaGroup Group(int first_slot, int num_slots, int num_shared_pages,
                int position) {
  CudaGroup group;
  group.first_slot = first_slot;
  group.num_slots = num_slots;
  group.num_shared_pages = num_shared_pages;
  group.position = position;
  return group;
}

CudaGroupRequest Ask(int num_candidates) {
  CudaGroupRequest request;
  request.num_candidates = num_candidates;
  static const SelectionParams plain;
  request.params = &plain;
  return request;
}

TEST(CudaInputBatchTest, RowsOfBeamsComeFirstThenPrompts) {
  CudaInputBatch batch(kShape);
  CudaGroup beams = Group(6, 2, 1, 9);
  beams.eos_token_ids = {2, 7};
  EXPECT_EQ(batch.AddBeams(beams, Ask(4))[0].group_idx, 0);
  EXPECT_EQ(batch.AddBeams(Group(3, 1, 5, 70), Ask(1))[0].first_candidate, 4);
  const std::vector<TokenId> tokens = {5, 6, 7};
  EXPECT_EQ(batch.AddPrompt(tokens, 8, 40), 5);
  const int last = batch.AddPrompt(tokens, 0, 11);
  const float cum = 0;
  const std::vector<CudaAnswerPart> parts = batch.AddPromptLogitsRows(
      Group(11, 5, 0, 2), Ask(50), {&last, 1}, {&cum, 1});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].group_idx, 2);
  EXPECT_EQ(parts[0].first_candidate, 5);

  EXPECT_EQ(batch.num_rows, 3);
  EXPECT_EQ(batch.num_tokens(), 9);
  EXPECT_EQ(batch.num_logits_rows(), 4);
  EXPECT_THAT(batch.token_tables, ElementsAre(6, 7, 3, 40, 40, 40, 11, 11, 11));
  EXPECT_THAT(batch.row_groups, ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(batch.prompt_positions, ElementsAre(8, 9, 10, 0, 1, 2));
  EXPECT_THAT(batch.prompt_logits_tokens, ElementsAre(8));
  EXPECT_THAT(batch.eos_token_ids, ElementsAre(2, 7));
  // A row of ten logits has ten candidates at most.
  EXPECT_EQ(batch.selections[2].num_candidates, 10);
  EXPECT_EQ(batch.selections[2].first_row, 3);
  EXPECT_EQ(batch.max_candidates, 10);
}

TEST(CudaInputBatchTest, OnlyGroupsOfSeveralSlotsShareARun) {
  CudaInputBatch batch(kShape);
  batch.AddBeams(Group(0, 1, 2, 9), Ask(1));
  batch.AddBeams(Group(1, 2, 2, 63), Ask(4));
  batch.AddBeams(Group(5, 2, 0, 64), Ask(4));
  ASSERT_EQ(batch.shared_runs.size(), 1u);
  EXPECT_EQ(batch.shared_runs[0].first_query, 1);
  EXPECT_EQ(batch.shared_runs[0].num_queries, 2);
  EXPECT_EQ(batch.shared_runs[0].table, 1);
  EXPECT_EQ(batch.shared_runs[0].kv_end, 8);
  std::vector<int> begins;
  std::vector<int> bounds;
  for (const CudaAttentionRow& row : batch.attention_rows) {
    begins.push_back(row.kv_begin);
    bounds.push_back(row.max_positions);
  }
  EXPECT_THAT(begins, ElementsAre(0, 8, 8, 0, 0));
  EXPECT_THAT(bounds, ElementsAre(64, 64, 64, 80, 80));
}

TEST(CudaInputBatchTest, RowsThatAreDrawnFromOrGetNoiseAreNotSelectedFrom) {
  CudaGroupRequest draws = Ask(1);
  draws.kind = SelectionKind::kDraws;
  const std::vector<int> slots = {0, 1};
  CudaGroupRequest rows = Ask(3);
  rows.kind = SelectionKind::kRows;
  rows.gumbel_top_k = true;
  rows.slots = slots;
  CudaInputBatch batch(kShape);
  batch.AddBeams(Group(0, 2, 0, 5), Ask(4));
  batch.AddBeams(Group(2, 1, 0, 5), draws);
  batch.AddBeams(Group(3, 2, 0, 5), rows);
  batch.AddBeams(Group(5, 1, 0, 5), Ask(2));
  batch.Pad(8, 99);
  EXPECT_THAT(batch.row_groups, ElementsAre(0, 0, 1, 2, 3, 4, -1, -1));
  EXPECT_THAT(batch.select_row_groups,
              ElementsAre(0, 0, -1, -1, -1, 4, -1, -1));
}

TEST(CudaInputBatchTest, RowsWithoutHistoriesShareOneListOfEdits) {
  SelectionParams params;
  params.processors.suppress_tokens = {3, 8};
  CudaGroupRequest request = Ask(4);
  request.params = &params;
  CudaInputBatch batch(kShape);
  batch.AddBeams(Group(0, 3, 0, 5), Ask(6));
  batch.AddBeams(Group(3, 2, 0, 5), request);
  batch.Pad(8, 99);
  EXPECT_EQ(batch.edits.size(), 2u);
  EXPECT_EQ(batch.row_edits[2].end, 0);
  EXPECT_EQ(batch.row_edits[3].end, 2);
  EXPECT_EQ(batch.row_edits[4].begin, 0);
  EXPECT_EQ(batch.row_edits[7].end, 0);
  EXPECT_EQ(batch.row_groups[7], -1);
  EXPECT_EQ(batch.token_tables[7], 99);
  EXPECT_THAT(batch.prompt_tokens, IsEmpty());
}

TEST(CudaInputBatchTest, HistoriesThatAreNotGivenAreForTheDeviceToRead) {
  SelectionParams params;
  params.processors.suppress_tokens = {3, 8};
  params.processors.frequency_penalty = 0.5f;
  params.processors.bad_words = {{1}, {2, 4, 5}};
  CudaGroupRequest request = Ask(4);
  request.params = &params;
  request.num_generated = 2;
  CudaInputBatch::Shape shape = kShape;
  shape.max_edits = 100;
  CudaInputBatch batch(shape);
  batch.AddBeams(Group(0, 1, 0, 5), Ask(2));
  EXPECT_FALSE(batch.has_device_edits());
  batch.AddBeams(Group(1, 2, 0, 5), request);
  batch.Pad(4, 99);
  EXPECT_TRUE(batch.has_edits());
  ASSERT_EQ(batch.edit_params.size(), 1u);
  const CudaEditParams& made = batch.edit_params[0];
  EXPECT_EQ(made.common_begin, 0);
  EXPECT_EQ(made.common_end, 3);
  EXPECT_EQ(made.words_begin, 3);
  EXPECT_EQ(made.words_end, 6);
  EXPECT_EQ(made.num_prompt_tokens, 4);
  std::vector<TokenId> tokens;
  std::vector<bool> banned;
  for (const TokenEdit& edit : batch.edits) {
    tokens.push_back(edit.token);
    banned.push_back(edit.banned);
  }
  EXPECT_THAT(tokens, ElementsAre(1, 3, 8, 2, 4, 5));
  EXPECT_THAT(banned, ElementsAre(true, true, true, false, false, true));
  // Each row has its own space for a vocabulary of ten, allocated from the end.
  std::vector<int> indices;
  for (const CudaEditRow& row : batch.edit_rows) indices.push_back(row.params);
  EXPECT_THAT(indices, ElementsAre(-1, 0, 0, -1));
  EXPECT_EQ(batch.edit_rows[1].begin, 90);
  EXPECT_EQ(batch.edit_rows[2].begin, 80);
  EXPECT_EQ(batch.num_device_edits, 20);
  EXPECT_EQ(batch.row_edits[3].begin, 0);
}

// There the history says nothing; which place it is follows from the number of
// tokens.
TEST(CudaInputBatchTest, ForcedTokensAreOneListWhateverTheHistory) {
  SelectionParams params;
  params.processors.repetition_penalty = 1.5f;
  params.processors.suppress_tokens = {3};
  params.processors.forced_first_tokens = {7};
  params.processors.forced_last_tokens = {2, 6};
  params.processors.max_new_tokens = 9;
  CudaGroupRequest request = Ask(4);
  request.params = &params;
  for (const auto& [num_generated, forced] :
       std::vector<std::pair<int, std::vector<TokenId>>>{
           {0, {7}}, {1, {}}, {7, {}}, {8, {2, 6}}}) {
    request.num_generated = num_generated;
    CudaInputBatch batch(kShape);
    batch.AddBeams(Group(0, 2, 0, 20), request);
    EXPECT_EQ(batch.has_device_edits(), forced.empty()) << num_generated;
    if (forced.empty()) continue;
    std::vector<TokenId> tokens;
    for (const TokenEdit& edit : batch.edits) {
      EXPECT_TRUE(edit.forced);
      tokens.push_back(edit.token);
    }
    EXPECT_EQ(tokens, forced);
    for (const CudaRowEdits& row : batch.row_edits) {
      EXPECT_TRUE(row.is_allow_list);
      EXPECT_EQ(row.begin, 0);
      EXPECT_EQ(row.end, std::ssize(forced));
    }
  }
}

TEST(CudaInputBatchTest, RoomForEditsHoldsAsLongAsWorkListsDo) {
  SelectionParams params;
  params.processors.repetition_penalty = 0.5f;
  CudaGroupRequest request = Ask(4);
  request.params = &params;
  CudaInputBatch::Shape shape = kShape;
  shape.vocab_size = 1000;
  shape.max_edits = 500;
  std::vector<int> begins;
  for (const int position : {5, 6, 63, 64}) {
    CudaInputBatch batch(shape);
    batch.AddBeams(Group(0, 1, 0, position), request);
    begins.push_back(batch.edit_rows[0].begin);
  }
  EXPECT_THAT(begins, ElementsAre(436, 436, 436, 372));
}

TEST(CudaInputBatchTest, EveryLiveRowHasTheEditsOfItsHistory) {
  SelectionParams params;
  params.processors.repetition_penalty = 2.0f;
  const std::vector<std::vector<TokenId>> histories = {{1, 2, 1}, {4}};
  CudaGroupRequest request = Ask(4);
  request.params = &params;
  request.histories = histories;
  CudaInputBatch batch(kShape);
  batch.AddBeams(Group(0, 3, 0, 5), request);
  EXPECT_EQ(batch.edits.size(), 3u);
  EXPECT_EQ(batch.row_edits[0].end, 2);
  EXPECT_EQ(batch.row_edits[1].begin, 2);
  EXPECT_EQ(batch.row_edits[1].repetition_penalty, 2.0f);
  EXPECT_EQ(batch.row_edits[2].begin, batch.row_edits[2].end);
}

SelectionParams ParamsOf(SelectionKind kind) {
  SelectionParams params;
  params.domain = kind == SelectionKind::kDraws ? ScoreDomain::kLogits
                                                : ScoreDomain::kLogProbs;
  return params;
}

TEST(CudaInputBatchTest, RowsThatChooseByThemselvesAreGroupsOfASlot) {
  const SelectionParams params = ParamsOf(SelectionKind::kRows);
  const std::vector<int> slots = {2, 0, 1};  // by rank
  CudaGroupRequest request = {.kind = SelectionKind::kRows,
                              .num_candidates = 4,
                              .params = &params,
                              .slots = slots};
  CudaInputBatch batch(kShape);
  const auto parts = batch.AddBeams(Group(5, 3, 1, 9), request);
  ASSERT_EQ(parts.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(parts[rank].first_rank, rank);
    EXPECT_EQ(parts[rank].group_idx, slots[rank]);
    EXPECT_EQ(parts[rank].first_candidate, 4 * slots[rank]);
    const CudaResidentGroup& group = batch.groups[slots[rank]];
    EXPECT_EQ(group.first_slot, 5 + slots[rank]);
    EXPECT_EQ(group.num_slots, 1);
  }
  EXPECT_THAT(batch.row_groups, ElementsAre(0, 1, 2));
  EXPECT_THAT(batch.token_tables, ElementsAre(5, 6, 7));
  // They read the pages that they share together all the same.
  ASSERT_EQ(batch.shared_runs.size(), 1u);
  EXPECT_EQ(batch.shared_runs[0].num_queries, 3);
}

TEST(CudaInputBatchTest, PromptsThatSharePagesReadThemTogether) {
  CudaInputBatch batch(kShape);
  batch.AddPrompt(std::vector<TokenId>{5}, 9, 3);
  batch.AddPrompt(std::vector<TokenId>{5, 6, 7}, 9, 11);
  batch.AddPrompt(std::vector<TokenId>{8, 9}, 14, 12);
  batch.AddPrompt(std::vector<TokenId>{8, 9}, 14, 13);
  batch.SharePages(1, 5, 8);
  ASSERT_EQ(batch.shared_runs.size(), 1u);
  const CudaSharedPrefix& run = batch.shared_runs[0];
  EXPECT_EQ(run.first_query, 1);
  EXPECT_EQ(run.num_queries, 5);
  EXPECT_EQ(run.table, 11);
  EXPECT_EQ(run.kv_begin, 0);
  EXPECT_EQ(run.kv_end, 8);
  std::vector<int> begins;
  for (const CudaAttentionRow& row : batch.attention_rows) {
    begins.push_back(row.kv_begin);
  }
  EXPECT_THAT(begins, ElementsAre(0, 8, 8, 0));
}

TEST(CudaInputBatchTest, DrawsOfPromptsComeAfterThoseOfTheDevice) {
  SelectionParams params = ParamsOf(SelectionKind::kDraws);
  params.sampling.seed = 5;
  CudaGroupRequest request = {
      .kind = SelectionKind::kDraws, .num_generated = 6, .params = &params};
  CudaInputBatch batch(kShape);
  batch.AddBeams(Group(0, 2, 0, 9), request);
  batch.AddBeams(Group(2, 2, 0, 9), Ask(4));
  const int last = batch.AddPrompt(std::vector<TokenId>{5, 6, 7}, 0, 11);
  const std::vector<int> samples = {0, 1, 2};
  const float cum = 0;
  request.samples = samples;
  request.num_generated = 0;
  const auto parts = batch.AddPromptLogitsRows(Group(4, 3, 0, 2), request,
                                               {&last, 1}, {&cum, 1});
  EXPECT_EQ(batch.num_draws(), 5);
  EXPECT_EQ(batch.num_candidates, 9);
  EXPECT_EQ(batch.max_candidates, 4);
  EXPECT_THAT(batch.row_params, ElementsAre(0, 0, -1, -1, 1));
  ASSERT_EQ(batch.params.size(), 2u);
  EXPECT_EQ(batch.params[0].seed, 5u);
  EXPECT_EQ(batch.groups[0].first_draw, 0);
  EXPECT_EQ(batch.groups[0].num_prompt_tokens, 4);
  EXPECT_EQ(batch.groups[1].first_draw, -1);
  EXPECT_EQ(batch.groups[2].first_draw, 2);
  EXPECT_EQ(batch.groups[2].num_draws, 3);
  EXPECT_EQ(batch.selections[0].num_candidates, 0);
  ASSERT_EQ(batch.prompt_draws.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(batch.prompt_draws[i].row, 4);
    EXPECT_EQ(batch.prompt_draws[i].beam, 0);
    EXPECT_EQ(batch.prompt_draws[i].candidate, parts[0].first_candidate + i);
    EXPECT_EQ(batch.prompt_draws[i].sample, static_cast<uint32_t>(i));
  }
}

// Samples that verify drafts: the second row of logits has reached
// min_new_tokens.
TEST(CudaInputBatchTest, RowsThatDifferDrawForThemselves) {
  SelectionParams params;
  params.processors.suppress_tokens = {1};
  params.processors.eos_token_ids = {7};
  params.processors.min_new_tokens = 5;
  const std::vector<SelectionRow> logits_rows = {
      {.sample = 2, .num_generated = 4},
      {.sample = 2, .draft_idx = 1, .num_generated = 5},
      {.sample = 2, .draft_idx = 2, .num_generated = 6},
      {.row = 1, .sample = 5, .num_generated = 3}};
  CudaGroupRequest request = Ask(1);
  request.kind = SelectionKind::kDraws;
  request.params = &params;
  request.logits_rows = logits_rows;
  CudaInputBatch batch(kShape);
  batch.AddPrompt(std::vector<TokenId>{4, 5, 6}, 8, 0);
  batch.AddPrompt(std::vector<TokenId>{4}, 7, 1);
  const std::vector<int> tokens = {0, 1, 2, 3};
  const std::vector<CudaAnswerPart> parts = batch.AddPromptLogitsRows(
      Group(0, 2, 0, 7), request, tokens, std::vector<float>(4));
  EXPECT_EQ(parts.size(), 1u);
  // Their samples are not beams of the group.
  EXPECT_EQ(batch.groups[0].num_slots, 0);
  EXPECT_EQ(batch.groups[0].num_draws, 4);
  ASSERT_EQ(batch.prompt_draws.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    const CudaDraw& draw = batch.prompt_draws[i];
    EXPECT_EQ(draw.row, i);
    EXPECT_EQ(draw.candidate, i);
    EXPECT_EQ(draw.beam, i);
    EXPECT_EQ(static_cast<int>(draw.sample), logits_rows[i].sample);
    EXPECT_EQ(static_cast<int>(draw.position), logits_rows[i].num_generated);
  }
  // Lists: 1 and 7; 1, of two rows of logits; 1 and 7.
  EXPECT_EQ(batch.edits.size(), 5u);
  EXPECT_EQ(batch.row_edits[1].begin, batch.row_edits[2].begin);
  EXPECT_EQ(batch.row_edits[1].end - batch.row_edits[1].begin, 1);
  EXPECT_EQ(batch.row_edits[3].end - batch.row_edits[3].begin, 2);
}

// Beams that feed paths: each row of logits is a group without a slot, and rows
// with equal edits share a list, but not with another request.
TEST(CudaInputBatchTest, RowsOfPathsAreSelectedForByThemselves) {
  SelectionParams params;
  params.processors.suppress_tokens = {1};
  const std::vector<SelectionRow> logits_rows = {
      {.num_generated = 4}, {.draft_idx = 1, .num_generated = 5}};
  CudaGroupRequest request = Ask(4);
  request.params = &params;
  request.logits_rows = logits_rows;
  CudaInputBatch batch(kShape);
  batch.AddPrompt(std::vector<TokenId>{4, 5}, 8, 0);
  batch.AddPrompt(std::vector<TokenId>{4, 5}, 8, 2);
  for (int i = 0; i < 2; ++i) {
    const std::vector<int> tokens = {2 * i, 2 * i + 1};
    const std::vector<CudaAnswerPart> parts = batch.AddPromptLogitsRows(
        Group(2 * i, 2, 0, 7), request, tokens, std::vector<float>(2));
    ASSERT_EQ(parts.size(), 2u);
    for (int row = 0; row < 2; ++row) {
      const int group_idx = 2 * i + row;
      EXPECT_EQ(parts[row].group_idx, group_idx);
      EXPECT_EQ(parts[row].first_candidate, 4 * group_idx);
      EXPECT_EQ(batch.groups[group_idx].num_slots, 0);
      EXPECT_EQ(batch.selections[group_idx].num_rows, 1);
      EXPECT_EQ(batch.row_edits[group_idx].begin, i);
    }
  }
  EXPECT_EQ(batch.edits.size(), 2u);
}

TEST(CudaInputBatchTest, RowsWithNothingButWhatIsAllowedAreRestricted) {
  const SelectionParams params;
  const std::vector<TokenId> tokens = {1, 4, 7};
  const std::vector<std::span<const TokenId>> allowed = {
      std::span(tokens), std::span(tokens).first(0)};
  CudaGroupRequest request = Ask(4);
  request.allowed = allowed;
  CudaInputBatch batch(kShape);
  batch.AddBeams(Group(0, 2, 0, 5), request);
  EXPECT_TRUE(batch.row_edits[0].is_allow_list);
  EXPECT_EQ(batch.row_edits[0].end, 3);
  EXPECT_TRUE(batch.row_edits[1].is_allow_list);
  EXPECT_EQ(batch.row_edits[1].begin, batch.row_edits[1].end);
  EXPECT_TRUE(batch.has_edits());
}

TEST(CudaInputBatchTest, LongListsAreMasksThatAreSentOnce) {
  SelectionParams params;
  params.allowed_owner = std::make_shared<int>(1);
  params.processors.suppress_tokens = {3};
  std::vector<TokenId> long_list(kMaxListEdits + 1);
  std::iota(long_list.begin(), long_list.end(), 0);
  const std::vector<TokenId> other(long_list.begin(), long_list.end());
  const std::span<const TokenId> all(long_list);
  const std::span<const TokenId> few = std::span(other).first(kMaxListEdits);
  CudaInputBatch::Shape shape = kShape;
  shape.vocab_size = 500;
  shape.first_list_mask = 40;
  CudaListMasks masks(3);
  const std::vector<std::span<const TokenId>> allowed = {all, few, all};
  CudaGroupRequest request = Ask(4);
  request.params = &params;
  request.allowed = allowed;
  CudaInputBatch batch(shape, &masks);
  batch.AddBeams(Group(0, 3, 0, 5), request);
  EXPECT_TRUE(batch.has_masks());
  EXPECT_EQ(batch.row_edits[0].mask, 40);
  EXPECT_EQ(batch.row_edits[0].is_allow_list, 0);
  EXPECT_EQ(batch.row_edits[0].end - batch.row_edits[0].begin, 1);  // a ban
  EXPECT_EQ(batch.row_edits[1].mask, -1);
  EXPECT_TRUE(batch.row_edits[1].is_allow_list);
  EXPECT_EQ(batch.row_edits[2].mask, 40);
  ASSERT_EQ(batch.new_masks.size(), 1u);
  EXPECT_EQ(batch.new_masks[0].mask, 40);
  EXPECT_EQ(batch.new_masks[0].list.data(), all.data());
  // The device has it now, and needs another.
  const std::vector<std::span<const TokenId>> later = {all, other, few};
  request.allowed = later;
  CudaInputBatch next(shape, &masks);
  next.AddBeams(Group(0, 3, 0, 6), request);
  EXPECT_EQ(next.row_edits[0].mask, 40);
  EXPECT_EQ(next.row_edits[1].mask, 41);
  ASSERT_EQ(next.new_masks.size(), 1u);
  EXPECT_EQ(next.new_masks[0].mask, 41);
  EXPECT_EQ(next.mask_rows[0].constraint, -1);
}

TEST(CudaListMasksTest, TheLeastRecentlyUsedMaskMakesRoom) {
  const auto owner = std::make_shared<int>(1);
  const TokenId lists[4] = {};
  CudaListMasks masks(3);
  const auto take = [&](int list) {
    return masks.Take(owner, std::span(&lists[list], 1));
  };
  const int first = take(0).index;
  const int second = take(1).index;
  EXPECT_TRUE(take(2).is_new);
  EXPECT_FALSE(take(0).is_new);
  EXPECT_EQ(take(3).index, second);
  EXPECT_FALSE(take(0).is_new);
  EXPECT_EQ(take(0).index, first);
  EXPECT_TRUE(take(1).is_new);
  masks.Clear();
  for (int list = 0; list < 3; ++list) EXPECT_TRUE(take(list).is_new);
}

// Another constraint's list may be where one was whose constraint is gone, and
// requests for items of one catalogue share its lists.
TEST(CudaListMasksTest, AListIsKnownAsLongAsItsOwnerLives) {
  const TokenId list[2] = {};
  CudaListMasks masks(3);
  auto owner = std::make_shared<int>(1);
  const auto other = std::make_shared<int>(2);
  const int index = masks.Take(owner, list).index;
  EXPECT_FALSE(masks.Take(owner, list).is_new);
  EXPECT_FALSE(masks.Take(other, list).is_new);
  owner.reset();
  EXPECT_TRUE(masks.Take(other, list).is_new);
  EXPECT_FALSE(masks.Take(other, list).is_new);
  EXPECT_TRUE(masks.Take(other, std::span(list).first(1)).is_new);
  // Both are there, as one step may need them.
  EXPECT_NE(masks.Take(other, std::span(list).first(1)).index, index);
  EXPECT_FALSE(masks.Take(other, list).is_new);
}

TEST(CudaInputBatchTest, RowsHavePlacesWhoseMasksTheDeviceFinds) {
  SelectionParams params;
  params.processors.suppress_tokens = {3};
  const std::vector<ConstraintPlace> places = {{5, 9}, {6, 0}, {7, 9}};
  CudaGroupRequest request = Ask(4);
  request.params = &params;
  request.places = places;
  request.constraint = 2;
  request.may_lack = true;
  CudaGroup group = Group(0, 3, 0, 5);
  group.end_position = 14;
  CudaInputBatch batch(kShape);
  batch.AddBeams(group, request);
  EXPECT_TRUE(batch.has_masks());
  EXPECT_FALSE(batch.has_items());
  EXPECT_EQ(batch.edits.size(), 1u);
  EXPECT_EQ(batch.groups[0].has_constraint, 1);
  EXPECT_EQ(batch.groups[0].max_candidates, 4);
  for (int row = 0; row < 3; ++row) {
    EXPECT_EQ(batch.row_edits[row].is_allow_list, 0);
    EXPECT_EQ(batch.row_edits[row].begin, 0);  // one list for all
    EXPECT_EQ(batch.row_edits[row].end, 1);
    EXPECT_EQ(batch.row_edits[row].mask, row);
    EXPECT_EQ(batch.mask_rows[row].constraint, 2);
    EXPECT_EQ(batch.mask_rows[row].beam, -1);
    EXPECT_EQ(batch.mask_rows[row].state, places[row].state);
    EXPECT_EQ(batch.mask_rows[row].room, places[row].room);
  }
  // The next step runs ahead: the device has the places.
  request.places = {};
  CudaInputBatch next(kShape);
  next.AddBeams(Group(3, 2, 0, 5), Ask(4));
  group.first_slot = 6;
  next.AddBeams(group, request);
  EXPECT_FALSE(next.has_items());
  EXPECT_EQ(next.mask_rows[0].constraint, -1);
  EXPECT_EQ(next.groups[0].has_constraint, 0);
  EXPECT_EQ(next.groups[0].max_candidates, INT_MAX);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(next.mask_rows[2 + rank].beam, 6 + rank);
    EXPECT_EQ(next.mask_rows[2 + rank].room, 14);
  }
}

TEST(CudaInputBatchTest, StepsWithItemsAreToldApart) {
  SelectionParams params;
  params.constraint.emplace().items.trie.num_nodes = 1;
  CudaGroupRequest request = Ask(4);
  request.params = &params;
  request.constraint = 1;
  CudaInputBatch batch(kShape);
  batch.AddBeams(Group(0, 2, 0, 5), Ask(4));
  EXPECT_FALSE(batch.has_items());
  batch.AddBeams(Group(2, 2, 0, 5), request);
  EXPECT_TRUE(batch.has_items());
}

// Their next beams are the host's choice.
TEST(CudaInputBatchTest, GroupsOfRowsKeepNoStates) {
  const std::vector<ConstraintPlace> places = {{5, 9}, {6, 9}};
  const std::vector<int> slots = {1, 0};
  CudaGroupRequest request = Ask(4);
  request.kind = SelectionKind::kRows;
  request.places = places;
  request.slots = slots;
  request.constraint = 0;
  CudaInputBatch batch(kShape);
  batch.AddBeams(Group(0, 2, 0, 5), request);
  EXPECT_EQ(batch.groups[0].has_constraint, 0);
  EXPECT_EQ(batch.mask_rows[0].state, 6);  // in slot order
  EXPECT_EQ(batch.mask_rows[1].state, 5);
}

TEST(CudaInputBatchTest, LogProbabilitiesAreAskedOfCandidatesThenOfPrompts) {
  SelectionParams params;
  params.num_logprobs = 3;
  CudaGroupRequest request = Ask(4);
  CudaInputBatch batch(kShape);
  batch.AddBeams(Group(0, 2, 0, 9), request);
  request.params = &params;
  const auto parts = batch.AddBeams(Group(2, 2, 0, 9), request);
  batch.AddPrompt(std::vector<TokenId>{5, 6, 7}, 0, 11);
  const CudaLogprobPlace known =
      batch.AddPromptLogprobRows(4, std::vector<TokenId>{6, 7}, 50);
  EXPECT_EQ(parts[0].log_probs.first_asked, 0);
  EXPECT_EQ(parts[0].log_probs.num_best, 3);
  EXPECT_EQ(known.first_asked, 4);
  EXPECT_EQ(known.first_best, 6);
  EXPECT_EQ(known.first_best_group, 2);
  EXPECT_EQ(known.num_best, 10);  // there are no more tokens
  EXPECT_EQ(batch.num_logits_rows(), 6);
  EXPECT_THAT(batch.row_groups, ElementsAre(0, 0, 1, 1, -1, -1));
  EXPECT_THAT(batch.prompt_logits_tokens, ElementsAre(4, 5));
  const CudaLogprobCounts& counts = batch.logprob_counts[0];
  EXPECT_EQ(counts.num_asking_groups, 1);
  EXPECT_EQ(counts.num_logprob_queries, 6);
  EXPECT_EQ(counts.num_best_groups, 4);
  EXPECT_EQ(counts.num_best, 26);
  EXPECT_THAT(batch.best_row_groups, ElementsAre(-1, -1, 0, 1, 2, 3));
  const std::vector<CudaLogprobQuery>& known_tokens = batch.log_probs.known;
  ASSERT_EQ(known_tokens.size(), 2u);
  EXPECT_EQ(known_tokens[1].row, 5);
  EXPECT_EQ(known_tokens[1].token, 7);
}

TEST(CudaInputBatchTest, GumbelTopKRowsAreChosenForByThemselves) {
  SelectionParams params = ParamsOf(SelectionKind::kRows);
  params.sampling.seed = 9;
  const std::vector<int> slots = {1, 0};  // by rank
  CudaGroupRequest request = {.kind = SelectionKind::kRows,
                              .num_candidates = 4,
                              .gumbel_top_k = true,
                              .num_generated = 3,
                              .params = &params,
                              .slots = slots};
  CudaInputBatch batch(kShape);
  batch.AddBeams(Group(0, 1, 0, 9), Ask(2));
  batch.AddBeams(Group(1, 2, 0, 9), request);
  EXPECT_EQ(batch.max_candidates, 2);
  EXPECT_EQ(batch.max_gumbel_top_k, 4);
  EXPECT_EQ(batch.selections[0].num_candidates, 2);
  EXPECT_EQ(batch.selections[1].num_candidates, 0);
  ASSERT_EQ(batch.gumbel_selections.size(), 3u);
  EXPECT_EQ(batch.gumbel_selections[0].num_candidates, 0);
  EXPECT_EQ(batch.gumbel_selections[2].num_candidates, 4);
  EXPECT_TRUE(batch.row_params.empty());
  EXPECT_EQ(batch.gumbel_params[0], -1);
  EXPECT_EQ(batch.params[batch.gumbel_params[2]].seed, 9u);
  EXPECT_EQ(batch.gumbel_rows[1].rank, 1u);  // in slot 0
  EXPECT_EQ(batch.gumbel_rows[2].rank, 0u);
  EXPECT_EQ(batch.gumbel_rows[2].position, 3u);
}

TEST(PaddedRowsTest, FewShapesAndLittlePadding) {
  std::vector<int> shapes;
  for (int rows = 1; rows <= 1000; ++rows) {
    const int padded = PaddedRows(rows, 1000);
    ASSERT_GE(padded, rows);
    ASSERT_LE(padded, 1000);
    ASSERT_LE(padded, rows <= 16   ? 2 * rows
                      : rows <= 32 ? rows * 3 / 2
                                   : rows * 5 / 4);
    if (shapes.empty() || shapes.back() != padded) shapes.push_back(padded);
  }
  EXPECT_THAT(shapes, ElementsAre(1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80,
                                  96, 112, 128, 160, 192, 224, 256, 320, 384,
                                  448, 512, 640, 768, 896, 1000));
  EXPECT_EQ(PaddedRows(0, 1000), 0);
  EXPECT_EQ(PaddedRows(33, 36), 36);
  EXPECT_EQ(PaddedRows(36, 36), 36);
  EXPECT_EQ(PaddedRows(1001, 1000), 1001);  // refused later, with its figure
}

}  // namespace
}  // namespace espalier
