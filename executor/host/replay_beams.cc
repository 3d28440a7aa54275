#include "executor/host/replay_beams.h"

#include <utility>

#include "exec_request/surviving_candidates.h"
#include "executor/host/best_of_selection.h"

namespace espalier {

BeamReplay::BeamReplay(const PlanSelection* selection, const ScoreEdits* edits)
    : selection_(*selection),
      edits_(*edits),
      tree_(*selection),
      chosen_(tree_.num_nodes()) {}

void BeamReplay::Select(int node, std::span<const float> logits,
                        int vocab_size) {
  const int row = tree_.row(node);
  const int depth = tree_.depth(node);
  std::vector<TokenId> history;
  if (!selection_.histories.empty()) {
    history = selection_.histories[selection_.ranks[row]];
    const auto draft = selection_.drafts[row].begin();
    history.insert(history.end(), draft, draft + depth);
  }
  std::vector<TokenEdit> storage;
  const ScoreEdits::View edits =
      edits_.OfRow({.tail = history,
                    .num_generated = selection_.num_generated + depth,
                    .vocab_size = vocab_size},
                   &storage);
  const size_t logits_row = selection_.first_logits + tree_.logits_row(node);
  chosen_[node] = SelectRow(
      logits.subspan(logits_row * vocab_size, vocab_size),
      {.domain = selection_.params->domain,
       .num_candidates = selection_.num_candidates,
       .repetition_penalty = selection_.params->processors.repetition_penalty,
       .edits = edits.edits,
       .is_allow_list = edits.is_allow_list});
}

std::vector<Candidate> BeamReplay::CandidatesAt(
    std::span<const int> nodes, std::span<const float> sums) const {
  const auto best = BestOfSelection(selection_);
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    best->Add(static_cast<int>(rank), chosen_[nodes[rank]], sums[rank]);
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

}  // namespace espalier
