// BeamReplay: the steps of a beam search that one model call decides, where the
// beams feed drafted paths (PlanSelection::ranks). The first step selects from
// the beams' own rows of logits. While all beams that it makes stand on drafted
// tokens, their rows of logits are there too, and the next step selects from
// these: as a plain step would, from the same rows and sums, so with the same
// bits.
//
//   beam 0 feeds  c d e      step 0: beams 0 and 1 go on with d, x
//   beam 1 feeds  c x        step 1: beam 0 goes on with e and with g; g was
//                                    not drafted: the last step
//
// Rows of logits are read all at once; then steps are replayed from their best
// tokens.
//
// Thread safety: nodes may be selected by several threads.
#pragma once

#include <span>
#include <vector>

#include "exec_request/draft_tree.h"
#include "exec_request/step_plan.h"
#include "kernels/logits/score_edits.h"
#include "kernels/select/select.h"

namespace espalier {

class BeamReplay {
 public:
  // `selection`, of kBeams with drafts, and `edits`, those of its params,
  // outlive this.
  BeamReplay(const PlanSelection* selection, const ScoreEdits* edits);

  // Rows of logits to read.
  int num_nodes() const { return tree_.num_nodes(); }
  //   logits  [plan.num_logits, vocab_size]  of the plan
  void Select(int node, std::span<const float> logits, int vocab_size);

  // When all are selected: sets candidates and `further` of `*result`.
  void Take(SelectionResult* result) const;

 private:
  std::vector<Candidate> CandidatesAt(std::span<const int> nodes,
                                      std::span<const float> sums) const;

  const PlanSelection& selection_;
  const ScoreEdits& edits_;
  const DraftTree tree_;
  std::vector<std::vector<TokenScore>> chosen_;  // [nodes]
};

}  // namespace espalier
