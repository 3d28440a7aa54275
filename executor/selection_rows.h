// SelectionRow: what one row of logits is asked in a selection whose rows of
// logits differ: those of samples of different lengths, and those that verify
// drafts (PlanSelection::drafts). Of beams, each is asked for the best tokens
// after the beam and so much of the path (beam_replay.h). Of samples, each
// draws a token of its own, as a sample that had generated the drafted tokens
// before it would. The draws are all there is to verification that is coupled
// (docs/verification.md), so an executor that draws needs nothing else for it.
// Where rejection verifies (IsByRejection), what verification says of a place
// stands for the draw of its row of logits.
//
//   row 0 feeds   a  d0 d1   logits 0 1 2 draw   d0 x -    d0 and x go on
//   row 1 feeds   b          logits 3     draws  y         so does y
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
  int row = 0;  // of the selection's plan rows: a sample's rank, or a path
  int sample = 0;
  int draft_idx = 0;      // drafted tokens of its row before it
  int num_generated = 0;  // tokens before it, those included
  // As PlanSelection::histories; with those. The rows of a sequence share it.
  std::span<const TokenId> history() const {
    if (text == nullptr) return {};
    return std::span(*text).first(num_history);
  }
  // The history with all of the draft; null where there is no history.
  std::shared_ptr<const std::vector<TokenId>> text = nullptr;
  int num_history = 0;
  // The tokens that alone may follow, of PlanSelection::allowed; null: any may.
  const std::span<const TokenId>* allowed = nullptr;
};

// Whether the rows of logits of the selection differ in more than their logits.
bool HasDifferentRows(const PlanSelection& selection);

// Whether the drafts of the selection are accepted by chance, p / q, and not
// because they are what is drawn.
bool IsByRejection(const PlanSelection& selection);
// Whether these come with what they were drawn from, and verification asks.
bool HasDraftRows(const PlanSelection& selection);

// The rows of logits that draw, by row: all of them, or the first of each row,
// which verifies nothing: the draft's first token may be what it draws.
// REQUIRES: a selection of kDraws with a sample for each row, or of kBeams with
// drafts, which outlives the result.
std::vector<SelectionRow> SelectionRowsOf(const PlanSelection& selection,
                                          bool verifies = true);

// How many edits of scores a row of logits has at most; and one whose history
// has so many tokens, if any token may follow.
int64_t MaxEditsOf(const PlanSelection& selection,
                   const SelectionRow& logits_row, int vocab_size);
int64_t MaxEditsOf(const PlanSelection& selection, int64_t num_history,
                   int vocab_size);

// The answer to the selection. A run goes on while what is drawn is the draft
// and there is a row of logits after it; without any after the first ones it
// says that nothing was verified (SelectionResult::has_unverified_drafts).
//   drawn     [logits_rows]  what each has drawn; its sum is the token's own
//                      log-probability. A negative beam: verification came to
//                      an end before it
//   logprobs  [logits_rows], or empty: of these
//   drafts    [selection.drafts], in place of those, which they may be shorter
//             than
SelectionResult MergeSelectionRows(const PlanSelection& selection,
                                   std::span<const std::vector<TokenId>> drafts,
                                   std::span<const SelectionRow> logits_rows,
                                   std::span<const Candidate> drawn,
                                   std::span<const TokenLogProb> logprobs);
inline SelectionResult MergeSelectionRows(
    const PlanSelection& selection, std::span<const SelectionRow> logits_rows,
    std::span<const Candidate> drawn, std::span<const TokenLogProb> logprobs) {
  return MergeSelectionRows(selection, selection.drafts, logits_rows, drawn,
                            logprobs);
}

}  // namespace espalier
