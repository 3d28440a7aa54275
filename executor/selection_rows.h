// SelectionRow: the parameters of one row of logits, in a selection whose rows
// of logits differ: samples of different lengths, or drafts to verify
// (PlanSelection::drafts()). For beams, the row selects the best tokens after
// the beam and a prefix of its path (beam_replay.h). For samples, each row
// draws a token, like a sample that had generated the drafted tokens before it.
// Coupled verification (docs/verification.md) consists of these draws alone, so
// any executor that samples supports it. With verification by rejection
// (IsByRejection), its outcome replaces the draws.
//
//   row 0 feeds   a  d0 d1   logits 0 1 2 draw   d0 x -    result: d0, x
//   row 1 feeds   b          logits 3     draws  y         result: y
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "exec_request/step_plan.h"

namespace espalier {

struct SelectionRow {
  int row = 0;  // a sample's rank, or a path
  int sample = 0;
  int draft_idx = 0;      // drafted tokens of its row before it
  int num_generated = 0;  // generated and drafted tokens before it
  // PlanSelection::histories followed by the drafted tokens before it. The rows
  // of a sequence share the memory.
  std::span<const TokenId> history() const {
    if (text == nullptr) return {};
    return std::span(*text).first(num_history);
  }
  // The history with the complete draft; null without histories.
  std::shared_ptr<const std::vector<TokenId>> text = nullptr;
  int num_history = 0;
  // Entry of PlanSelection::allowed; null: all tokens are allowed.
  const std::span<const TokenId>* allowed = nullptr;
  // Entry of PlanSelection::places, if it has any.
  const ConstraintPlace* place = nullptr;
};

// True if the rows of logits differ in more than their logits.
bool HasDifferentRows(const PlanSelection& selection);

// True if drafts are accepted with probability p / q (rejection sampling), not
// by comparison with a draw.
bool IsByRejection(const PlanSelection& selection);
// True if IsByRejection() and the plan has the logits q of the drafts.
bool HasDraftRows(const PlanSelection& selection);

// Returns the selection's rows of logits: all of them, or without `verifies`
// only the first of each row, which does not verify drafts.
// REQUIRES: a DrawSelection with a sample for each row, or a BeamSelection with
// paths; it outlives the result.
std::vector<SelectionRow> SelectionRowsOf(const PlanSelection& selection,
                                          bool verifies = true);

// Return the maximum number of score edits of a row of logits on a device,
// where a mask takes the place of allowed tokens that have a place: of
// `logits_row`, or of one with `num_history` tokens of history that allows all
// tokens.
int64_t MaxEditsOf(const PlanSelection& selection,
                   const SelectionRow& logits_row, int vocab_size);
int64_t MaxEditsOf(const PlanSelection& selection, int64_t num_history,
                   int vocab_size);

// Returns the selection's result. A row's tokens continue while the drawn token
// equals the draft and another row of logits follows. If no row has a second
// row of logits, the drafts are unverified
// (SelectionResult::has_unverified_drafts).
// REQUIRES: a DrawSelection.
//   drafts    [plan rows], replaces selection.drafts(); may be shorter
//   drawn     [logits_rows], cum_log_prob is the token's own log-probability; a
//             negative beam: verification ended before it
//   logprobs  [logits_rows] or empty, of `drawn`
SelectionResult MergeSelectionRows(const PlanSelection& selection,
                                   std::span<const std::vector<TokenId>> drafts,
                                   std::span<const SelectionRow> logits_rows,
                                   std::span<const Candidate> drawn,
                                   std::span<const TokenLogProb> logprobs);
inline SelectionResult MergeSelectionRows(
    const PlanSelection& selection, std::span<const SelectionRow> logits_rows,
    std::span<const Candidate> drawn, std::span<const TokenLogProb> logprobs) {
  return MergeSelectionRows(selection, selection.drafts(), logits_rows, drawn,
                            logprobs);
}

}  // namespace espalier
