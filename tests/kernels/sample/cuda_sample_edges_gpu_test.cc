// Draws on the device where the work is parted: edits, sums and searches that
// end at the borders of tiles, bins and blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string_view>
#include <tuple>
#include <vector>

#include "kernels/sample/cuda_sample.h"
#include "tests/few_cases.h"
#include "tests/kernels/row_cases.h"
#include "tests/kernels/sample/cuda_sample_oracle.h"

namespace espalier {
namespace {

constexpr DType kF32 = DType::kFloat32;
// 40 tiles, the last one in part.
constexpr int kSize = 40000;
// Compute capability without clusters.
constexpr int kNoClusters = 80;

// Greedy, few tokens, and searches.
std::vector<SamplingParams> SomeParams() {
  return {{.temperature = 0},
          {.temperature = 0, .top_k = 3},
          {.temperature = 0.9f},
          {.temperature = 0.8f, .min_p = 0.02f, .top_k = 50, .top_p = 0.9f},
          {.temperature = 2, .top_k = 700},
          {.top_p = 0.9f},
          {.temperature = 2, .typical_p = 0.95f}};
}

SampledRow RowOf(std::vector<float> logits, const SamplingParams& params,
                 std::vector<TokenEdit> edits = {}) {
  SampledRow row = {.logits = std::move(logits),
                    .options = {.params = params},
                    .edits = std::move(edits),
                    .cum_log_prob = -1,
                    .num_draws = 8};
  row.options.repetition_penalty = 1.2f;
  row.options.params.seed = 99;
  return row;
}

// The row with all params, and with its edited tokens alone.
void ExpectEqualsTheTwin(const std::vector<float>& logits,
                         const std::vector<TokenEdit>& edits) {
  std::vector<SampledRow> rows;
  for (const SamplingParams& params : SomeParams()) {
    rows.push_back(RowOf(logits, params, edits));
    rows.push_back(rows.back());
    rows.back().options.is_allow_list = true;
  }
  for (const DType dtype : {kF32, DType::kBFloat16}) {
    ASSERT_NO_FATAL_FAILURE(ExpectEqualsTheTwin(rows, dtype));
  }
  // In one launch.
  for (SampledRow& row : rows) {
    row.num_draws = 2;
    ASSERT_NO_FATAL_FAILURE(ExpectEqualsTheTwin({row}, kF32));
  }
}

std::vector<TokenEdit> EditsOf(const std::vector<TokenId>& tokens) {
  std::vector<TokenEdit> edits;
  for (const TokenId token : tokens) {
    edits.push_back({.token = token,
                     .banned = edits.size() % 5 == 4,
                     .repeated = edits.size() % 3 == 0,
                     .bias = edits.size() % 2 == 0 ? 6.0f : 0.0f,
                     .penalty = -2.0f});
  }
  return edits;
}

TEST(CudaSampleEdgesTest, TakesEditsAtTheBordersOfTilesAndBlocks) {
  std::vector<TokenId> tokens;
  for (int border = 512; border < kSize; border += 512) {
    tokens.push_back(border - 1);
    tokens.push_back(border);
  }
  tokens.push_back(kSize - 1);
  tokens.insert(tokens.begin(), 0);
  ExpectEqualsTheTwin(Row("normal", kSize), EditsOf(tokens));
}

TEST(CudaSampleEdgesTest, TakesAllEditsInOneTile) {
  std::vector<TokenId> tokens(1024);
  std::iota(tokens.begin(), tokens.end(), 9 * 1024);
  ExpectEqualsTheTwin(Row("normal", kSize), EditsOf(tokens));
}

TEST(CudaSampleEdgesTest, ABannedMaximumIsNotDrawn) {
  std::vector<float> logits = Row("normal", kSize);
  logits[12345] = 40;
  std::vector<SampledRow> rows;
  for (const SamplingParams& params : SomeParams()) {
    rows.push_back(RowOf(logits, params, {{.token = 12345, .banned = true}}));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectEqualsTheTwin(rows, kF32));
  for (const auto& draws : DrawOnDevice(rows, kF32)) {
    for (const Candidate& draw : draws) EXPECT_NE(draw.token, 12345);
  }
}

TEST(CudaSampleEdgesTest, TakesTenThousandEdits) {
  std::vector<TokenId> tokens(kSize);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::ranges::shuffle(tokens, std::mt19937(1));
  tokens.resize(10000);
  std::ranges::sort(tokens);
  ExpectEqualsTheTwin(Row("normal", kSize), EditsOf(tokens));
}

// A warp that looks for a tile's first edit ends at 32 of the tile before it,
// one a lane.
TEST(CudaSampleEdgesTest, TakesAWarpAndOneMoreInEachTile) {
  std::vector<TokenId> tokens;
  for (int tile = 0; tile < 32; ++tile) {
    for (int i = 0; i < 33; ++i) tokens.push_back(tile * 1024 + i * 31);
  }
  ExpectEqualsTheTwin(Row("normal", kSize), EditsOf(tokens));
}

// Two values, so that a nucleus ends among equals, which stay together.
TEST(CudaSampleEdgesTest, ANucleusMayEndAmongEquals) {
  std::vector<float> logits(kSize, -1.0f);
  for (int i = 0; i < kSize; i += 3) logits[i] = 1.5f;
  std::vector<SampledRow> rows;
  for (const float top_p : {0.1f, 0.85f, 0.86f, 0.99f}) {
    rows.push_back(RowOf(logits, {.top_p = top_p}));
    rows.push_back(RowOf(logits, {.typical_p = top_p}));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectEqualsTheTwin(rows, kF32));
}

TEST(CudaSampleEdgesTest, FlatRowsKeepAllThatAreEqual) {
  std::vector<SampledRow> rows;
  for (const SamplingParams& params : SomeParams()) {
    rows.push_back(RowOf(std::vector<float>(kSize, 1.5f), params));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectEqualsTheTwin(rows, kF32));
}

// Alone and among others, so that a draw has a cluster of 16 or of 8 blocks in
// one launch, or one of two blocks or a single block in two: the same bits.
// By the kind of row and its size.
class CudaSampleSpreadTest
    : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(CudaSampleSpreadTest, ADrawDoesNotDependOnHowItsRowIsSpread) {
  const auto [kind, size] = GetParam();
  const std::vector<float> logits = std::string_view(kind) == "impossible"
                                        ? std::vector<float>(size, -kInf)
                                        : Row(kind, size);
  std::vector<SampledRow> rows;
  for (const SamplingParams& params : SomeParams()) {
    const SampledRow plain = RowOf(logits, params);
    const SampledRow edited = RowOf(logits, params, SomeEdits(logits, 100, 7));
    if (testing::FewCases()) {  // one of the two in turn
      rows.push_back(rows.size() % 2 == 0 ? plain : edited);
    } else {
      rows.insert(rows.end(), {plain, edited});
    }
  }
  // The state that one row leaves in shared memory is wrong for the next one.
  for (size_t i = 0; i < rows.size(); ++i) {
    for (float& x : rows[i].logits) x *= 1 + 0.05f * static_cast<float>(i);
  }
  for (SampledRow& row : rows) row.num_draws = 1;
  rows[1].options.is_allow_list = rows[5].options.is_allow_list = true;
  for (const DType dtype :
       testing::Cases(std::vector{kF32, DType::kBFloat16}, {kF32})) {
    const auto without = DrawOnDevice(rows, dtype, 0, kNoClusters);
    EXPECT_EQ(DrawOnDevice(rows, dtype), without);
    EXPECT_EQ(DrawOnDevice(rows, dtype, 40), without);
    EXPECT_EQ(DrawOnDevice(rows, dtype, 1000), without);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(DrawOnDevice({rows[i]}, dtype)[0], without[i]) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, CudaSampleSpreadTest,
    ::testing::Combine(::testing::Values("normal"),
                       ::testing::ValuesIn(testing::Cases(
                           std::vector{5, 1024, 40001, 151936, 300000, 600011},
                           std::vector{5, 6000}))));
INSTANTIATE_TEST_SUITE_P(
    Kinds, CudaSampleSpreadTest,
    ::testing::Combine(::testing::Values("near ties", "constant", "peak",
                                         "holes", "infinite", "nothing",
                                         "impossible"),
                       ::testing::Values(testing::Cases(40000, 3000))));

// Tiles of such rows share the bins that say where a draw ends.
TEST(CudaSampleEdgesTest, TakesMoreTilesThanThereAreBins) {
  const int size = testing::Cases(600011, 530000);
  std::vector<SampledRow> rows;
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 2, .top_p = 0.9f},
        SamplingParams{.temperature = 2, .typical_p = 0.9f},
        SamplingParams{.temperature = 3, .top_k = 5000}}) {
    rows.push_back(RowOf(Row("normal", size), params));
    rows.back().num_draws = testing::Cases(4, 1);
  }
  ASSERT_NO_FATAL_FAILURE(ExpectEqualsTheTwin(rows, kF32));
}

