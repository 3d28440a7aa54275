#include "model/transformer_parts.h"

#include <algorithm>

#include "base/check.h"

namespace espalier {

int SizeOf(const TensorOwner& owner, TensorDim dim) {
  const TransformerConfig& config = owner.config;
  switch (dim) {
    case TensorDim::kHidden:
      return config.hidden_size;
    case TensorDim::kQueries:
      return config.q_size();
    case TensorDim::kKeys:
    case TensorDim::kValues:
      return config.kv_size();
    case TensorDim::kHead:
      return config.head_dim;
    case TensorDim::kIntermediate:
      return owner.layer->intermediate_size;
    case TensorDim::kVocabulary:
      return config.vocab_size;
    case TensorDim::kEmbedding:
      return config.embedding_size();
    case TensorDim::kPositions:
      return config.position_offset + (owner.is_encoder
                                           ? config.encoder->max_tokens
                                           : config.max_context);
    case TensorDim::kDistanceBuckets:
      return config.num_distance_buckets;
    case TensorDim::kHeads:
      return config.num_heads;
    case TensorDim::kMelTaps:
      return kNumTaps * config.encoder->num_mel_bins;
    case TensorDim::kHiddenTaps:
      return kNumTaps * config.hidden_size;
  }
  CHECK(false) << static_cast<int>(dim);
  return 0;
}

bool Has(const TensorOwner& owner, TensorFeature feature) {
  const TransformerConfig& config = owner.config;
  const bool is_layer = owner.layer != nullptr;
  const bool is_decoder = !is_layer && !owner.is_encoder;
  switch (feature) {
    case TensorFeature::kLayer:
      return is_layer;
    case TensorFeature::kCrossAttention:
      return is_layer && owner.layer->has_cross_attention;
    case TensorFeature::kGate:
      return is_layer && config.has_gate;
    case TensorFeature::kQkNorms:
      return is_layer && config.has_qk_norms;
    case TensorFeature::kPostNorms:
      return is_layer && config.has_post_norms;
    case TensorFeature::kDecoder:
      return is_decoder;
    case TensorFeature::kProjections:
      return is_decoder && config.projects_embeddings();
    case TensorFeature::kConvolutions:
      return !is_layer && owner.is_encoder && config.encoder->num_mel_bins > 0;
    case TensorFeature::kEmbeddingNorm:
      return !is_layer && config.has_embedding_norm;
    case TensorFeature::kFinalNorm:
      return !is_layer && !config.norms_sums;
    case TensorFeature::kLearnedPositions:
      return !is_layer && config.positions == PositionKind::kLearned;
    case TensorFeature::kDistanceBiases:
      return is_layer == config.has_layer_distances &&
             config.positions == PositionKind::kDistances;
  }
  CHECK(false) << static_cast<int>(feature);
  return false;
}

const MatrixTensor& FirstMember(MatrixPart matrix) {
  return *std::ranges::find(kMatrixTensors, matrix, &MatrixTensor::matrix);
}

}  // namespace espalier
