// BeamReplay: replays the beam search steps that one model call verifies, if
// the beams feed draft paths (PathRows). The first step selects from the beams'
// own rows of logits. As long as all new beams are on drafted tokens, their
// rows of logits exist, and the next step selects from these. It has the same
// rows and sums as a plain step, so its result is bitwise equal.
//
//   beam 0 feeds  c d e      step 0: the new beams continue with d and x
//   beam 1 feeds  c x        step 1: beam 0 continues with e and with g; g was
//                                    not drafted, so this is the last step
//
// Executors first select the best tokens of all rows of logits. The replay
// reads only these.
//
//   BeamReplay replay(&selection);
//   for (int node = 0; node < replay.tree().num_nodes(); ++node) {
//     replay.SetBest(node, ...);
//   }
//   replay.Take(&result);
//
// Thread safety: several threads may call SetBest() for different nodes.
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
  // REQUIRES: `selection` is a BeamSelection with paths, and outlives the
  // replay.
  explicit BeamReplay(const PlanSelection* selection);

  const DraftTree& tree() const { return tree_; }

  // Sets the best tokens of a node's row of logits, best first:
  // num_candidates of the selection, or all tokens that are allowed.
  void SetBest(int node, std::vector<TokenScore> best) {
    best_[node] = std::move(best);
  }

  // Replays the steps into `candidates` and `further` of `*result`.
  // REQUIRES: SetBest() was called for all nodes.
  void Take(SelectionResult* result) const;

 private:
  std::vector<Candidate> CandidatesAt(std::span<const int> nodes,
                                      std::span<const float> sums) const;

  const PlanSelection& selection_;
  const DraftTree tree_;
  std::vector<std::vector<TokenScore>> best_;  // [nodes]
};

// Returns the nodes of the beams that survive a step, whose candidates follow
// the beams at `nodes`; empty if some of them left the paths
// (DraftTree::Follow).
std::vector<int> NextNodes(const PlanSelection& selection,
                           const DraftTree& tree, std::span<const int> nodes,
                           std::span<const Candidate> candidates);

// Calls visit(step, nodes) for `*result` and then each of `further`. `nodes`
// are those of the beams that the step's candidates follow.
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
