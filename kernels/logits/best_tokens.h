// BestTokens: keeps the m best of a stream of scored tokens. Scores that
// cannot be among the best any more are skipped by a threshold, so the stream's
// reader skips nearly all of them with one comparison; the rest gather in a
// buffer of a few times m that is cut back to m whenever it fills up. A token
// costs constant time on average, in any order of scores.
//
// Better is as in score_key.h; a score of -inf is never kept.
//
// Thread safety: one thread.
//
//   BestTokens best(2, 4);
//   for (TokenId t = 0; t < 4; ++t) best.Add(scores[t], t);
//   best.Take();  // of scores 3 5 5 4: the keys of tokens 1 and 2
#pragma once

#include <cstddef>
#include <vector>

#include "base/ids.h"
#include "kernels/logits/score_key.h"

namespace espalier {

// Cuts `keys` to the best `count`, best first.
void KeepBestSorted(size_t count, std::vector<ScoreKey>& keys);

class BestTokens {
 public:
  // Keeps `num_best` of a stream of at most `num_tokens`.
  // REQUIRES: 1 <= num_best <= num_tokens.
  BestTokens(int num_best, int num_tokens);

  // A score that is not above this is ignored. Never falls.
  float threshold() const { return threshold_; }

  // REQUIRES: score not NaN; `token` above those added before.
  void Add(float score, TokenId token) {
    if (!(score > threshold_)) return;
    keys_.push_back(MakeScoreKey(score, token));
    if (keys_.size() == capacity_) Prune();
  }

  // What is kept, in no particular order, and leaves nothing behind.
  std::vector<ScoreKey> Take() {
    return TakeIf([](ScoreKey) { return true; });
  }
  // Of what is kept, the keys that pass; a score that does lets all higher ones
  // do so.
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
