#include "model/layer_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace espalier {
namespace {

using ::testing::Each;
using ::testing::Field;

std::vector<MatrixTensor> MembersOf(MatrixPart matrix) {
  std::vector<MatrixTensor> members;
  std::ranges::copy_if(
      kMatrixTensors, std::back_inserter(members),
      [&](const MatrixTensor& tensor) { return tensor.matrix == matrix; });
  return members;
}

// A stacked matrix has one input, and its rows are divided among ranks alike.
TEST(LayerPartsTest, MembersOfAGroupReadTheSameInputs) {
  for (const MatrixPart matrix : kMatrixParts) {
    const std::vector<MatrixTensor> members = MembersOf(matrix);
    ASSERT_FALSE(members.empty()) << static_cast<int>(matrix);
    EXPECT_THAT(members, Each(Field(&MatrixTensor::cols, members[0].cols)));
    EXPECT_THAT(members, Each(Field(&MatrixTensor::shards, members[0].shards)));
    EXPECT_THAT(members,
                Each(Field(&MatrixTensor::has_bias, members[0].has_bias)));
  }
}

// Between two sums over ranks there is one matrix whose outputs are divided and
// one whose inputs are: those that write the residual stream.
TEST(LayerPartsTest, MatricesThatWriteTheStreamAreShardedByInputs) {
  for (const MatrixTensor& tensor : kMatrixTensors) {
    EXPECT_EQ(tensor.shards == ShardAxis::kInputs,
              tensor.rows == LayerDim::kHidden)
        << tensor.label;
    EXPECT_NE(tensor.rows == LayerDim::kHidden,
              tensor.cols == LayerDim::kHidden)
        << tensor.label;
  }
}

TEST(LayerPartsTest, TheTablesHaveEachPartOnce) {
  LayerParts<int, int> parts;
  for (const NormTensor& norm : kNormTensors) ++parts[norm.norm];
  for (const MatrixPart matrix : kMatrixParts) ++parts[matrix];
  for (const NormTensor& norm : kNormTensors) EXPECT_EQ(parts[norm.norm], 1);
  for (const MatrixPart matrix : kMatrixParts) EXPECT_EQ(parts[matrix], 1);
}

TEST(LayerPartsTest, SizesAndPresenceFollowTheConfig) {
  TransformerConfig config;
  config.hidden_size = 48;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 10;
  config.has_gate = false;
  const LayerConfig layer = {.has_cross_attention = true,
                             .intermediate_size = 70};
  EXPECT_EQ(SizeOf(config, layer, LayerDim::kHidden), 48);
  EXPECT_EQ(SizeOf(config, layer, LayerDim::kQueries), 60);
  EXPECT_EQ(SizeOf(config, layer, LayerDim::kKeys), 20);
  EXPECT_EQ(SizeOf(config, layer, LayerDim::kValues), 20);
  EXPECT_EQ(SizeOf(config, layer, LayerDim::kHead), 10);
  EXPECT_EQ(SizeOf(config, layer, LayerDim::kIntermediate), 70);
  EXPECT_TRUE(Has(config, layer, LayerFeature::kAlways));
  EXPECT_TRUE(Has(config, layer, LayerFeature::kCrossAttention));
  EXPECT_FALSE(Has(config, layer, LayerFeature::kGate));
  EXPECT_FALSE(Has(config, layer, LayerFeature::kQkNorms));
  config.has_qk_norms = config.has_post_norms = config.has_gate = true;
  EXPECT_TRUE(Has(config, layer, LayerFeature::kQkNorms));
  EXPECT_TRUE(Has(config, layer, LayerFeature::kPostNorms));
  EXPECT_TRUE(Has(config, layer, LayerFeature::kGate));
  EXPECT_FALSE(Has(config, {}, LayerFeature::kCrossAttention));
}

}  // namespace
}  // namespace espalier
