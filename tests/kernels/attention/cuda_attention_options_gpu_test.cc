// Options of attention scores, and their limits: windows, soft caps, scales,
// distance biases, and queries that see all positions.
#include <gmock/gmock.h>

#include <cmath>
#include <utility>
#include <vector>

#include "kernels/attention/cuda_attention.h"
#include "tests/few_cases.h"
#include "tests/kernels/attention/attention_batch.h"
#include "tests/kernels/attention/attention_shapes.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::AttentionBatch;
using testing::Cases;
using testing::Numbers;

class CudaAttentionOptionsTest
    : public ::testing::TestWithParam<CudaAttentionShape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, CudaAttentionOptionsTest,
                         testing::AttentionShapes(),
                         testing::AttentionShapeName);

TEST_P(CudaAttentionOptionsTest, MatchesTheTwinWithWindows) {
  const int page_size = GetParam().page_size;
  for (const int window : {1, 2, 31, 64, 130, 5000}) {
    SCOPED_TRACE(window);
    AttentionBatch batch(GetParam(), 12000 / page_size + 260);
    batch.SetOptions({.window = window});
    batch.AddMixture();
    batch.ExpectMatchesTwin(Cases(1, 5));
  }
}

// Caps that bend every score, some, and none by much.
TEST_P(CudaAttentionOptionsTest, MatchesTheTwinWithSoftCaps) {
  const int page_size = GetParam().page_size;
  for (const AttentionOptions& options :
       {AttentionOptions{.soft_cap = 0.25f}, AttentionOptions{.soft_cap = 50},
        AttentionOptions{.scale = 0.75f, .soft_cap = 2},
        AttentionOptions{.scale = 0.3f, .soft_cap = 3, .window = 70}}) {
    SCOPED_TRACE(options.soft_cap);
    AttentionBatch batch(GetParam(), 12000 / page_size + 260);
    batch.SetOptions(options);
    batch.AddMixture();
    batch.ExpectMatchesTwin(Cases(1, 5));
  }
}

TEST_P(CudaAttentionOptionsTest, MatchesTheTwinWhereRunsFillTheDevice) {
  const int page_size = GetParam().page_size;
  for (const AttentionOptions& options :
       {AttentionOptions{.window = 3}, AttentionOptions{.window = 33},
        AttentionOptions{.window = 300},
        AttentionOptions{.scale = 0.3f, .soft_cap = 3, .window = 70}}) {
    SCOPED_TRACE(options.window);
    AttentionBatch batch(GetParam(), 10000 / page_size + 400);
    batch.PlanForSmallDevice();
    batch.SetOptions(options);
    batch.AddGroup(33, 256 / page_size, 20);
    batch.AddMixture();
    batch.ExpectMatchesTwin(Cases(1, 5));
  }
}

TEST_P(CudaAttentionOptionsTest, MatchesTheTwinWithAnotherScale) {
  const int page_size = GetParam().page_size;
  for (const float scale : {0.01f, 0.2f}) {
    SCOPED_TRACE(scale);
    AttentionBatch batch(GetParam(), 12000 / page_size + 260);
    batch.SetOptions({.scale = scale});
    batch.AddMixture();
    batch.ExpectMatchesTwin(Cases(1, 5));
  }
}

TEST_P(CudaAttentionOptionsTest, MatchesTheTwinWhereQueriesSeeAll) {
  const int page_size = GetParam().page_size;
  AttentionBatch batch(GetParam(), 12000 / page_size + 260);
  for (const int length : {1, 17, 64, 300, 1200}) {
    batch.AddSource(length, 1);
    batch.AddSource(length, length);
    batch.AddRow(length, 3);
  }
  batch.ExpectMatchesTwin(Cases(1, 7));
}

// Distances up to the largest and beyond, with queries in the middle of the
// positions that they see; combined with other score options.
TEST_P(CudaAttentionOptionsTest, MatchesTheTwinWithBiases) {
  CudaAttentionShape shape = GetParam();
  shape.without_tensor_cores = true;
  for (const int max_distance : {0, 1, 30, 500}) {
    SCOPED_TRACE(max_distance);
    Numbers numbers(DType::kFloat32, max_distance);
    std::vector<float> biases(shape.num_heads * (2 * max_distance + 1));
    for (float& bias : biases) bias = 3 * numbers.Next();
    for (const auto& [window, soft_cap] :
         {std::pair(0, 0.0f), std::pair(70, 0.0f), std::pair(0, 2.0f)}) {
      AttentionBatch batch(shape, 12000 / shape.page_size + 260);
      batch.SetOptions({.scale = 0.5f,
                        .soft_cap = soft_cap,
                        .window = window,
                        .biases = biases.data(),
                        .max_distance = max_distance});
      batch.AddMixture();
      if (window == 0) {
        batch.AddSource(300, 300);
        batch.AddSource(65, 2);
      }
      batch.ExpectMatchesTwin(Cases(1, 5));
    }
  }
}

TEST(CudaAttentionRefusalTest, ImpossibleShapesAreRefused) {
  auto device = CudaDevice::Open(0);
  CudaAttentionInputs inputs;
  inputs.max_items = 1;
  const CudaAttentionShape shape = {8, 3, 64, 16, DType::kBFloat16};
  CudaKvCache cache;
  cache.num_kv_heads = 3;
  EXPECT_THAT(CudaAttention(inputs, shape, nullptr, 512, cache, 0, nullptr,
                            nullptr, *device, nullptr),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("cannot share")));
}

TEST(CudaAttentionRefusalTest, ImpossibleOptionsAreRefused) {
  auto device = CudaDevice::Open(0);
  CudaAttentionInputs inputs;
  inputs.max_items = 1;
  const CudaKvCache cache;  // one head of dimension 64
  const auto run = [&](const CudaAttentionShape& shape) {
    return CudaAttention(inputs, shape, nullptr, 64, cache, 0, nullptr, nullptr,
                         *device, nullptr);
  };
  EXPECT_THAT(run({.window = -1}),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("got -1")));
  EXPECT_THAT(run({.soft_cap = NAN}),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("soft_cap")));
}

}  // namespace
}  // namespace espalier
