#include "executor/cuda/draft/cuda_draft_batch.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "executor/cuda/batch/cuda_input_batch.h"

namespace espalier {
void CudaDraftTokens::Pad(int count, int null_table) {
  tokens.resize(tokens.size() + count, 0);
  positions.resize(positions.size() + count, 0);
  token_tables.resize(token_tables.size() + count, null_table);
}

void CudaDraftBatch::Add(const DraftSequence& sequence,
                         std::span<const TokenId> fed, int first_position,
                         int first_kept) {
  const SelectionParams& asked = *sequence.params;
  const int row = num_sequences++;
  // With an unread verification, the token after the accepted draft is known
  // only to the device. It counts as generated.
  const int max_accepted = sequence.verified_before.num_tokens();
  const int num_generated =
      static_cast<int>(sequence.generated.size()) + (max_accepted > 0 ? 1 : 0);
  num_steps = std::max(num_steps, sequence.num_tokens);
  feeds_two |= fed.size() > 1 || max_accepted > 0;
  keeps_logits |= first_kept >= 0;
  AddTokens(fed, first_position, sequence.num_tokens, max_accepted);
  draws.push_back({.row = row,
                   .candidate = row,
                   .beam = row,
                   .sample = static_cast<uint32_t>(sequence.sample),
                   .position = static_cast<uint32_t>(num_generated),
                   .purpose = asked.verify_mode == VerifyMode::kRejection
                                  ? RandomPurpose::kDraft
                                  : RandomPurpose::kDraw});
  row_params.push_back(row);
  kept_rows.push_back(first_kept);
  params.push_back(asked.sampling);
  const std::shared_ptr<const ScoreEdits> all = EditsOf(asked);
  row_edits.push_back(AddEdits(asked.processors, *all, num_generated));
  CudaDraftRow& draft = rows.emplace_back(CudaDraftRow{
      .num_tokens = sequence.num_tokens, .first_drafted = first_drafted_});
  const int num_left = asked.processors.min_new_tokens - num_generated;
  if (num_left < 1 || num_left >= sequence.num_tokens) return;
  draft.first_with_later_edits = num_left;
  draft.later_edits =
      AddEdits(asked.processors, *all, asked.processors.min_new_tokens);
}

void CudaDraftBatch::AddTokens(std::span<const TokenId> fed, int first_position,
                               int num_tokens, int max_accepted) {
  const int row = num_sequences - 1;
  const int null_table = limits_.max_rows;
  const int max_positions = limits_.table_stride * page_size_;
  const int num_fed = static_cast<int>(fed.size());
  const int num_padded = limits_.max_row_tokens - num_fed;
  const int last_position = first_position + num_fed - 1;
  const int max_last = last_position + max_accepted;
  first.Pad(num_padded, null_table);
  // The device may put a token in place of the padding.
  const int num_before = max_accepted > 0 ? num_padded : 0;
  first.attention_rows.push_back(
      {.first_query = static_cast<int>(first.tokens.size()) - num_before,
       .num_queries = num_fed + num_before,
       .table = row,
       .max_positions = std::min(PlannedPositions(max_last), max_positions)});
  for (int i = 0; i < num_fed; ++i) {
    first.tokens.push_back(fed[i]);
    first.positions.push_back(first_position + i);
    first.token_tables.push_back(row);
  }
  first_logits_tokens.push_back(static_cast<int>(first.tokens.size()) - 1);
  next.tokens.push_back(fed.back());
  next.positions.push_back(last_position);
  next.token_tables.push_back(row);
  next.attention_rows.push_back(
      {.first_query = row,
       .num_queries = 1,
       .table = row,
       .max_positions = std::min(PlannedPositions(max_last + num_tokens - 1),
                                 max_positions)});
}

CudaRowEdits CudaDraftBatch::AddEdits(const ScoreProcessors& processors,
                                      const ScoreEdits& all,
                                      int num_generated) {
  std::vector<TokenEdit> storage;
  const ScoreEdits::View view = all.OfRow(
      {.num_generated = num_generated, .vocab_size = vocab_size_}, &storage);
  has_allow_lists_ |= view.is_allow_list;
  return AppendEdits(view, processors, &edits);
}

void CudaDraftBatch::Pad(int padded_rows) {
  const int null_table = limits_.max_rows;
  const int count = padded_rows - num_rows();
  for (int row = num_rows(); row < padded_rows; ++row) {
    first_logits_tokens.push_back((row + 1) * limits_.max_row_tokens - 1);
  }
  first.Pad(count * limits_.max_row_tokens, null_table);
  next.Pad(count, null_table);
  rows.resize(padded_rows);
  draws.resize(padded_rows);
  row_params.resize(padded_rows, -1);
  kept_rows.resize(padded_rows, -1);
  params.resize(padded_rows);
  row_edits.resize(padded_rows);
}

bool CanDraftOnDevice(const DraftSequence& sequence,
                      const CudaDraftLimits& limits, int vocab_size) {
  const SelectionParams& params = *sequence.params;
  if (sequence.search != nullptr || params.processors.needs_history() ||
      params.processors.has_edits_by_place()) {
    return false;
  }
  // A row may have two lists, for two numbers of generated tokens.
  return 2 * MaxEdits(params.processors, 0, vocab_size) * limits.max_rows <=
         limits.max_edits;
}

}  // namespace espalier
