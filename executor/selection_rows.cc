#include "executor/selection_rows.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"

namespace espalier {
namespace {

void SetText(std::span<const TokenId> history, std::span<const TokenId> draft,
             SelectionRow* row) {
  auto text = std::make_shared<std::vector<TokenId>>();
  text->reserve(history.size() + draft.size());
  text->insert(text->end(), history.begin(), history.end());
  text->insert(text->end(), draft.begin(), draft.end());
  row->text = std::move(text);
  row->num_history = static_cast<int>(history.size());
}

}  // namespace

bool HasDifferentRows(const PlanSelection& selection) {
  const DrawSelection* const draws = selection.as_draws();
  return !selection.drafts().empty() ||
         (draws != nullptr && !draws->row_num_generated.empty());
}

bool IsByRejection(const PlanSelection& selection) {
  const DrawSelection* const draws = selection.as_draws();
  return draws != nullptr && !draws->drafts.empty() &&
         NeedsDraftLogits(*selection.params);
}

bool HasDraftRows(const PlanSelection& selection) {
  return IsByRejection(selection) &&
         !selection.as_draws()->drafts.logits.empty();
}

std::vector<SelectionRow> SelectionRowsOf(const PlanSelection& selection,
                                          bool verifies) {
  const bool are_paths = selection.has_paths();
  const BeamSelection* const beams = selection.as_beams();
  const DrawSelection* const draws = selection.as_draws();
  CHECK(are_paths ||
        (draws != nullptr && std::ssize(draws->samples) == selection.num_rows))
      << "rows differ where each row is a sample's, or a path";
  const std::span<const std::vector<TokenId>> drafts = selection.drafts();
  const SmallVector<int> first_logits = selection.FirstLogits();
  std::vector<SelectionRow> logits_rows;
  for (int row = 0; row < selection.num_plan_rows(); ++row) {
    const int rank = are_paths ? beams->paths.ranks[row] : row;
    SelectionRow logits_row = {
        .row = row,
        .sample = are_paths ? 0 : draws->samples[row],
        .num_generated = selection.num_generated_of(rank)};
    const bool has_drafts = verifies && !drafts.empty();
    if (!selection.histories.empty()) {
      SetText(selection.histories[rank],
              has_drafts ? std::span(drafts[row]) : std::span<const TokenId>(),
              &logits_row);
    }
    if (!selection.allowed.empty()) {
      logits_row.allowed =
          &selection.allowed[first_logits[row] - selection.first_logits];
    }
    if (!selection.places.empty()) {
      logits_row.place =
          &selection.places[first_logits[row] - selection.first_logits];
    }
    logits_rows.push_back(logits_row);
    if (!has_drafts) continue;
    for (size_t i = 0; i < drafts[row].size(); ++i) {
      ++logits_row.draft_idx;
      ++logits_row.num_generated;
      ++logits_row.num_history;
      if (logits_row.allowed != nullptr) ++logits_row.allowed;
      if (logits_row.place != nullptr) ++logits_row.place;
      logits_rows.push_back(logits_row);
    }
  }
  return logits_rows;
}

int64_t MaxEditsOf(const PlanSelection& selection,
                   const SelectionRow& logits_row, int vocab_size) {
  if (logits_row.allowed != nullptr) {
    return std::ssize(*logits_row.allowed);
  }
  return MaxEditsOf(selection, std::ssize(logits_row.history()), vocab_size);
}

int64_t MaxEditsOf(const PlanSelection& selection, int64_t num_history,
                   int vocab_size) {
  const int64_t num_prompt = std::ssize(EditsOf(*selection.params)->prompt());
  return MaxEdits(selection.params->processors, num_prompt + num_history,
                  vocab_size);
}

SelectionResult MergeSelectionRows(const PlanSelection& selection,
                                   std::span<const std::vector<TokenId>> drafts,
                                   std::span<const SelectionRow> logits_rows,
                                   std::span<const Candidate> drawn,
                                   std::span<const TokenLogProb> logprobs) {
  CHECK_EQ(drawn.size(), logits_rows.size()) << "draws";
  SelectionResult result = {.request = selection.request};
  const DrawSelection* const draws = selection.as_draws();
  const bool has_sums = draws->drafts.verified_before.empty();
  bool goes_on = false;  // the row's next row of logits counts too
  float sum = 0;
  for (size_t i = 0; i < logits_rows.size(); ++i) {
    const int row = logits_rows[i].row;
    const int draft_idx = logits_rows[i].draft_idx;
    if (draft_idx == 0) {
      sum = selection.cum_log_probs[row];
      if (!drafts.empty()) result.num_tokens.push_back(0);
    } else if (!goes_on || drawn[i].beam < 0) {
      continue;
    }
    sum = has_sums ? sum + drawn[i].cum_log_prob : drawn[i].cum_log_prob;
    result.candidates.push_back({row, drawn[i].token, sum});
    if (!logprobs.empty()) result.logprobs.push_back(logprobs[i]);
    if (drafts.empty()) continue;
    ++result.num_tokens.back();
    const std::vector<TokenId>& draft = drafts[row];
    goes_on =
        draft_idx < std::ssize(draft) && drawn[i].token == draft[draft_idx];
  }
  const bool has_drafts = std::ranges::any_of(
      drafts, [](const auto& draft) { return !draft.empty(); });
  result.has_unverified_drafts =
      has_drafts && std::ssize(logits_rows) == selection.num_rows;
  return result;
}

}  // namespace espalier
