#include "model/cuda_batch_image.h"

#include <algorithm>

#include "base/check.h"

namespace espalier {
namespace {

// Work lists are planned for lengths up to the next multiple of this, a
// function of the position alone: a list holds for that many steps, and its
// longest chunk is mostly filled.
constexpr int kPlannedPositions = 64;

}  // namespace

CudaAnswerPlace CudaBatchImage::AddBeams(const CudaGroup& group,
                                         const CudaGroupRequest& request) {
  CHECK(prompt_tokens.empty()) << "rows of beams come before prompts";
  const int first_row = num_rows;
  const CudaAnswerPlace place = AddGroup(group, request, group.num_slots);
  num_rows += group.num_slots;
  for (int slot = 0; slot < group.num_slots; ++slot) {
    token_tables.push_back(group.first_slot + slot);
  }
  AddAttention(group, first_row);
  return place;
}

CudaAnswerPlace CudaBatchImage::AddGroup(const CudaGroup& group,
                                         const CudaGroupRequest& request,
                                         int num_lines) {
  const CudaAnswerPlace place = {num_groups(), num_candidates};
  const int m = static_cast<int>(std::min<int64_t>(
      request.num_candidates, int64_t{num_lines} * shape.vocab_size));
  selections.push_back({.first_row = this->num_lines(),
                        .num_rows = num_lines,
                        .num_candidates = m,
                        .first_candidate = num_candidates,
                        .domain = request.rule->domain});
  groups.push_back({.first_slot = group.first_slot,
                    .num_slots = group.num_slots,
                    .num_shared_pages = group.num_shared_pages,
                    .first_eos = static_cast<int>(eos_token_ids.size()),
                    .num_eos = static_cast<int>(group.eos_token_ids.size())});
  eos_token_ids.insert(eos_token_ids.end(), group.eos_token_ids.begin(),
                       group.eos_token_ids.end());
  num_candidates += m;
  max_candidates = std::max(max_candidates, m);
  row_groups.insert(row_groups.end(), num_lines, place.group_idx);
  AddEdits(request, num_lines);
  return place;
}

CudaRowEdits CudaBatchImage::AddList(const CudaGroupRequest& request,
                                     std::span<const TokenId> history) {
  const std::vector<TokenEdit> list =
      CollectEdits(request.rule->processors, history, request.num_generated,
                   shape.vocab_size)
          .edits;
  const int begin = static_cast<int>(edits.size());
  edits.insert(edits.end(), list.begin(), list.end());
  return {.begin = begin,
          .end = static_cast<int>(edits.size()),
          .repetition_penalty = request.rule->processors.repetition_penalty};
}

// Without histories all lines share one list.
void CudaBatchImage::AddEdits(const CudaGroupRequest& request, int num_lines) {
  const size_t first_line = row_edits.size();
  row_edits.resize(first_line + num_lines);
  const auto lines = std::span(row_edits).subspan(first_line);
  if (request.histories.empty()) {
    std::fill(lines.begin(), lines.end(), AddList(request, {}));
    return;
  }
  for (size_t rank = 0; rank < request.histories.size(); ++rank) {
    lines[rank] = AddList(request, request.histories[rank]);
  }
}

void CudaBatchImage::AddAttention(const CudaGroup& group, int first_row) {
  const bool shares = group.num_slots > 1 && group.num_shared_pages > 0;
  const int kv_begin = shares ? group.num_shared_pages * shape.page_size : 0;
  if (shares) {
    shared_runs.push_back({.first_query = first_row,
                           .num_queries = group.num_slots,
                           .table = group.first_slot,
                           .kv_end = kv_begin});
  }
  const int bound =
      (group.position / kPlannedPositions + 1) * kPlannedPositions;
  for (int slot = 0; slot < group.num_slots; ++slot) {
    attention_rows.push_back(
        {.first_query = first_row + slot,
         .num_queries = 1,
         .table = group.first_slot + slot,
         .kv_begin = kv_begin,
         .max_positions = std::min(bound, shape.max_positions)});
  }
}

int CudaBatchImage::AddPrompt(std::span<const TokenId> tokens,
                              int first_position, int table) {
  const int num_new_tokens = static_cast<int>(tokens.size());
  attention_rows.push_back({.first_query = num_tokens(),
                            .num_queries = num_new_tokens,
                            .table = table,
                            .max_positions = first_position + num_new_tokens});
  prompt_tokens.insert(prompt_tokens.end(), tokens.begin(), tokens.end());
  for (int i = 0; i < num_new_tokens; ++i) {
    prompt_positions.push_back(first_position + i);
  }
  token_tables.insert(token_tables.end(), num_new_tokens, table);
  return num_tokens() - 1;
}

CudaAnswerPlace CudaBatchImage::AddPromptLines(
    const CudaGroup& group, const CudaGroupRequest& request,
    std::span<const int> last_tokens, std::span<const float> cum_log_probs) {
  prompt_logits_tokens.insert(prompt_logits_tokens.end(), last_tokens.begin(),
                              last_tokens.end());
  prompt_cum_log_probs.insert(prompt_cum_log_probs.end(), cum_log_probs.begin(),
                              cum_log_probs.end());
  return AddGroup(group, request, static_cast<int>(last_tokens.size()));
}

void CudaBatchImage::Pad(int padded_rows, int padding_table) {
  CHECK(prompt_tokens.empty()) << "a batch with prompts needs no padding";
  num_rows = padded_rows;
  row_groups.resize(padded_rows, -1);
  row_edits.resize(padded_rows);
  token_tables.resize(padded_rows, padding_table);
}

}  // namespace espalier
