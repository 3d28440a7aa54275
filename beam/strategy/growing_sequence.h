// GrowingSequence: a sequence that grows by one token per step until a token
// ends it, and is constant afterwards: a sample, or a sequence of a search
// whose finished sequences keep competing.
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
  std::optional<FinishReason> finish_reason = {};  // unset while it lives
  StoppingCriteria::Progress progress = {};
};

// Appends `candidate` to `*sequence`, a path of `*tree`, and takes its sum. If
// `is_last`, the sequence ends by length unless it ends otherwise.
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
