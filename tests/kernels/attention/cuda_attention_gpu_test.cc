// Which keys and values a query attends to: whatever is beside it in the batch,
// shared or its own, it gets the twin's result.
#include <gmock/gmock.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "kernels/attention/cuda_attention.h"
#include "tests/few_cases.h"
#include "tests/kernels/attention/attention_batch.h"
#include "tests/kernels/attention/attention_shapes.h"

namespace espalier {
namespace {

using testing::AttentionBatch;
using testing::Cases;

class CudaAttentionTest : public ::testing::TestWithParam<CudaAttentionShape> {
};
INSTANTIATE_TEST_SUITE_P(Shapes, CudaAttentionTest, testing::AttentionShapes(),
                         testing::AttentionShapeName);

TEST_P(CudaAttentionTest, MatchesTheTwinForMixedBatches) {
  const int page_size = GetParam().page_size;
  AttentionBatch batch(GetParam(), 12000 / page_size + 260);
  batch.AddMixture();
  batch.ExpectMatchesTwin();
}

TEST_P(CudaAttentionTest, MatchesTheTwinForLongRuns) {
  const int page_size = GetParam().page_size;
  AttentionBatch batch(GetParam(), 16000 / page_size + 60);
  batch.AddGroup(8, Cases(8192, 1024) / page_size, Cases(32, 3));
  batch.AddRow(Cases(3000, 600), 1);
  batch.AddRow(Cases(1000, 200), Cases(80, 20));
  batch.ExpectMatchesTwin(7);
}

TEST_P(CudaAttentionTest, MatchesTheTwinForManyBeams) {
  const int page_size = GetParam().page_size;
  AttentionBatch batch(GetParam(), 6000 / page_size + 400);
  batch.AddGroup(Cases(130, 66), Cases(300, 128) / page_size, Cases(8, 1),
                 Cases(200, 20));
  batch.AddGroup(Cases(70, 34), 128 / page_size, Cases(30, 2));
  batch.ExpectMatchesTwin(9);
}

TEST_P(CudaAttentionTest, MatchesTheTwinWhenPartialsAreFew) {
  const int page_size = GetParam().page_size;
  AttentionBatch batch(GetParam(), 6000 / page_size + 60);
  batch.AddGroup(8, Cases(3000, 1000) / page_size, 5);
  batch.AddRow(Cases(2000, 700), 1);
  batch.ExpectMatchesTwin(1, 17);
}

// Items of a run and of what each of its beams has after it alone.
TEST_P(CudaAttentionTest, MatchesTheTwinWhereRunsFillTheDevice) {
  const int page_size = GetParam().page_size;
  AttentionBatch batch(GetParam(), 21000 / page_size + 960);
  batch.PlanForSmallDevice();
  batch.AddGroup(Cases(70, 34), Cases(300, 128) / page_size, 17, 20);
  for (const int tail : {1, 16, 31, 100}) {
    batch.AddGroup(33, 256 / page_size, tail);
  }
  batch.AddMixture();
  batch.ExpectMatchesTwin(Cases(1, 3));
}

TEST_P(CudaAttentionTest, NanReachesWhatAttendsToItAndNothingElse) {
  const CudaAttentionShape& shape = GetParam();
  const int page_size = shape.page_size;
  const int group = shape.num_heads / shape.num_kv_heads;
  // A position that a group shares, and one of its last beam alone.
  const int shared = 1000 / page_size * page_size;
  for (const auto& [position, which, on_small_device] :
       {std::tuple(40, 0, false), std::tuple(40, 1, false),
        std::tuple(40, 1, true), std::tuple(shared + 5, 0, true),
        std::tuple(shared + 5, 1, true), std::tuple(shared + 5, 1, false)}) {
    SCOPED_TRACE(position);
    AttentionBatch batch(shape, 3000 / page_size + 60);
    if (on_small_device) batch.PlanForSmallDevice();
    const int num_beams = on_small_device ? 33 : 3;
    batch.AddRow(99, 1);
    batch.AddGroup(num_beams, shared / page_size, 9);
    batch.Spoil(position, which, 3);
    const std::vector<float> out = batch.Run()[0];
    for (size_t i = 0; i < out.size(); ++i) {
      const int dim = i % shape.head_dim;
      const int head = i / shape.head_dim % shape.num_heads;
      const int query = i / shape.head_dim / shape.num_heads;
      const bool reached = query >= (position < shared ? 1 : num_beams) &&
                           head < group && (which == 0 || dim == 3);
      ASSERT_EQ(std::isnan(out[i]), reached)
          << "query " << query << " head " << head << " dimension " << dim;
    }
  }
}

TEST(CudaAttentionLawTest, BatchMatesChangeNoBitsInFloat32) {
  const CudaAttentionShape shape = {4, 2, 64, 16, DType::kFloat32};
  for (const int window : {0, 5, 300}) {
    AttentionBatch alone(shape);
    alone.AddRow(1200, 1);
    alone.AddGroup(5, 40, 3);
    AttentionBatch together(shape);
    together.AddRow(1200, 1);
    together.AddGroup(5, 40, 3);
    together.AddMixture();
    alone.SetOptions({.window = window});
    together.SetOptions({.window = window});
    const auto expected = alone.Run()[0];
    auto result = together.Run()[0];
    result.resize(expected.size());
    EXPECT_EQ(result, expected) << window;
  }
}

}  // namespace
}  // namespace espalier
