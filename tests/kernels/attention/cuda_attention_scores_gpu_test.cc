// Scores of attention on the device against their definition, in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/cuda.h"
#include "base/cuda_pinned_memory.h"
#include "kernels/attention/cuda_attention_scores.h"
#include "tests/kernels/attention/attention_shapes.h"
#include "tests/kernels/kv_cache/paged_cache.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Cache;
using testing::Numbers;
using testing::ToBytes;
using testing::Upload;

constexpr int kNumQueries = 3;
constexpr int kNumPlaces = 5;
constexpr float kUnset = -12345;

class CudaAttentionScoresTest
    : public ::testing::TestWithParam<CudaAttentionShape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, CudaAttentionScoresTest,
                         testing::AttentionShapes(),
                         testing::AttentionShapeName);

// Scores of heads and places in any order, in memory of the host; places of no
// head are left as they are.
TEST_P(CudaAttentionScoresTest, EqualTheDefinition) {
  for (const double scale : {0.0, 0.3}) {
    CudaAttentionShape shape = GetParam();
    shape.scale = scale;
    const double factor =
        scale > 0 ? scale : 1 / std::sqrt(double(shape.head_dim));
    for (const int num_positions : {1, 17, 128, 129, 1500}) {
      SCOPED_TRACE(num_positions);
      Cache cache(shape.dtype, shape.num_kv_heads, shape.head_dim,
                  shape.page_size, num_positions / shape.page_size + 9);
      std::vector<int> table;
      cache.Extend(table, num_positions);
      const int q_stride = (shape.num_heads + 2) * shape.head_dim;
      Numbers numbers(shape.dtype, 4);
      std::vector<float> q(kNumQueries * q_stride);
      for (float& x : q) x = numbers.Next();
      const auto memory = Upload(ToBytes(cache.elements(), shape.dtype));
      const auto device_q = Upload(ToBytes(q, shape.dtype));
      const auto device_table = Upload(table);
      CudaKvCache layout = cache.layout();
      layout.data = memory.data();
      CudaAttentionScoresInputs in = {.num_queries = kNumQueries,
                                      .num_positions = num_positions,
                                      .num_places = kNumPlaces,
                                      .q_stride = q_stride,
                                      .q = device_q.data(),
                                      .table = device_table.data()};
      in.heads = {.count = 3,
                  .heads = {shape.num_heads - 1, 0, shape.num_heads / 2},
                  .places = {1, 4, 0}};
      auto scores =
          PinnedBuffer<float>::Create(kNumQueries * kNumPlaces * num_positions);
      ASSERT_OK(scores);
      std::fill_n(scores->data(), scores->size(), kUnset);
      const auto stream = CudaStream::Create();
      ASSERT_OK(stream);
      ASSERT_OK(CudaAttentionScores(in, shape, layout, Cache::kLayer,
                                    scores->data(), stream->get()));
      ASSERT_EQ(cudaStreamSynchronize(stream->get()), cudaSuccess);
      const float* found = scores->data();
      for (int query = 0; query < kNumQueries; ++query) {
        for (int place = 0; place < kNumPlaces; ++place) {
          int head = -1;
          for (int i = 0; i < in.heads.count; ++i) {
            if (in.heads.places[i] == place) head = in.heads.heads[i];
          }
          std::vector<float> keys;
          if (head >= 0) {
            keys =
                cache.Gather(table, num_positions,
                             head / (shape.num_heads / shape.num_kv_heads), 0);
          }
          for (int p = 0; p < num_positions; ++p, ++found) {
            if (head < 0) {
              ASSERT_EQ(*found, kUnset);
              continue;
            }
            double sum = 0, size = 0;
            for (int d = 0; d < shape.head_dim; ++d) {
              const double product =
                  double{q[query * q_stride + head * shape.head_dim + d]} *
                  keys[p * shape.head_dim + d];
              sum += product;
              size += std::abs(product);
            }
            // At most 20 roundings of a partial sum.
            const double tolerance =
                20 * std::numeric_limits<float>::epsilon() * factor * size;
            ASSERT_NEAR(*found, factor * sum, tolerance)
                << "query " << query << " head " << head << " position " << p;
          }
        }
      }
    }
  }
}

TEST(CudaAttentionScoresRefusalTest, ImpossibleShapesAreRefused) {
  const CudaKvCache cache = {.num_pages = 1, .num_kv_heads = 2};
  const CudaAttentionShape shape = {.num_heads = 2, .num_kv_heads = 2};
  CudaAttentionScoresInputs good = {.num_queries = 1,
                                    .num_positions = 1,
                                    .num_places = 1,
                                    .q_stride = 128,
                                    .heads = {.count = 1}};
  std::vector<CudaAttentionScoresInputs> cases(6, good);
  cases[0].heads.count = 0;
  cases[1].heads.heads[0] = 2;
  cases[2].heads.places[0] = 1;
  cases[3].num_positions = 0;
  cases[4].q_stride = 127;
  cases[5].num_queries = 0;
  for (const CudaAttentionScoresInputs& in : cases) {
    EXPECT_THAT(
        CudaAttentionScores(in, shape, cache, 0, nullptr, nullptr),
        testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
  }
  EXPECT_THAT(
      CudaAttentionScores(good, shape, cache, 1, nullptr, nullptr),
      testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
}

}  // namespace
}  // namespace espalier
