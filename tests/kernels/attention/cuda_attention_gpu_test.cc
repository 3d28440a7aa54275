// Which keys and values a query attends to: whatever is beside it in the batch,
// shared or its own, it gets the twin's result.
#include <gmock/gmock.h>

#include <cmath>
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
  AttentionBatch batch(GetParam(), 9000 / page_size + 200);
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

TEST_P(CudaAttentionTest, NanReachesWhatAttendsToItAndNothingElse) {
  const CudaAttentionShape& shape = GetParam();
  const int page_size = shape.page_size;
  const int group = shape.num_heads / shape.num_kv_heads;
  for (const int which : {0, 1}) {
    AttentionBatch batch(shape, 3000 / page_size + 60);
    batch.AddRow(99, 1);
    batch.AddGroup(3, 1000 / page_size, 9);
    batch.Spoil(40, which, 3);  // of the group's pages
    const std::vector<float> out = batch.Run()[0];
    for (size_t i = 0; i < out.size(); ++i) {
      const int dim = i % shape.head_dim;
      const int head = i / shape.head_dim % shape.num_heads;
      const int query = i / shape.head_dim / shape.num_heads;
      const bool reached =
          query > 0 && head < group && (which == 0 || dim == 3);
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
