#include "beam/growing_sequence.h"

namespace espalier {

void Grow(const Candidate& candidate, bool is_last,
          const StoppingCriteria& criteria, TokenTree* tree,
          GrowingSequence* sequence) {
  sequence->node = tree->Append(sequence->node, candidate.token);
  sequence->cum_log_prob = candidate.cum_log_prob;
  sequence->finish_reason =
      criteria.Feed(candidate.token, &sequence->progress).hit;
  if (is_last && !sequence->finish_reason.has_value()) {
    sequence->finish_reason = criteria.AtFullLength(sequence->progress);
  }
}

}  // namespace espalier
