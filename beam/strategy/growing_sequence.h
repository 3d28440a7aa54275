// GrowingSequence: a sequence that grows by a token a step until one ends it,
// and is kept from then on as it is: a sample, or a sequence of a search whose
// finished ones keep competing.
#pragma once

#include <optional>

#include "beam/strategy/stopping_criteria.h"
#include "beam/strategy/token_tree.h"
#include "kernels/select/select.h"
#include "request/request.h"

namespace espalier {

struct GrowingSequence {
  TokenTree::Node node = TokenTree::kRoot;
  int length = 0;  // tokens, the depth of `node`
  float cum_log_prob = 0;
  std::optional<FinishReason> finish_reason = {};  // unset: it lives
  StoppingCriteria::Progress progress = {};
};

// Takes `*sequence`, a path of `*tree`, on by `candidate`, whose sum becomes
// its own. If `is_last`, it ends by its length unless something else ends it.
// REQUIRES: it lives, and the token may follow.
inline void Grow(const Candidate& candidate, bool is_last,
                 const StoppingCriteria& criteria, TokenTree* tree,
                 GrowingSequence* sequence) {
  sequence->node = tree->Append(sequence->node, candidate.token);
  ++sequence->length;
  sequence->cum_log_prob = candidate.cum_log_prob;
  if (!criteria.IsIdle(candidate.token)) {
    sequence->finish_reason =
        criteria.Feed(candidate.token, &sequence->progress).hit;
  }
  if (is_last && !sequence->finish_reason.has_value()) {
    sequence->finish_reason = criteria.AtFullLength(sequence->progress);
  }
}

}  // namespace espalier