// A cluster sends candidates within the cut to its first block, which has room
// for 2,048 and compares up to 128 with each other.
TEST(CudaSampleEdgesTest, AClusterListsAsManyAsFit) {
  for (const int num_best : {1, 50, 127, 128, 129, 2047, 2048, 2049, 9000}) {
    SCOPED_TRACE(num_best);
    std::vector<float> logits(kSize, -30.0f);
    for (int i = 0; i < num_best; ++i) {
      logits[i * 4] = 10 + 0.001f * static_cast<float>(i % 100);
    }
    std::vector<SampledRow> rows;
    for (const SamplingParams& params :
         {SamplingParams{.min_p = 0.5f},
          SamplingParams{.min_p = 0.5f, .top_p = 0.7f},
          SamplingParams{.min_p = 0.5f, .typical_p = 0.7f},
          SamplingParams{.top_k = 40},
          SamplingParams{.top_k = 40, .top_p = 0.5f}}) {
      rows.push_back(RowOf(logits, params));
      rows.back().num_draws = 3;
    }
    ASSERT_NO_FATAL_FAILURE(ExpectEqualsTheTwin(rows, kF32));
  }
}

TEST(CudaSampleEdgesTest, DeadRowsAndFewDrawsShareALaunch) {
  std::vector<SampledRow> rows;
  for (const SamplingParams& params : SomeParams()) {
    rows.push_back(RowOf(Row("normal", kSize), params));
    rows.back().num_draws = 1;
  }
  const auto expected = DrawOnDevice(rows, kF32);
  rows[1].cum_log_prob = rows[4].cum_log_prob = -kInf;
  const auto found = DrawOnDevice(rows, kF32, /*max_draws=*/8);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == 1 || i == 4) {
      EXPECT_EQ(found[i][0].token, kNoToken);
    } else {
      EXPECT_EQ(found[i], expected[i]);
    }
  }
}

