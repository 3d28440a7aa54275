// TwoSampleTest: a permutation test of the hypothesis that two samples come
// from one distribution. If they do, the assignment of observations to samples
// is random; so the statistic of the two is compared with that of random
// redistributions of the same observations. This needs no assumption about
// small counts, and its p-values are valid at any size: P(p <= x) <= x.
//
// The statistic is Pearson's: the sum over cells of (a/n - b/m)^2 / (a + b) for
// a of n observations there and b of m. Cells of fewer than kLeastCount
// observations in all count as one.
//
// If p is not small, a few rounds show it: as soon as kEnough of them have a
// statistic at least as large, p is kEnough / rounds (Besag and Clifford 1991,
// Sequential Monte Carlo p-values).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace espalier::verify_speculation {

class TwoSampleTest {
 public:
  static constexpr int kLeastCount = 10;
  static constexpr int kEnough = 20;

  // Each observation is the number of its cell.
  TwoSampleTest(std::span<const int64_t> a, std::span<const int64_t> b)
      : num_a_(a.size()), num_b_(b.size()) {
    std::map<int64_t, int> counts;
    for (const int64_t cell : a) ++counts[cell];
    for (const int64_t cell : b) ++counts[cell];
    std::map<int64_t, int> numbers;
    totals_.push_back(0);  // cell 0: all rare cells
    for (const auto& [cell, count] : counts) {
      const bool is_rare = count < kLeastCount;
      numbers[cell] = is_rare ? 0 : static_cast<int>(totals_.size());
      if (!is_rare) totals_.push_back(0);
    }
    for (const int64_t cell : a) cells_.push_back(numbers[cell]);
    for (const int64_t cell : b) cells_.push_back(numbers[cell]);
    for (const int cell : cells_) ++totals_[cell];
  }

  // In (0, 1], as far down as 1 / (max_rounds + 1).
  double PValue(int64_t max_rounds, uint64_t seed) const {
    if (num_a_ == 0 || num_b_ == 0 || totals_.size() < 2) return 1;
    std::mt19937_64 random(seed);
    std::vector<int> dealt = cells_;
    const double seen = Statistic(dealt);
    int num_as_great = 0;
    for (int64_t round = 1; round <= max_rounds; ++round) {
      Deal(random, &dealt);
      // Sums of the same terms in another order are the same statistic.
      num_as_great += Statistic(dealt) >= seen * (1 - 1e-12);
      if (num_as_great == kEnough) return static_cast<double>(kEnough) / round;
    }
    return (num_as_great + 1.0) / (max_rounds + 1.0);
  }

 private:
  // The first of `dealt` become sample a.
  void Deal(std::mt19937_64& random, std::vector<int>* dealt) const {
    const size_t size = dealt->size();
    for (size_t i = 0; i < num_a_; ++i) {
      const size_t j =
          std::uniform_int_distribution<size_t>(i, size - 1)(random);
      std::swap((*dealt)[i], (*dealt)[j]);
    }
  }

  double Statistic(std::span<const int> dealt) const {
    std::vector<int> counts(totals_.size());
    for (size_t i = 0; i < num_a_; ++i) ++counts[dealt[i]];
    double sum = 0;
    for (size_t cell = 0; cell < totals_.size(); ++cell) {
      if (totals_[cell] == 0) continue;
      const double difference =
          static_cast<double>(counts[cell]) / num_a_ -
          static_cast<double>(totals_[cell] - counts[cell]) / num_b_;
      sum += difference * difference / totals_[cell];
    }
    return sum;
  }

  const size_t num_a_, num_b_;
  std::vector<int> cells_;   // first a's observations, then b's
  std::vector<int> totals_;  // observations by cell
};

}  // namespace espalier::verify_speculation
