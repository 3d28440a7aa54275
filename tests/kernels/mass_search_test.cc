#include "kernels/mass_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "tests/kernels/each_target.h"
#include "tests/kernels/row_cases.h"

namespace espalier {
namespace {

using MassSearchTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, MassSearchTest, EachTarget(), TargetTestName);

// Weights that sums in float32 do not round.
struct Tokens {
  std::vector<float> values, weights;
  std::vector<WeightedBlock> blocks;
};

Tokens RandomTokens(const std::string& kind, int num_blocks, int seed) {
  Tokens tokens;
  std::mt19937 random(seed);
  const int size = num_blocks * 1024;
  tokens.values = Row(kind, size);
  for (float& v : tokens.values) v = std::isnan(v) ? -kInf : v;
  for (int i = 0; i < size; ++i) {
    const float heavy = random() % 50 == 0 ? 64.0f : 1.0f;
    tokens.weights.push_back(heavy * (1 + random() % 3));
  }
  for (int b = 0; b < num_blocks; ++b) {
    tokens.blocks.push_back({&tokens.values[b * 1024],
                             &tokens.weights[b * 1024], 1024,
                             b % 2 == 0 ? 1.0f : 0.5f});
  }
  return tokens;
}

struct Weighted {
  float key;
  double weight;
};

// By sorting.
float Oracle(const Tokens& tokens, const KeyRule& rule, double bound) {
  std::vector<Weighted> sorted;
  for (const WeightedBlock& block : tokens.blocks) {
    for (int i = 0; i < block.size; ++i) {
      const float key = rule.KeyOf(block.values[i]);
      if (key > -kInf) {
        sorted.push_back({key, double{block.scale} * block.weights[i]});
      }
    }
  }
  std::ranges::sort(sorted, std::greater<>(), &Weighted::key);
  float cut = sorted.front().key;
  double sum = 0;
  for (const Weighted& t : sorted) {
    if (t.key != cut && sum >= bound) break;
    cut = t.key;
    sum += t.weight;
  }
  return cut;
}

TEST_P(MassSearchTest, FindsWhatSortingFinds) {
  for (const std::string kind : {"normal", "ties", "near ties", "constant",
                                 "rising", "peak", "holes", "outliers"}) {
    for (const int num_blocks : {1, 2, 9, 40}) {
      const Tokens tokens = RandomTokens(kind, num_blocks, num_blocks);
      for (const KeyRule& rule :
           {KeyRule{}, KeyRule{.low = -0.5f},
            KeyRule{.by_distance = true, .origin = 3, .center = -2.5f}}) {
        const double total = [&] {
          double sum = 0;
          for (const WeightedBlock& b : tokens.blocks) {
            for (int i = 0; i < b.size; ++i) {
              if (rule.KeyOf(b.values[i]) > -kInf) {
                sum += double{b.scale} * b.weights[i];
              }
            }
          }
          return sum;
        }();
        if (total == 0) continue;
        for (const double share : {1e-9, 0.01, 0.3, 0.5, 0.9, 0.999, 1.0}) {
          const double bound = share * total;
          const Cut cut = FindCut(tokens.blocks, rule, bound, total);
          const float expected = Oracle(tokens, rule, bound);
          // A key between two tokens' does as well.
          for (size_t b = 0; b < tokens.blocks.size(); ++b) {
            const WeightedBlock& block = tokens.blocks[b];
            double mass = 0;
            for (int i = 0; i < block.size; ++i) {
              const float key = rule.KeyOf(block.values[i]);
              EXPECT_EQ(key > -kInf && key >= cut.key, key >= expected)
                  << kind << " " << share;
              if (key >= expected)
                mass += double{block.scale} * block.weights[i];
            }
            EXPECT_EQ(cut.masses[b], mass) << kind << " " << share;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace espalier
