#include "exec_request/surviving_candidates.h"

#include <algorithm>

#include "base/constraint_state.h"

namespace espalier {

std::vector<int> SurvivingCandidates(std::span<const Candidate> candidates,
                                     int num_slots,
                                     std::span<const TokenId> eos_token_ids) {
  std::vector<int> surviving;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (std::ssize(surviving) == num_slots) break;
    const TokenId token = candidates[i].token;
    if (token < 0) continue;  // an error, which ends the group
    if (std::ranges::binary_search(eos_token_ids, token)) continue;
    surviving.push_back(static_cast<int>(i));
  }
  return surviving;
}

std::vector<SurvivingCandidate> SurvivingCandidates(
    std::span<const Candidate> candidates, int num_slots,
    const ConstraintTables& constraint,
    std::span<const ConstraintPlace> places) {
  std::vector<SurvivingCandidate> surviving;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (std::ssize(surviving) == num_slots) break;
    if (candidates[i].token < 0) continue;  // an error, which ends the group
    ConstraintPlace place = places[candidates[i].beam];
    place.state = AdvanceState(constraint, place.state, candidates[i].token);
    --place.room;
    if (EndsAt(constraint, place.state, place.room)) continue;
    surviving.push_back({static_cast<int>(i), place});
  }
  return surviving;
}

bool LacksBeams(int max_candidates, int num_candidates, int num_slots,
                int num_surviving) {
  return num_candidates >= max_candidates && num_surviving < num_slots;
}

bool LacksBeams(const PlanSelection& asked,
                std::span<const Candidate> candidates) {
  const BeamSelection* const beams = asked.as_beams();
  if (beams == nullptr || !beams->may_lack) return false;
  const auto surviving = SurvivingCandidates(
      candidates, asked.num_slots, *asked.params->constraint, asked.places);
  return LacksBeams(beams->num_candidates, std::ssize(candidates),
                    asked.num_slots, std::ssize(surviving));
}

}  // namespace espalier
