#include "kernels/logits/best_tokens.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/check.h"
#include "hwy/contrib/sort/vqsort.h"

namespace espalier {
namespace {

// Pruning c * m keys costs about c * m, and log_c(tokens / m) prunings are
// expected of a row in random order: the total is least near c = e.
constexpr size_t kCapacityFactor = 3;
// Below this, the cost is that of the pruning call itself.
constexpr size_t kMinCapacity = 64;
// From here on a vector sort is faster: 6 times at 10,000 keys.
constexpr size_t kMinVectorSort = 64;

void KeepBest(size_t count, std::vector<ScoreKey>& keys) {
  if (keys.size() <= count) return;
  std::nth_element(keys.begin(), keys.begin() + count, keys.end(),
                   std::greater<>());
  keys.resize(count);
}

}  // namespace

void KeepBestSorted(size_t count, std::vector<ScoreKey>& keys) {
  KeepBest(count, keys);
  if (keys.size() < kMinVectorSort) {
    std::sort(keys.begin(), keys.end(), std::greater<>());
  } else {
    hwy::Sorter()(keys.data(), keys.size(), hwy::SortDescending());
  }
}

BestTokens::BestTokens(int num_best, int num_tokens)
    : num_best_(num_best),
      capacity_(std::max(kCapacityFactor * num_best_, kMinCapacity)),
      threshold_(-std::numeric_limits<float>::infinity()) {
  CHECK(1 <= num_best && num_best <= num_tokens)
      << num_best << " best of " << num_tokens << " tokens";
  keys_.reserve(std::min<size_t>(capacity_, num_tokens));
}

std::vector<ScoreKey> BestTokens::TakeAll() {
  KeepBest(num_best_, keys_);
  return std::exchange(keys_, {});
}

void BestTokens::Prune() {
  KeepBest(num_best_, keys_);
  threshold_ = ScoreOf(*std::min_element(keys_.begin(), keys_.end()));
}

}  // namespace espalier
