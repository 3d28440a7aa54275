#include "kernels/select/best_candidates.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace espalier {
namespace {

bool ComesFirst(const Candidate& a, const Candidate& b) {
  if (a.cum_log_prob != b.cum_log_prob) return a.cum_log_prob > b.cum_log_prob;
  if (a.beam != b.beam) return a.beam < b.beam;
  return a.token < b.token;
}

}  // namespace

BestCandidates::BestCandidates(int num_best)
    : num_best_(num_best), num_beams_(0) {
  CHECK_GE(num_best, 1);
}

BestCandidates::BestCandidates(int num_best, int num_beams,
                               std::span<const TokenId> ending)
    : num_best_(std::min<int64_t>(num_best, int64_t{2} * num_beams)),
      num_beams_(num_beams),
      ending_(ending) {
  CHECK_GE(num_best, 1);
  CHECK_GE(num_beams, 1);
}

bool BestCandidates::Ends(const Candidate& candidate) const {
  return std::ranges::binary_search(ending_, candidate.token);
}

void BestCandidates::Add(int beam, std::span<const TokenScore> tokens,
                         float cum_log_prob) {
  const std::lock_guard lock(mutex_);
  const float min_sum = this->min_sum();
  for (const TokenScore& t : tokens) {
    // A sum of -inf, or NaN from the beam's own sum, is no continuation.
    const float sum = cum_log_prob + t.log_prob;
    if (!(sum > -std::numeric_limits<float>::infinity()) || sum < min_sum) {
      continue;
    }
    candidates_.push_back({beam, t.token, sum});
  }
  if (candidates_.size() >= 2 * (num_best_ + num_beams_)) Prune();
}

void BestCandidates::Prune() {
  if (candidates_.size() < num_best_) return;
  const auto last = candidates_.begin() + (num_best_ - 1);
  std::nth_element(candidates_.begin(), last, candidates_.end(), ComesFirst);
  if (num_beams_ > 0) return PruneEnding();
  candidates_.resize(num_best_);
  min_sum_.store(candidates_.back().cum_log_prob, std::memory_order_relaxed);
}

// The first num_best_ are in front. After them only continuations that do not
// end are kept, until there are num_beams_ of them in all.
void BestCandidates::PruneEnding() {
  const auto after = candidates_.begin() + num_best_;
  const size_t num_lasting = std::count_if(
      candidates_.begin(), after, [&](const Candidate& c) { return !Ends(c); });
  if (num_lasting >= num_beams_) {
    min_sum_.store((after - 1)->cum_log_prob, std::memory_order_relaxed);
    candidates_.resize(num_best_);
    return;
  }
  candidates_.erase(std::remove_if(after, candidates_.end(),
                                   [&](const Candidate& c) { return Ends(c); }),
                    candidates_.end());
  const size_t num_kept = num_best_ + num_beams_ - num_lasting;
  if (candidates_.size() < num_kept) return;
  const auto last = candidates_.begin() + (num_kept - 1);
  std::nth_element(candidates_.begin() + num_best_, last, candidates_.end(),
                   ComesFirst);
  candidates_.resize(num_kept);
  min_sum_.store(candidates_.back().cum_log_prob, std::memory_order_relaxed);
}

std::vector<Candidate> BestCandidates::Take() {
  const std::lock_guard lock(mutex_);
  if (candidates_.size() > num_best_) Prune();
  std::sort(candidates_.begin(), candidates_.end(), ComesFirst);
  return std::exchange(candidates_, {});
}

}  // namespace espalier
