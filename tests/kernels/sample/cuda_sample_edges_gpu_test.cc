// Draws on the device where the work is parted: edits, sums and searches that
// end at the borders of tiles, bins and blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
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
// What is said of a device that has no clusters.
constexpr int kNoClusters = 80;

// Greedy, few tokens, and searches.
std::vector<SamplingParams> SomeParams() {
  return {{.temperature = 0},
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
    rows.back().options.only_edited = true;
  }
  for (const DType dtype : {kF32, DType::kBFloat16}) {
    ASSERT_NO_FATAL_FAILURE(ExpectEqualsTheTwin(rows, dtype));
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

// One block or four: the same bits.
TEST(CudaSampleEdgesTest, ADrawDoesNotDependOnHowItsRowIsSpread) {
  for (const int size : testing::Cases(
           std::vector{5, 1024, 40000, 151936, 600011}, std::vector{5, 6000})) {
    const std::vector<float> logits = Row("normal", size);
    std::vector<SampledRow> rows;
    for (const SamplingParams& params : SomeParams()) {
      rows.push_back(RowOf(logits, params));
      rows.push_back(RowOf(logits, params, SomeEdits(logits, 100, size)));
    }
    for (SampledRow& row : rows) row.num_draws = 1;  // few have clusters
    for (const DType dtype : {kF32, DType::kBFloat16}) {
      EXPECT_EQ(DrawOnDevice(rows, dtype),
                DrawOnDevice(rows, dtype, 0, kNoClusters))
          << "rows of " << size;
    }
  }
}

}  // namespace
}  // namespace espalier
