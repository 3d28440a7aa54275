// BestCandidates: the m best continuations of a group, added row by row, from
// several threads and in any order. The continuations so far give a lower bound
// for those that still matter, so that later rows need not be ranked
// completely. At most a few times m are kept, however many rows there are. The
// result is that of MergeCandidates (merge_candidates.h) for all rows.
//
// With many tokens that end a sequence, m is large, so that enough
// continuations remain that do not end. Ending continuations that rank too low
// to matter are then dropped.
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
  // Keeps the best `num_best`, but after the first 2 * num_beams only
  // continuations whose token is not in `ending`, until there are num_beams of
  // them. `ending` is ascending and outlives this object.
  // REQUIRES: num_best, num_beams >= 1.
  BestCandidates(int num_best, int num_beams, std::span<const TokenId> ending);

  // Continuations with a lower sum are not in the result. Never falls.
  float min_sum() const { return min_sum_.load(std::memory_order_relaxed); }

  // Adds the tokens of beam `beam`. Throws std::bad_alloc.
  // REQUIRES: no token of a beam comes twice; no log_prob is NaN.
  void Add(int beam, std::span<const TokenScore> tokens, float cum_log_prob);

  // Returns the result, best first, and clears it.
  std::vector<Candidate> Take();

 private:
  bool Ends(const Candidate& candidate) const;
  // Drops all but the best so far.
  // REQUIRES: mutex_ is held.
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
