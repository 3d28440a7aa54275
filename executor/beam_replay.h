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
// Executors select the best tokens of all rows of logits at once; then steps
// are replayed from these.
//
//   BeamReplay replay(&selection);
//   for (int node = 0; node < replay.tree().num_nodes(); ++node) {
//     replay.SetBest(node, ...);
//   }
//   replay.Take(&result);
//
// Thread safety: the best of nodes may be set by several threads.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "exec_request/draft_tree.h"
#include "exec_request/step_plan.h"
#include "kernels/select/select.h"

namespace espalier {

class BeamReplay {
 public:
  // `selection`, of kBeams with drafts, outlives this.
  explicit BeamReplay(const PlanSelection* selection);

  const DraftTree& tree() const { return tree_; }

  // The best tokens of a node's row of logits, best first:
  // selection.num_candidates of them, or all that may follow.
  void SetBest(int node, std::vector<TokenScore> best) {
    best_[node] = std::move(best);
  }

  // When all are set: sets candidates and `further` of `*result`.
  void Take(SelectionResult* result) const;

 private:
  std::vector<Candidate> CandidatesAt(std::span<const int> nodes,
                                      std::span<const float> sums) const;

  const PlanSelection& selection_;
  const DraftTree tree_;
  std::vector<std::vector<TokenScore>> best_;  // [nodes]
};

// The nodes of the beams that a step's candidates make, which come from beams
// at `nodes`; empty if not all of them are on paths (DraftTree::Follow).
std::vector<int> NextNodes(const PlanSelection& selection,
                           const DraftTree& tree, std::span<const int> nodes,
                           std::span<const Candidate> candidates);

// Calls visit(step, nodes) for `*result` and each of `further`, in this order:
// `nodes` are where the beams stand that the candidates of the step follow.
template <typename Visit>
void ForEachReplayedStep(const PlanSelection& selection, const DraftTree& tree,
                         SelectionResult* result, const Visit& visit) {
  std::vector<int> nodes = tree.Roots();
  visit(result, nodes);
  const SelectionResult* last = result;
  for (SelectionResult& step : result->further) {
    nodes = NextNodes(selection, tree, nodes, last->candidates);
    visit(&step, nodes);
    last = &step;
  }
}

}  // namespace espalier
