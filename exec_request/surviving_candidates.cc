#include "exec_request/surviving_candidates.h"

#include <algorithm>

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

}  // namespace espalier
