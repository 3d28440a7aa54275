#include "executor/drafts/draft_search.h"

#include <algorithm>
#include <utility>

#include "exec_request/surviving_candidates.h"
#include "kernels/select/best_candidates.h"

namespace espalier {

DraftSearch::DraftSearch(std::span<const DraftSequence> beams)
    : beams_(beams),
      edits_(EditsOf(*beams.front().params)),
      max_steps_(beams.front().num_tokens),
      chosen_(beams.size()) {
  for (const DraftSequence& beam : beams) {
    live_.push_back(static_cast<int>(nodes_.size()));
    nodes_.push_back({.cum_log_prob = beam.cum_log_prob});
  }
}

void DraftSearch::Choose(int rank, std::span<const TokenId> generated,
                         std::span<const float> logits) {
  const SelectionParams& params = *first().params;
  std::vector<TokenEdit> storage;
  const ScoreEdits::View edits =
      edits_->OfRow({.tail = generated,
                     .num_generated = static_cast<int>(generated.size()),
                     .vocab_size = static_cast<int>(logits.size())},
                    &storage);
  chosen_[rank] = SelectRow(
      logits, {.domain = params.domain,
               .num_candidates = kBreadth * first().search->num_candidates,
               .repetition_penalty = params.processors.repetition_penalty,
               .edits = edits.edits,
               .is_allow_list = edits.is_allow_list,
               .renormalizes = params.processors.renormalizes});
}

std::vector<DraftSearch::Beam> DraftSearch::Advance() {
  const DraftedSearch& search = *first().search;
  BestCandidates best(kBreadth * search.num_candidates,
                      kBreadth * search.num_beams, search.eos_token_ids);
  for (int rank = 0; rank < num_live(); ++rank) {
    best.Add(rank, chosen_[rank], nodes_[live_[rank]].cum_log_prob);
  }
  const std::vector<Candidate> candidates = best.Take();
  std::vector<int> next;
  std::vector<Beam> beams;
  for (const int i : SurvivingCandidates(
           candidates, kBreadth * search.num_beams, search.eos_token_ids)) {
    const auto [rank, token, cum_log_prob] = candidates[i];
    const int parent = live_[rank];
    const int node = static_cast<int>(nodes_.size());
    nodes_[parent].has_child = true;
    nodes_.push_back(
        {.parent = parent, .token = token, .cum_log_prob = cum_log_prob});
    if (std::ssize(beams) == search.num_beams) continue;
    next.push_back(node);
    beams.push_back({rank, token});
  }
  live_ = std::move(next);
  chosen_.assign(live_.size(), {});
  ++num_steps_;
  return beams;
}

void DraftSearch::TakePaths(std::span<DraftedTokens> drafts) const {
  for (const Node& leaf : nodes_) {
    if (leaf.has_child || leaf.parent < 0) continue;
    DraftPath path = {.tokens = {leaf.token},
                      .cum_log_prob = leaf.cum_log_prob};
    int node = leaf.parent;
    for (; nodes_[node].parent >= 0; node = nodes_[node].parent) {
      path.tokens.push_back(nodes_[node].token);
    }
    std::ranges::reverse(path.tokens);
    drafts[node].paths.push_back(std::move(path));
  }
}

}  // namespace espalier
