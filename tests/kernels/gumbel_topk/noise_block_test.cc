#include "kernels/gumbel_topk/noise_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "kernels/gumbel_topk/gumbel_topk.h"
#include "tests/kernels/each_target.h"

namespace espalier {
namespace {

constexpr double kDoubleInf = std::numeric_limits<double>::infinity();

using NoiseBlockTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, NoiseBlockTest, EachTarget(), TargetTestName);

std::vector<float> RandomScores(float deviation, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(5, deviation);
  std::vector<float> scores(kChunkSize);
  for (float& s : scores) s = normal(random);
  scores[seed % kChunkSize] = -std::numeric_limits<float>::infinity();
  return scores;
}

TEST_P(NoiseBlockTest, WordsAreThoseOfTheNoise) {
  const RandomKey key = GumbelKey(0xFEDCBA9876543210u, 3, 0x87654321u);
  const TokenId first = 0x7FFFFF00;
  uint32_t words[2 * kChunkSize];
  WriteNoiseWords(first, 2 * kChunkSize, key, words);
  for (int i = 0; i < 2 * kChunkSize; ++i) {
    const RandomWords random = WordsAt(key, (first + i) / 2);
    EXPECT_EQ(words[i], random.words[i % 2 == 0 ? 0 : 2]) << i;
  }
}

// Thresholds at, and just below, what tokens have: where rounding decides.
TEST_P(NoiseBlockTest, MissesNoTokenAboveTheThreshold) {
  int num_found = 0, num_above = 0, num_tokens = 0;
  for (const float temperature : {1.0f, 0.7f, 1e-3f, 100.0f, 1e-38f}) {
    for (const float deviation : {0.0f, 3.0f, 1e6f, 1e38f}) {
      for (int seed = 0; seed < 20; ++seed) {
        const std::vector<float> scores = RandomScores(deviation, seed);
        const RandomKey key = GumbelKey(seed * 0x123456789ull, seed, 77);
        const TokenId first = seed * 62;
        uint32_t words[kChunkSize];
        WriteNoiseWords(first, kChunkSize, key, words);
        const float max = *std::max_element(scores.begin(), scores.end());
        const auto gumbel_top_k = [&](int i) {
          return double{scores[i] / temperature} + Gumbel(key, first + i);
        };
        for (int at = -1; at < kChunkSize; at += 3) {
          const double threshold = at < 0 ? -kDoubleInf : gumbel_top_k(at);
          if (std::isnan(threshold) || threshold == kDoubleInf) continue;
          const uint64_t found =
              MayExceed(scores.data(), words,
                        {.max = max,
                         .temperature = temperature,
                         .value_of_max = max / temperature,
                         .threshold = std::nextafter(threshold, -kDoubleInf)});
          for (int i = 0; i < kChunkSize; ++i) {
            const bool is_found = (found >> i & 1) != 0;
            const bool above =
                gumbel_top_k(i) >= threshold && gumbel_top_k(i) > -kDoubleInf;
            EXPECT_TRUE(is_found || !above)
                << temperature << " " << deviation << " " << i;
            num_found += is_found;
            num_above += above;
            ++num_tokens;
          }
        }
      }
    }
  }
  std::printf("%d found, %d above, of %d\n", num_found, num_above, num_tokens);
}

// Otherwise it is no use.
TEST_P(NoiseBlockTest, FindsFewTokensBelowTheThreshold) {
  int num_found = 0, num_above = 0;
  for (int seed = 0; seed < 200; ++seed) {
    const std::vector<float> scores = RandomScores(1, seed);
    const RandomKey key = GumbelKey(seed, 1, 2);
    const float max = *std::max_element(scores.begin(), scores.end());
    const double threshold = max + 1;
    uint32_t words[kChunkSize];
    WriteNoiseWords(0, kChunkSize, key, words);
    const uint64_t found =
        MayExceed(scores.data(), words,
                  {.max = max, .value_of_max = max, .threshold = threshold});
    num_found += std::popcount(found);
    for (int i = 0; i < kChunkSize; ++i) {
      num_above += scores[i] + Gumbel(key, i) > threshold;
    }
  }
  EXPECT_GT(num_above, 100);
  EXPECT_LT(num_found, 2 * num_above);
}

}  // namespace
}  // namespace espalier
