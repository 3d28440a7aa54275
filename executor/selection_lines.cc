#include "executor/selection_lines.h"

#include <cstddef>

#include "base/check.h"

namespace espalier {

bool HasDifferentLines(const PlanSelection& selection) {
  return !selection.drafts.empty() || !selection.row_num_generated.empty();
}

std::vector<SelectionLine> LinesOf(const PlanSelection& selection,
                                   bool verifies) {
  CHECK(selection.rule->kind == SelectionKind::kDraws &&
        std::ssize(selection.samples) == selection.num_rows)
      << "lines differ where each row is a sample's";
  std::vector<SelectionLine> lines;
  for (int row = 0; row < selection.num_rows; ++row) {
    SelectionLine line = {.row = row,
                          .sample = selection.samples[row],
                          .num_generated = selection.num_generated_of(row)};
    if (!selection.histories.empty()) line.history = selection.histories[row];
    if (!selection.allowed.empty()) {
      line.allowed = &selection.allowed[selection.first_logits_of(row) -
                                        selection.first_logits];
    }
    lines.push_back(line);
    if (!verifies || selection.drafts.empty()) continue;
    for (const TokenId token : selection.drafts[row]) {
      ++line.draft_idx;
      ++line.num_generated;
      if (!selection.histories.empty()) line.history.push_back(token);
      if (line.allowed != nullptr) ++line.allowed;
      lines.push_back(line);
    }
  }
  return lines;
}

int64_t MaxEditsOf(const PlanSelection& selection, const SelectionLine& line,
                   int vocab_size) {
  if (line.allowed != nullptr) return std::ssize(*line.allowed);
  const size_t num_prompt = EditsOf(*selection.rule)->prompt().size();
  return MaxEdits(selection.rule->processors,
                  static_cast<int64_t>(num_prompt + line.history.size()),
                  vocab_size);
}

SelectionResult MergeLines(const PlanSelection& selection,
                           std::span<const SelectionLine> lines,
                           std::span<const Candidate> drawn,
                           std::span<const TokenLogProb> logprobs) {
  CHECK_EQ(drawn.size(), lines.size()) << "draws";
  SelectionResult result = {.request = selection.request};
  bool goes_on = false;  // to the next line of the same row
  float sum = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const int row = lines[i].row;
    const int draft_idx = lines[i].draft_idx;
    if (draft_idx == 0) {
      sum = selection.cum_log_probs[row];
      if (!selection.drafts.empty()) result.num_tokens.push_back(0);
    } else if (!goes_on) {
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
  return result;
}

}  // namespace espalier
