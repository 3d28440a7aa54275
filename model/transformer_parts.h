// TransformerParts: the tensors of a transformer, each declared once.
//
// A checkpoint stores a layer as tensors. A forward pass reads fewer and larger
// ones: matrices that multiply the same input are stacked, q, k and v for
// instance. Such a fuse group is a MatrixPart. kMatrixTensors, kNormTensors and
// kTableTensors give each tensor's part, its name in TensorNames, its shape,
// and its owners: the layers that have it, or, outside of layers, the decoder
// or the encoder. All code that visits tensors iterates these tables: the
// finder, the weights of the CPU and of CUDA, random weights, memory sums. A
// new tensor is a row here, a name in TensorNames, and its use in the two
// passes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

#include "model/transformer_config.h"

namespace espalier {

enum class MatrixPart : uint8_t {
  kQkv,
  kOutput,
  kCrossQuery,
  kCrossKv,
  kCrossOutput,
  kGateUp,
  kDown,
  // Outside of layers:
  kProjectIn,  // embeddings to hidden_size
  kProjectOut,
  kConv1,  // features to hidden_size, of three frames each
  kConv2,  // every other frame
  kHead,
  kCount,
};
// All; those of a layer in the order in which a step reads them.
inline constexpr MatrixPart kMatrixParts[] = {
    MatrixPart::kQkv,     MatrixPart::kOutput,      MatrixPart::kCrossQuery,
    MatrixPart::kCrossKv, MatrixPart::kCrossOutput, MatrixPart::kGateUp,
    MatrixPart::kDown,    MatrixPart::kProjectIn,   MatrixPart::kProjectOut,
    MatrixPart::kConv1,   MatrixPart::kConv2,       MatrixPart::kHead};

// Frames that a convolution reads for one.
inline constexpr int kNumTaps = 3;

enum class NormPart : uint8_t {
  kAttentionNorm,
  kQueryNorm,  // per head
  kKeyNorm,
  kPostAttentionNorm,  // on the attention's output, before the residual add
  kCrossNorm,
  kMlpNorm,
  kPostMlpNorm,
  // Outside of layers:
  kEmbeddingNorm,
  kFinalNorm,
  kCount,
};

// A matrix of which a step reads some rows.
enum class TablePart : uint8_t {
  kEmbedding,
  kPositions,
  kDistanceBiases,
  kCount,
};

// A layer, or a decoder or an encoder for its tensors outside of layers.
struct TensorOwner {
  const TransformerConfig& config;
  bool is_encoder = false;
  const LayerConfig* layer = nullptr;  // null: outside of layers

