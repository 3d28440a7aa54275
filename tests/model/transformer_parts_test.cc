#include "model/transformer_parts.h"

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
TEST(TransformerPartsTest, MembersOfAGroupReadTheSameInputs) {
  for (const MatrixPart matrix : kMatrixParts) {
    const std::vector<MatrixTensor> members = MembersOf(matrix);
    ASSERT_FALSE(members.empty()) << static_cast<int>(matrix);
    EXPECT_THAT(members, Each(Field(&MatrixTensor::cols, members[0].cols)));
    EXPECT_THAT(members, Each(Field(&MatrixTensor::shards, members[0].shards)));
    EXPECT_THAT(members,
                Each(Field(&MatrixTensor::has_bias, members[0].has_bias)));
  }
}

// Between two sums over ranks a layer has one matrix whose outputs are divided
// and one whose inputs are: those that write the residual stream.
TEST(TransformerPartsTest, MatricesThatWriteTheStreamAreShardedByInputs) {
  for (const MatrixTensor& tensor : kMatrixTensors) {
    if (tensor.shards == ShardAxis::kNone) continue;
    EXPECT_EQ(tensor.shards == ShardAxis::kInputs,
              tensor.rows == TensorDim::kHidden)
        << tensor.label;
    EXPECT_NE(tensor.rows == TensorDim::kHidden,
              tensor.cols == TensorDim::kHidden ||
                  tensor.cols == TensorDim::kEmbedding)
        << tensor.label;
  }
}

TEST(TransformerPartsTest, TheTablesHaveEachPartOnce) {
  TransformerParts<int, int, int> parts;
  for (const NormTensor& norm : kNormTensors) ++parts[norm.norm];
  for (const MatrixPart matrix : kMatrixParts) ++parts[matrix];
  for (const TableTensor& table : kTableTensors) ++parts[table.table];
  for (const NormTensor& norm : kNormTensors) EXPECT_EQ(parts[norm.norm], 1);
  for (const MatrixPart matrix : kMatrixParts) EXPECT_EQ(parts[matrix], 1);
  for (const TableTensor& table : kTableTensors) {
    EXPECT_EQ(parts[table.table], 1);
  }
}

TEST(TransformerPartsTest, SizesFollowTheConfig) {
  TransformerConfig config;
  config.vocab_size = 1000;
  config.hidden_size = 48;
  config.word_embed_proj_dim = 32;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 10;
  config.max_context = 500;
  config.position_offset = 2;
  config.num_distance_buckets = 16;
  const LayerConfig layer = {.intermediate_size = 70};
  const TensorOwner in_layer = {config, /*is_encoder=*/false, &layer};
  EXPECT_EQ(SizeOf(in_layer, TensorDim::kHidden), 48);
  EXPECT_EQ(SizeOf(in_layer, TensorDim::kQueries), 60);
  EXPECT_EQ(SizeOf(in_layer, TensorDim::kKeys), 20);
  EXPECT_EQ(SizeOf(in_layer, TensorDim::kValues), 20);
  EXPECT_EQ(SizeOf(in_layer, TensorDim::kHead), 10);
  EXPECT_EQ(SizeOf(in_layer, TensorDim::kIntermediate), 70);
  EXPECT_EQ(SizeOf({config}, TensorDim::kVocabulary), 1000);
  EXPECT_EQ(SizeOf({config}, TensorDim::kEmbedding), 32);
  EXPECT_EQ(SizeOf({config}, TensorDim::kPositions), 502);
  EXPECT_EQ(SizeOf({config}, TensorDim::kDistanceBuckets), 16);
  EXPECT_EQ(SizeOf({config}, TensorDim::kHeads), 6);
}

TEST(TransformerPartsTest, OwnersOfATensorFollowTheConfig) {
  TransformerConfig config;
  config.has_gate = false;
  const LayerConfig plain;
  const LayerConfig cross = {.has_cross_attention = true};
  const TensorOwner decoder = {config};
  const TensorOwner encoder = {config, /*is_encoder=*/true};
  const TensorOwner layer = {config, /*is_encoder=*/false, &plain};
  const TensorOwner cross_layer = {config, /*is_encoder=*/false, &cross};

  using enum TensorFeature;
  EXPECT_TRUE(Has(layer, kLayer));
  EXPECT_TRUE(Has(cross_layer, kCrossAttention));
  EXPECT_FALSE(Has(layer, kCrossAttention));
  EXPECT_TRUE(Has(decoder, kDecoder));
  EXPECT_FALSE(Has(encoder, kDecoder));
  EXPECT_TRUE(Has(decoder, kFinalNorm));
  EXPECT_TRUE(Has(encoder, kFinalNorm));
  for (const TensorFeature off :
       {kGate, kQkNorms, kPostNorms, kProjections, kEmbeddingNorm,
        kLearnedPositions, kDistanceBiases}) {
    for (const TensorOwner* owner : {&decoder, &encoder, &layer}) {
      EXPECT_FALSE(Has(*owner, off)) << static_cast<int>(off);
    }
  }

  config.has_gate = config.has_qk_norms = config.has_post_norms = true;
  config.has_embedding_norm = config.norms_sums = true;
  config.word_embed_proj_dim = 32;
  config.positions = PositionKind::kLearned;
  for (const TensorFeature feature : {kGate, kQkNorms, kPostNorms}) {
    EXPECT_TRUE(Has(layer, feature)) << static_cast<int>(feature);
  }
  EXPECT_TRUE(Has(decoder, kProjections));
  EXPECT_FALSE(Has(encoder, kProjections));
  for (const TensorOwner* owner : {&decoder, &encoder}) {
    EXPECT_FALSE(Has(*owner, kFinalNorm));
    EXPECT_TRUE(Has(*owner, kEmbeddingNorm));
    EXPECT_TRUE(Has(*owner, kLearnedPositions));
  }
  config.positions = PositionKind::kDistances;
  EXPECT_TRUE(Has(encoder, kDistanceBiases));
  EXPECT_FALSE(Has(layer, kDistanceBiases));
  config.has_layer_distances = true;
  EXPECT_FALSE(Has(encoder, kDistanceBiases));
  EXPECT_TRUE(Has(layer, kDistanceBiases));
}

TEST(TransformerPartsTest, NoTensorIsBothInLayersAndOutsideOfThem) {
  TransformerConfig config;
  config.has_gate = config.has_qk_norms = config.has_post_norms = true;
  config.has_embedding_norm = true;
  config.word_embed_proj_dim = 32;
  const LayerConfig cross = {.has_cross_attention = true};
  const TensorOwner decoder = {config};
  const TensorOwner layer = {config, /*is_encoder=*/false, &cross};
  for (const PositionKind positions :
       {PositionKind::kLearned, PositionKind::kDistances}) {
    config.positions = positions;
    using enum TensorFeature;
    for (const TensorFeature feature :
         {kLayer, kCrossAttention, kGate, kQkNorms, kPostNorms, kDecoder,
          kProjections, kEmbeddingNorm, kFinalNorm, kLearnedPositions,
          kDistanceBiases}) {
      EXPECT_FALSE(Has(layer, feature) && Has(decoder, feature))
          << static_cast<int>(feature);
    }
  }
}

}  // namespace
}  // namespace espalier
