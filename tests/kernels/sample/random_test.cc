#include "kernels/sample/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "kernels/gumbel_topk/gumbel.h"
#include "tests/p_value.h"

namespace espalier {
namespace {

std::array<uint32_t, 4> WordsOf(RandomWords counter, uint64_t seed) {
  const RandomWords random = Philox(counter, seed);
  return std::to_array(random.words);
}

// Known-answer tests of Random123.
TEST(PhiloxTest, GivesTheKnownAnswers) {
  EXPECT_EQ(WordsOf({{0, 0, 0, 0}}, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c,
                                     0x9b00dbd8}));
  EXPECT_EQ(WordsOf({{~0u, ~0u, ~0u, ~0u}}, ~uint64_t{0}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6,
                                     0x6d5451fd}));
  EXPECT_EQ(WordsOf({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
                    0x299f31d0a4093822),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420,
                                     0x24126ea1}));
}

TEST(UniformTest, NeitherEndComesOut) {
  EXPECT_EQ(UniformOf(0, 0), 0x1p-53);
  EXPECT_EQ(UniformOf(~0u, ~0u), 1 - 0x1p-53);
}

TEST(UniformTest, EveryPartOfTheKeyCounts) {
  const RandomKey key = {.seed = 5, .sample = 1, .position = 2};
  std::vector<double> all = {Uniform(key, 0), Uniform(key, 1)};
  RandomKey other = key;
  other.seed += uint64_t{1} << 40;
  all.push_back(Uniform(other, 0));
  other = key;
  ++other.sample;
  all.push_back(Uniform(other, 0));
  other = key;
  ++other.position;
  all.push_back(Uniform(other, 0));
  other = key;
  other.purpose = RandomPurpose::kGumbelNoise;
  all.push_back(Uniform(other, 0));
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]) << i << " " << j;
  }
}

TEST(GumbelTest, HasItsDistributionAlongTokensAndAlongPositions) {
  constexpr int kCells = 100, kDraws = 200000;
  for (const bool along_tokens : {true, false}) {
    std::vector<int64_t> counts(kCells);
    for (int i = 0; i < kDraws; ++i) {
      const RandomKey key = {.seed = 3,
                             .position = uint32_t(along_tokens ? 0 : i),
                             .purpose = RandomPurpose::kGumbelNoise};
      const double noise = Gumbel(key, along_tokens ? i : 7);
      ++counts[static_cast<int>(kCells * std::exp(-std::exp(-noise)))];
    }
    EXPECT_GT(testing::ChiSquarePValue(
                  std::vector<double>(kCells, 1.0 / kCells), counts),
              1e-6);
  }
}

TEST(GumbelTest, TheTailIsNotCutWhereFloatsWouldEnd) {
  EXPECT_NEAR(GumbelOf(1 - 0x1p-53), 36.74, 0.01);
  EXPECT_NEAR(GumbelOf(0x1p-53), -3.604, 0.001);
}

}  // namespace
}  // namespace espalier
