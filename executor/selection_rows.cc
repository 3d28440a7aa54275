#include "executor/selection_rows.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace espalier {

bool HasDifferentRows(const PlanSelection& selection) {
  return !selection.drafts.empty() || !selection.row_num_generated.empty();
}

bool IsByRejection(const PlanSelection& selection) {
  return !selection.drafts.empty() && NeedsDraftLogits(*selection.params);
}

bool HasDraftRows(const PlanSelection& selection) {
  return IsByRejection(selection) && !selection.draft_logits.empty();
}

std::vector<SelectionRow> SelectionRowsOf(const PlanSelection& selection,
                                          bool verifies) {
  CHECK(selection.params->kind == SelectionKind::kDraws &&
        std::ssize(selection.samples) == selection.num_rows)
      << "rows differ where each row is a sample's";
  const SmallVector<int> first_logits = selection.FirstLogits();
  std::vector<SelectionRow> logits_rows;
  for (int row = 0; row < selection.num_rows; ++row) {
    SelectionRow logits_row = {
        .row = row,
        .sample = selection.samples[row],
        .num_generated = selection.num_generated_of(row)};
    if (!selection.histories.empty())
      logits_row.history = selection.histories[row];
    if (!selection.allowed.empty()) {
      logits_row.allowed =
          &selection.allowed[first_logits[row] - selection.first_logits];
    }
    logits_rows.push_back(logits_row);
    if (!verifies || selection.drafts.empty()) continue;
    for (const TokenId token : selection.drafts[row]) {
      ++logits_row.draft_idx;
      ++logits_row.num_generated;
      if (!selection.histories.empty()) logits_row.history.push_back(token);
      if (logits_row.allowed != nullptr) ++logits_row.allowed;
      logits_rows.push_back(logits_row);
    }
  }
  return logits_rows;
}

int64_t MaxEditsOf(const PlanSelection& selection,
                   const SelectionRow& logits_row, int vocab_size) {
  if (logits_row.allowed != nullptr) return std::ssize(*logits_row.allowed);
  const size_t num_prompt = EditsOf(*selection.params)->prompt().size();
  return MaxEdits(selection.params->processors,
                  static_cast<int64_t>(num_prompt + logits_row.history.size()),
                  vocab_size);
}

SelectionResult MergeSelectionRows(const PlanSelection& selection,
                                   std::span<const SelectionRow> logits_rows,
                                   std::span<const Candidate> drawn,
                                   std::span<const TokenLogProb> logprobs) {
  CHECK_EQ(drawn.size(), logits_rows.size()) << "draws";
  SelectionResult result = {.request = selection.request};
  bool goes_on = false;  // to the next row of logits of the same row
  float sum = 0;
  for (size_t i = 0; i < logits_rows.size(); ++i) {
    const int row = logits_rows[i].row;
    const int draft_idx = logits_rows[i].draft_idx;
    if (draft_idx == 0) {
      sum = selection.cum_log_probs[row];
      if (!selection.drafts.empty()) result.num_tokens.push_back(0);
    } else if (!goes_on || drawn[i].beam < 0) {
      continue;
    }
    sum += drawn[i].cum_log_prob;
    result.candidates.push_back({row, drawn[i].token, sum});
    if (!logprobs.empty()) result.logprobs.push_back(logprobs[i]);
    if (selection.drafts.empty()) continue;
    ++result.num_tokens.back();
    const std::vector<TokenId>& draft = selection.drafts[row];
    goes_on =
        draft_idx < std::ssize(draft) && drawn[i].token == draft[draft_idx];
  }
  const bool drafts = std::ranges::any_of(
      selection.drafts, [](const auto& draft) { return !draft.empty(); });
  result.has_unverified_drafts =
      drafts && std::ssize(logits_rows) == selection.num_rows;
  return result;
}

}  // namespace espalier