  const TensorNames& names() const {
    return is_encoder ? config.encoder->names : config.names;
  }
  const std::vector<LayerConfig>& layers() const {
    return is_encoder ? config.encoder->layers : config.layers;
  }
  TensorOwner OfLayer(size_t layer_idx) const {
    return {config, is_encoder, &layers()[layer_idx]};
  }
};

// A dimension of a tensor.
enum class TensorDim : uint8_t {
  kHidden,   // hidden_size
  kQueries,  // num_heads * head_dim
  kKeys,     // num_kv_heads * head_dim
  kValues,   // num_kv_heads * head_dim
  kHead,     // head_dim
  kIntermediate,
  // Outside of layers:
  kVocabulary,       // vocab_size
  kEmbedding,        // embedding_size()
  kPositions,        // position_offset + max_context, or of an encoder
                     // max_tokens
  kDistanceBuckets,  // num_distance_buckets
  kHeads,            // num_heads
  kMelTaps,          // kNumTaps * num_mel_bins
  kHiddenTaps,       // kNumTaps * hidden_size
};
int SizeOf(const TensorOwner& owner, TensorDim dim);

// The owners of a tensor.
enum class TensorFeature : uint8_t {
  kLayer,           // each layer
  kCrossAttention,  // layers that have it
  kGate,            // layers, with has_gate
  kQkNorms,         // layers, with has_qk_norms
  kPostNorms,       // layers, with has_post_norms
  kDecoder,
  kProjections,       // the decoder, if projects_embeddings()
  kConvolutions,      // the encoder, with num_mel_bins
  kEmbeddingNorm,     // decoder and encoder, with has_embedding_norm
  kFinalNorm,         // decoder and encoder, without norms_sums
  kLearnedPositions,  // decoder and encoder, with PositionKind::kLearned
  // With PositionKind::kDistances: decoder and encoder, or, with
  // has_layer_distances, their layers.
  kDistanceBiases,
};
bool Has(const TensorOwner& owner, TensorFeature feature);

// The dimension that tensor parallelism shards. kInputs needs an all-reduce
// over the ranks.
enum class ShardAxis : uint8_t { kNone, kOutputs, kInputs };

// The coarsest format in which weights of a reduced WeightFormat keep a matrix.
enum class CoarsestFormat : uint8_t {
  kAny,
  // int8. The head ranks thousands of tokens, for which int4 and e4m3's 3-bit
  // mantissa are too coarse.
  kInt8,
  kAsStored,  // embeddings and the head's input are not rounded
};

// A matrix [rows, cols] of a checkpoint, [outputs, inputs], with an optional
// bias [rows]. Errors, and later adapters, name it by `label`.
struct MatrixTensor {
  MatrixPart matrix;  // its fuse group; rows are stacked in the table's order
  std::string_view TensorNames::*name;  // null: found by rules of its own
  std::string_view label;
  TensorDim rows;
  TensorDim cols;
  ShardAxis shards;
  bool TransformerConfig::*has_bias;  // null: never
  TensorFeature feature = TensorFeature::kLayer;
  CoarsestFormat coarsest = CoarsestFormat::kAny;
};
inline constexpr MatrixTensor kMatrixTensors[] = {
    {MatrixPart::kQkv, &TensorNames::q, "q_proj", TensorDim::kQueries,
     TensorDim::kHidden, ShardAxis::kOutputs, &TransformerConfig::has_qkv_bias},
    {MatrixPart::kQkv, &TensorNames::k, "k_proj", TensorDim::kKeys,
     TensorDim::kHidden, ShardAxis::kOutputs, &TransformerConfig::has_qkv_bias},
    {MatrixPart::kQkv, &TensorNames::v, "v_proj", TensorDim::kValues,
     TensorDim::kHidden, ShardAxis::kOutputs, &TransformerConfig::has_qkv_bias},
    {MatrixPart::kOutput, &TensorNames::output, "o_proj", TensorDim::kHidden,
     TensorDim::kQueries, ShardAxis::kInputs,
     &TransformerConfig::has_output_bias},
    {MatrixPart::kCrossQuery, &TensorNames::cross_q, "cross q_proj",
     TensorDim::kQueries, TensorDim::kHidden, ShardAxis::kOutputs,
     &TransformerConfig::has_qkv_bias, TensorFeature::kCrossAttention},
    {MatrixPart::kCrossKv, &TensorNames::cross_k, "cross k_proj",
     TensorDim::kKeys, TensorDim::kHidden, ShardAxis::kOutputs,
     &TransformerConfig::has_qkv_bias, TensorFeature::kCrossAttention},
    {MatrixPart::kCrossKv, &TensorNames::cross_v, "cross v_proj",
     TensorDim::kValues, TensorDim::kHidden, ShardAxis::kOutputs,
     &TransformerConfig::has_qkv_bias, TensorFeature::kCrossAttention},
    {MatrixPart::kCrossOutput, &TensorNames::cross_output, "cross o_proj",
     TensorDim::kHidden, TensorDim::kQueries, ShardAxis::kInputs,
     &TransformerConfig::has_output_bias, TensorFeature::kCrossAttention},
    {MatrixPart::kGateUp, &TensorNames::gate, "gate_proj",
     TensorDim::kIntermediate, TensorDim::kHidden, ShardAxis::kOutputs,
     &TransformerConfig::has_mlp_bias, TensorFeature::kGate},
    {MatrixPart::kGateUp, &TensorNames::up, "up_proj", TensorDim::kIntermediate,
     TensorDim::kHidden, ShardAxis::kOutputs, &TransformerConfig::has_mlp_bias},
    {MatrixPart::kDown, &TensorNames::down, "down_proj", TensorDim::kHidden,
     TensorDim::kIntermediate, ShardAxis::kInputs,
     &TransformerConfig::has_mlp_bias},
    {MatrixPart::kProjectIn, &TensorNames::project_in, "project_in",
     TensorDim::kHidden, TensorDim::kEmbedding, ShardAxis::kNone, nullptr,
     TensorFeature::kProjections, CoarsestFormat::kAsStored},
    {MatrixPart::kProjectOut, &TensorNames::project_out, "project_out",
     TensorDim::kEmbedding, TensorDim::kHidden, ShardAxis::kNone, nullptr,
     TensorFeature::kProjections, CoarsestFormat::kAsStored},
    {MatrixPart::kConv1, &TensorNames::conv1, "conv1", TensorDim::kHidden,
     TensorDim::kMelTaps, ShardAxis::kNone, &TransformerConfig::has_output_bias,
     TensorFeature::kConvolutions, CoarsestFormat::kAsStored},
    {MatrixPart::kConv2, &TensorNames::conv2, "conv2", TensorDim::kHidden,
     TensorDim::kHiddenTaps, ShardAxis::kNone,
     &TransformerConfig::has_output_bias, TensorFeature::kConvolutions,
     CoarsestFormat::kAsStored},
    {MatrixPart::kHead, nullptr, "lm_head", TensorDim::kVocabulary,
     TensorDim::kEmbedding, ShardAxis::kOutputs,
     &TransformerConfig::has_logits_bias, TensorFeature::kDecoder,
     CoarsestFormat::kInt8},
};

inline bool HasBias(const TransformerConfig& config,
                    const MatrixTensor& tensor) {
  if (config.lacks_key_bias && tensor.rows == TensorDim::kKeys) return false;
  return tensor.has_bias != nullptr && config.*tensor.has_bias;
}

// The first tensor of a fuse group, all of which have the same inputs.
const MatrixTensor& FirstMember(MatrixPart matrix);

// One tensor that some families store in place of a fuse group, with the rows
// of all of it.
struct FusedTensor {
  MatrixPart matrix;
  std::string_view TensorNames::*name;
  std::string_view label;
};
inline constexpr FusedTensor kFusedTensors[] = {
    {MatrixPart::kQkv, &TensorNames::qkv, "qkv_proj"},
    {MatrixPart::kGateUp, &TensorNames::gate_up, "gate_up_proj"},
};

// A norm's weight [size]. With NormKind::kLayer, norms of hidden_size have a
// bias.
struct NormTensor {
  NormPart norm;
  std::string_view TensorNames::*name;
  TensorDim size;
  TensorFeature feature = TensorFeature::kLayer;
};
inline constexpr NormTensor kNormTensors[] = {
    {NormPart::kAttentionNorm, &TensorNames::attention_norm,
     TensorDim::kHidden},
    {NormPart::kQueryNorm, &TensorNames::q_norm, TensorDim::kHead,
     TensorFeature::kQkNorms},
    {NormPart::kKeyNorm, &TensorNames::k_norm, TensorDim::kHead,
     TensorFeature::kQkNorms},
    {NormPart::kPostAttentionNorm, &TensorNames::post_attention_norm,
     TensorDim::kHidden, TensorFeature::kPostNorms},
    {NormPart::kCrossNorm, &TensorNames::cross_norm, TensorDim::kHidden,
     TensorFeature::kCrossAttention},
    {NormPart::kMlpNorm, &TensorNames::mlp_norm, TensorDim::kHidden},
    {NormPart::kPostMlpNorm, &TensorNames::post_mlp_norm, TensorDim::kHidden,
     TensorFeature::kPostNorms},
    {NormPart::kEmbeddingNorm, &TensorNames::embedding_norm, TensorDim::kHidden,
     TensorFeature::kEmbeddingNorm},
    {NormPart::kFinalNorm, &TensorNames::final_norm, TensorDim::kHidden,
     TensorFeature::kFinalNorm},
};

// A table [rows, cols].
struct TableTensor {
  TablePart table;
  std::string_view TensorNames::*name;  // null: found by rules of its own
  std::string_view label;
  TensorDim rows;
  TensorDim cols;
  TensorFeature feature;
  // False: weights keep no table, but numbers computed from it.
  bool is_kept = true;
};
inline constexpr TableTensor kTableTensors[] = {
    {TablePart::kEmbedding, nullptr, "embed_tokens", TensorDim::kVocabulary,
     TensorDim::kEmbedding, TensorFeature::kDecoder},
    {TablePart::kPositions, &TensorNames::positions, "positions",
     TensorDim::kPositions, TensorDim::kHidden,
     TensorFeature::kLearnedPositions},
    {TablePart::kDistanceBiases, &TensorNames::distance_biases,
     "distance biases", TensorDim::kDistanceBuckets, TensorDim::kHeads,
     TensorFeature::kDistanceBiases, /*is_kept=*/false},
};

// Index of a part among its kind's, and kCount's, their number.
template <typename Part>
constexpr size_t IndexOf(Part part) {
  return static_cast<size_t>(part);
}
static_assert(std::size(kNormTensors) == IndexOf(NormPart::kCount));
static_assert(std::size(kMatrixParts) == IndexOf(MatrixPart::kCount));
static_assert(std::size(kTableTensors) == IndexOf(TablePart::kCount));

// The parts of an owner: a value for each norm, matrix and table. A part that
// the owner does not have is a default value.
template <typename Norm, typename Matrix, typename Table>
class TransformerParts {
 public:
  Norm& operator[](NormPart part) { return norms_[IndexOf(part)]; }
  const Norm& operator[](NormPart part) const { return norms_[IndexOf(part)]; }
  Matrix& operator[](MatrixPart part) { return matrices_[IndexOf(part)]; }
  const Matrix& operator[](MatrixPart part) const {
    return matrices_[IndexOf(part)];
  }
  Table& operator[](TablePart part) { return tables_[IndexOf(part)]; }
  const Table& operator[](TablePart part) const {
    return tables_[IndexOf(part)];
  }

 private:
  std::array<Norm, IndexOf(NormPart::kCount)> norms_ = {};
  std::array<Matrix, IndexOf(MatrixPart::kCount)> matrices_ = {};
  std::array<Table, IndexOf(TablePart::kCount)> tables_ = {};
};

}  // namespace espalier
