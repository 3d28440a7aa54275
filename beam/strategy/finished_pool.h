// FinishedPool: the best hypotheses of a beam search so far, best first, at
// most `capacity`. A better one replaces the worst of a full pool. Among equal
// scores the earlier one ranks higher.
#pragma once

#include <vector>

#include "beam/strategy/token_tree.h"
#include "request/request.h"

namespace espalier {

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

  // Adds `beam` if the pool is not full or it beats the worst.
  void Add(const FinishedBeam& beam);

  int size() const { return static_cast<int>(beams_.size()); }
  bool full() const { return size() == capacity_; }
  // Returns the worst score. REQUIRES: not empty.
  float worst_score() const { return beams_.back().score; }
  const std::vector<FinishedBeam>& beams() const { return beams_; }

 private:
  int capacity_;
  std::vector<FinishedBeam> beams_;
};

}  // namespace espalier
