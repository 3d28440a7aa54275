#include "kernels/sample/top_p_threshold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "tests/kernels/each_target.h"
#include "tests/kernels/row_cases.h"

namespace espalier {
namespace {

using TopPThresholdTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, TopPThresholdTest, EachTarget(),
                         TargetTestName);

// Weights that sums in float32 do not round.
struct TokenBlocks {
  std::vector<float> values, weights;
  std::vector<WeightedBlock> blocks;
};

TokenBlocks RandomTokens(const std::string& kind, int num_blocks, int seed) {
  TokenBlocks tokens;
  std::mt19937 random(seed);
  const int size = num_blocks * 1024;
  tokens.values = Row(kind, size);
  for (float& v : tokens.values) v = std::isnan(v) ? -kInf : v;
  for (int i = 0; i < size; ++i) {
    const float heavy = random() % 50 == 0 ? 64.0f : 1.0f;
    tokens.weights.push_back(heavy * (1 + random() % 3));
  }
  for (int b = 0; b < num_blocks; ++b) {
    tokens.blocks.push_back({.values = &tokens.values[b * 1024],
                             .weights = &tokens.weights[b * 1024],
                             .size = 1024});
  }
  return tokens;
}

struct Weighted {
  float key;
  double weight;
};

// By sorting.
float SortedOracle(const TokenBlocks& tokens, const KeyRule& rule,
                   double bound) {
  std::vector<Weighted> sorted;
  for (const WeightedBlock& block : tokens.blocks) {
    for (int i = 0; i < block.size; ++i) {
      const float key = rule.KeyOf(block.values[i]);
      if (key > -kInf) {
        sorted.push_back({key, block.weights[i]});
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

TEST_P(TopPThresholdTest, FindsWhatSortingFinds) {
  for (const std::string kind : {"normal", "ties", "near ties", "constant",
                                 "rising", "peak", "holes", "outliers"}) {
    for (const int num_blocks : {1, 2, 9, 40}) {
      const TokenBlocks tokens = RandomTokens(kind, num_blocks, num_blocks);
      for (const KeyRule& rule :
           {KeyRule{}, KeyRule{.low = -0.5f},
            KeyRule{.by_distance = true, .origin = 3, .center = -2.5f}}) {
        const double total = [&] {
          double sum = 0;
          for (const WeightedBlock& b : tokens.blocks) {
            for (int i = 0; i < b.size; ++i) {
              if (rule.KeyOf(b.values[i]) > -kInf) {
                sum += b.weights[i];
              }
            }
          }
          return sum;
        }();
        if (total == 0) continue;
        for (const double share : {1e-9, 0.01, 0.3, 0.5, 0.9, 0.999, 1.0}) {
          const double bound = share * total;
          const Cut cut = FindThreshold(tokens.blocks, rule, {}, bound, total);
          const float expected = SortedOracle(tokens, rule, bound);
          // A key between two tokens' does as well.
          for (size_t b = 0; b < tokens.blocks.size(); ++b) {
            const WeightedBlock& block = tokens.blocks[b];
            double mass = 0;
            for (int i = 0; i < block.size; ++i) {
              const float key = rule.KeyOf(block.values[i]);
              EXPECT_EQ(key > -kInf && key >= cut.key, key >= expected)
                  << kind << " " << share;
              if (key >= expected) mass += block.weights[i];
            }
            EXPECT_EQ(cut.masses[b], mass) << kind << " " << share;
          }
        }
      }
    }
  }
}

TEST_P(TopPThresholdTest, AGapLiesBetweenNeighbouringKeys) {
  constexpr int kSize = kChunkSize * 3;
  for (const std::string kind : {"normal", "ties", "constant", "holes"}) {
    std::vector<float> keys = Row(kind, kSize);
    for (float& key : keys) key = std::isnan(key) ? -kInf : key;
    std::vector<float> cuts = {-1e30f, -0.0f, 0.37f, 1e30f, kInf};
    for (int i = 0; i < kSize; i += 7) {
      cuts.push_back(keys[i]);
      cuts.push_back(std::nextafter(keys[i], kInf));
    }
    for (const float cut : cuts) {
      KeyGap expected;
      for (const float key : keys) {
        if (key < cut) expected.below = std::max(expected.below, key);
        if (key >= cut) expected.from = std::min(expected.from, key);
      }
      const KeyGap gap = GapAround(keys.data(), kSize, cut);
      EXPECT_EQ(gap.below, expected.below) << kind << " " << cut;
      EXPECT_EQ(gap.from, expected.from) << kind << " " << cut;
    }
  }
}

// Weights given by a rule are not stored, and scores far from the cut are not
// weighed: the cut is the same, except for the rounding of sums.
TEST_P(TopPThresholdTest, WeightsOfARuleGiveWhatStoredWeightsGive) {
  constexpr int kBlocks = 9, kSize = kBlocks * 1024;
  for (const std::string kind :
       {"normal", "ties", "constant", "rising", "peak", "outliers"}) {
    const std::vector<float> values = Row(kind, kSize);
    const float max = *std::ranges::max_element(values);
    for (const WeightRule& weight_rule :
         {WeightRule{.max = max}, WeightRule{.max = max, .temperature = 0.3f},
          WeightRule{.max = max, .temperature = 30}}) {
      std::vector<float> weights(kSize);
      WeighBlock(values.data(), kSize, weight_rule, weights.data());
      for (const KeyRule& rule :
           {KeyRule{}, KeyRule{.low = max - 3},
            KeyRule{.by_distance = true, .origin = max, .center = -1.5f}}) {
        TokenBlocks stored, told;
        double total = 0;
        for (int b = 0; b < kBlocks; ++b) {
          const float* const block = &values[b * 1024];
          const double mass = MassOfBlock(block, &weights[b * 1024], 1024, rule,
                                          std::numeric_limits<float>::lowest());
          stored.blocks.push_back(
              {.values = block, .weights = &weights[b * 1024], .size = 1024});
          told.blocks.push_back(
              {.values = block,
               .size = 1024,
               .mass = mass,
               .max = *std::max_element(block, block + 1024)});
          total += mass;
        }
        for (const double share : {0.01, 0.2, 0.3, 0.5, 0.9, 0.999}) {
          const double bound = share * total;
          const Cut cut =
              FindThreshold(told.blocks, rule, weight_rule, bound, total);
          const double slack = 2e-6 * total;
          const Cut more =
              FindThreshold(stored.blocks, rule, {}, bound + slack, total);
          const Cut less = FindThreshold(stored.blocks, rule, {},
                                         std::max(bound - slack, 1e-30), total);
          EXPECT_GE(cut.key, more.key) << kind << " " << share;
          EXPECT_LE(cut.key, less.key) << kind << " " << share;
          for (int b = 0; b < kBlocks; ++b) {
            const double mass = MassOfBlock(
                told.blocks[b].values, &weights[b * 1024], 1024, rule, cut.key);
            EXPECT_NEAR(cut.masses[b], mass, 1e-6 * told.blocks[b].mass)
                << kind << " " << share;
          }
        }
      }
    }
  }
}

// Returns the moment of all scores from `low` on, term by term.
double MomentFrom(const std::vector<float>& values, const WeightRule& rule,
                  float low) {
  double moment = 0;
  for (const float value : values) {
    if (value < low) continue;
    const double difference = double{value} - rule.max;
    const double exponent = std::max(difference / rule.temperature, -87.0);
    moment += std::exp(exponent) * exponent * rule.temperature;
  }
  return moment;
}

// Whichever side of the cut is weighed.
TEST_P(TopPThresholdTest, TheMomentBecomesThatOfWhatStays) {
  constexpr int kBlocks = 9, kSize = kBlocks * 1024;
  for (const std::string kind :
       {"normal", "ties", "constant", "rising", "peak", "outliers"}) {
    const std::vector<float> values = Row(kind, kSize);
    const float max = *std::ranges::max_element(values);
    for (const float temperature : {0.3f, 1.0f, 30.0f}) {
      const WeightRule weight_rule = {.max = max, .temperature = temperature};
      for (const KeyRule& rule : {KeyRule{}, KeyRule{.low = max - 3}}) {
        std::vector<WeightedBlock> blocks;
        double total = 0;
        for (int b = 0; b < kBlocks; ++b) {
          const float* const block = &values[b * 1024];
          blocks.push_back(
              {.values = block,
               .size = 1024,
               .mass =
                   SumsOfBlock(block, 1024, weight_rule, rule.low, false).mass,
               .max = *std::max_element(block, block + 1024)});
          total += blocks.back().mass;
        }
        const double whole = MomentFrom(values, weight_rule, rule.low);
        for (const double share : {0.01, 0.2, 0.3, 0.5, 0.9, 0.999}) {
          double moment = whole;
          const Cut cut = FindThreshold(blocks, rule, weight_rule,
                                        share * total, total, &moment);
          const float low = std::max(cut.key, rule.low);
          EXPECT_NEAR(moment, MomentFrom(values, weight_rule, low),
                      2e-6 * std::abs(whole))
              << kind << " " << share << " " << temperature;
        }
      }
    }
  }
}

}  // namespace
}  // namespace espalier
