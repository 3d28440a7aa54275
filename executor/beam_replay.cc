#include "executor/beam_replay.h"

#include "exec_request/surviving_candidates.h"
#include "executor/best_of_selection.h"

namespace espalier {

BeamReplay::BeamReplay(const PlanSelection* selection)
    : selection_(*selection), tree_(*selection), best_(tree_.num_nodes()) {}

std::vector<Candidate> BeamReplay::CandidatesAt(
    std::span<const int> nodes, std::span<const float> sums) const {
  const auto best = BestOfSelection(selection_);
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    best->Add(static_cast<int>(rank), best_[nodes[rank]], sums[rank]);
  }
  return best->Take();
}

void BeamReplay::Take(SelectionResult* result) const {
  std::vector<int> nodes = tree_.Roots();
  std::vector<float> sums(selection_.cum_log_probs.begin(),
                          selection_.cum_log_probs.end());
  std::vector<Candidate> candidates = CandidatesAt(nodes, sums);
  result->candidates.assign(candidates.begin(), candidates.end());
  while (true) {
    const std::vector<int> surviving = SurvivingCandidates(
        candidates, selection_.num_slots, selection_.eos_token_ids);
    nodes = tree_.Follow(nodes, candidates, surviving);
    if (nodes.empty()) return;
    sums.clear();
    for (const int i : surviving) sums.push_back(candidates[i].cum_log_prob);
    candidates = CandidatesAt(nodes, sums);
    result->further.push_back(
        {.request = selection_.request,
         .candidates = {candidates.begin(), candidates.end()}});
  }
}

std::vector<int> NextNodes(const PlanSelection& selection,
                           const DraftTree& tree, std::span<const int> nodes,
                           std::span<const Candidate> candidates) {
  return tree.Follow(nodes, candidates,
                     SurvivingCandidates(candidates, selection.num_slots,
                                         selection.eos_token_ids));
}

}  // namespace espalier
