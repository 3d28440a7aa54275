// BestTokens: keeps the m best of a stream of scored tokens. The caller skips
// nearly all tokens with one comparison against a threshold. The others gather
// in a buffer of a few times m, which is pruned to m whenever it is full. A
// token costs constant time on average, in any order of scores.
//
// The order is that of score_key.h; a score of -inf is never kept.
//
// Thread safety: one thread.
//
//   BestTokens best(2, 4);
//   for (TokenId t = 0; t < 4; ++t) best.Add(scores[t], t);
//   best.Take();  // scores 3 5 5 4: the keys of tokens 1 and 2
#pragma once

#include <cstddef>
#include <vector>

#include "base/ids.h"
#include "kernels/logits/score_key.h"

namespace espalier {

// Prunes `keys` to the best `count`, best first.
void KeepBestSorted(size_t count, std::vector<ScoreKey>& keys);

class BestTokens {
 public:
  // Keeps `num_best` of a stream of at most `num_tokens`.
  // REQUIRES: 1 <= num_best <= num_tokens.
  BestTokens(int num_best, int num_tokens);

  // A score that is not above this is ignored. Never falls.
  float threshold() const { return threshold_; }

  // REQUIRES: score not NaN; `token` is above all tokens added before.
  void Add(float score, TokenId token) {
    if (!(score > threshold_)) return;
    keys_.push_back(MakeScoreKey(score, token));
    if (keys_.size() == capacity_) Prune();
  }

  // Returns the kept keys in no particular order, and clears them.
  std::vector<ScoreKey> Take() {
    return TakeIf([](ScoreKey) { return true; });
  }
  // As Take(), but returns only the keys that pass.
  // REQUIRES: if a score passes, so do all higher ones.
  template <typename Passes>
  std::vector<ScoreKey> TakeIf(const Passes& passes) {
    std::erase_if(keys_, [&](ScoreKey key) { return !passes(key); });
    return TakeAll();
  }

 private:
  std::vector<ScoreKey> TakeAll();

  // Drops all but the best, and raises the threshold to the worst of them: a
  // later token of that score is a higher token and loses the tie.
  void Prune();

  size_t num_best_;
  size_t capacity_;
  float threshold_;
  std::vector<ScoreKey> keys_;
};

}  // namespace espalier