// Copies are of rows without their edits, in one launch and in two. If the size
// is no multiple of 4, some rows are not aligned to 16 bytes. A row without
// draws is not read.
TEST(CudaSampleEdgesTest, RowsAreCopiedAsTheyWere) {
  for (const int size : testing::Cases(
           std::vector{5, 1024, 4002, 40001, 128256}, std::vector{5, 4002})) {
    for (const int count : {1, 3, 16, 33}) {
      std::vector<SampledRow> rows;
      RowCopies copies;
      copies.memory.assign(2 * count * size, -77);
      for (int i = 0; i < count; ++i) {
        const std::vector<float> logits = Row("normal", size);
        rows.push_back(i % 2 == 0
                           ? RowOf(logits, {})
                           : RowOf(logits, {}, SomeEdits(logits, 100, i)));
        for (float& x : rows[i].logits) x *= 1 + 0.05f * static_cast<float>(i);
        rows[i].num_draws = i == 1 ? 0 : 1;
        copies.rows.push_back(i == 2 ? -1 : 2 * (count - i) - 1);
      }
      std::vector<float> expected = copies.memory;
      for (int i = 0; i < count; ++i) {
        if (i == 1 || i == 2) continue;
        std::ranges::copy(rows[i].logits,
                          expected.begin() + int64_t{copies.rows[i]} * size);
      }
      const auto drawn = DrawOnDevice(rows, kF32, 0, 0, &copies);
      EXPECT_EQ(drawn, DrawOnDevice(rows, kF32));
      EXPECT_TRUE(copies.memory == expected) << count << " rows of " << size;
    }
  }
}

}  // namespace
}  // namespace espalier
