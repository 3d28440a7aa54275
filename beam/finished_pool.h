// FinishedPool: the best hypotheses of a beam search so far, best first, at
// most `capacity` of them; a better one replaces the worst of a full pool.
// Among equal scores the earlier one is the better.
#pragma once

#include <vector>

#include "beam/token_tree.h"
#include "exec_request/request.h"

namespace espalier {

// cum_log_prob / length^length_penalty, each operation rounded to float32 as
// in the reference. `length` counts generated tokens, an EOS included.
// Source: transformers 5 `_beam_search`; a power instead of Wu et al. 2016,
// https://arxiv.org/abs/1609.08144, equation 14.
float LengthPenalizedScore(float cum_log_prob, int length,
                           double length_penalty);

struct FinishedBeam {
  TokenTree::Node node = TokenTree::kRoot;
  float score = 0;
  float cum_log_prob = 0;
  FinishReason finish_reason = FinishReason::kEos;
};

class FinishedPool {
 public:
  // REQUIRES: capacity >= 1.
  explicit FinishedPool(int capacity) : capacity_(capacity) {}

  // Takes `beam` if the pool is not full or it beats the worst.
  void Add(const FinishedBeam& beam);

  bool full() const { return static_cast<int>(beams_.size()) == capacity_; }
  // Score of the worst. REQUIRES: not empty.
  float worst_score() const { return beams_.back().score; }
  const std::vector<FinishedBeam>& beams() const { return beams_; }

 private:
  int capacity_;
  std::vector<FinishedBeam> beams_;
};

}  // namespace espalier
