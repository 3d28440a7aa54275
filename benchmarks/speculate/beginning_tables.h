// BeginningTables: the first tokens of samples, as distributions to compare.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "benchmarks/speculate/two_sample_test.h"
#include "espalier/generator.h"

namespace espalier::verify_speculation {

// The tokens at the beginning of a text that are compared as distributions. No
// draft is verified at the first place, which a prompt's step draws.
inline constexpr int kCountedTokens = 4;

// One observation of each table for each sample.
class BeginningTables {
 public:
  // Each place after the first, and each pair of neighbours.
  static constexpr int kNumTables = 2 * (kCountedTokens - 1);

  void Add(const Generation& generation) {
    for (const Hypothesis& hypothesis : generation.hypotheses) {
      const auto token = [&](size_t place) -> int64_t {
        const auto& tokens = hypothesis.tokens;
        return place < tokens.size() ? tokens[place] : -1;  // after the end
      };
      for (int i = 1; i < kCountedTokens; ++i) {
        tables_[2 * i - 2].push_back(token(i));
        tables_[2 * i - 1].push_back(token(i - 1) * (int64_t{1} << 32) +
                                     token(i));
      }
    }
  }
  int num_samples() const { return static_cast<int>(tables_[0].size()); }

  // Returns the p-value of the hypothesis that all tables of both have one
  // distribution: the least p-value times the number of tables (Bonferroni).
  // P-values below `least` need not be exact.
  double PValue(const BeginningTables& other, double least) const {
    const auto max_rounds =
        static_cast<int64_t>(2 * TwoSampleTest::kEnough * kNumTables / least);
    double p_value = 1;
    for (int i = 0; i < kNumTables; ++i) {
      const TwoSampleTest test(tables_[i], other.tables_[i]);
      p_value = std::min(p_value, kNumTables * test.PValue(max_rounds, i + 1));
    }
    return p_value;
  }

 private:
  std::vector<int64_t> tables_[kNumTables];
};

}  // namespace espalier::verify_speculation
