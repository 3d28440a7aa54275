// BestCandidates: the m best continuations of a group, taken row by row, from
// several threads and in any order. What it has so far says how good a
// continuation must be to matter, so that rows taken later need not be ranked
// to the end; and no more than a few times m are ever kept, however many rows
// there are. The outcome is that of MergeCandidates (select.h) for all rows.
//
// Where many tokens end a sequence m is large, so that enough that do not are
// among the best; then what ends, and ranks too low to matter, is left out.
//
//   BestCandidates best(m);
//   // for each row, on any thread:
//   options.min_sum = best.min_sum();
//   best.Add(row, SelectRow(logits, options), cum_log_prob);
//   // when all have returned:
//   best.Take();
#pragma once

#include <atomic>
#include <cstddef>
#include <limits>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/select/select.h"

namespace espalier {

class BestCandidates {
 public:
  // REQUIRES: num_best >= 1.
  explicit BestCandidates(int num_best);
  // Of the best `num_best`, the 2 * num_beams first, and after them what is
  // among the first num_beams that end in none of `ending`, ascending, which
  // outlives this.
  // REQUIRES: num_best, num_beams >= 1.
  BestCandidates(int num_best, int num_beams, std::span<const TokenId> ending);

  // A continuation with a lower sum is not among those. Never falls.
  float min_sum() const { return min_sum_.load(std::memory_order_relaxed); }

  // Takes the tokens of beam `beam`. Throws std::bad_alloc.
  // REQUIRES: no token of a beam comes twice; no log_prob is NaN.
  void Add(int beam, std::span<const TokenScore> tokens, float cum_log_prob);

  // Those, best first. Leaves nothing behind.
  std::vector<Candidate> Take();

 private:
  bool Ends(const Candidate& candidate) const;
  // Drops what is not among the best so far. REQUIRES: mutex_ is held.
  void Prune();
  void PruneEnding();

  const size_t num_best_;
  const size_t num_beams_;  // 0: all of the best count
  const std::span<const TokenId> ending_;
  std::atomic<float> min_sum_{-std::numeric_limits<float>::infinity()};
  std::mutex mutex_;
  std::vector<Candidate> candidates_;  // guarded by mutex_
};

}  // namespace espalier
