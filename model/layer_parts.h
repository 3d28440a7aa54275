// LayerParts: the tensors of a transformer's layer, each declared once.
//
// A checkpoint stores a layer as tensors. A forward pass reads fewer and larger
// ones: matrices that multiply the same input are stacked, q, k and v for
// instance. Such a fuse group is a MatrixPart. kMatrixTensors and kNormTensors
// give each tensor's fuse group, its name in TensorNames, its shape, and the
// models that have it. All code that visits a layer's tensors iterates these
// tables: the finder, the weights of the CPU and of CUDA, random weights,
// memory sums. A new tensor is a row here, a name in TensorNames, and its use
// in the two passes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

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
  kCount,
};
// All, in the order in which a step reads them.
inline constexpr MatrixPart kMatrixParts[] = {
    MatrixPart::kQkv,     MatrixPart::kOutput,      MatrixPart::kCrossQuery,
    MatrixPart::kCrossKv, MatrixPart::kCrossOutput, MatrixPart::kGateUp,
    MatrixPart::kDown};

enum class NormPart : uint8_t {
  kAttentionNorm,
  kQueryNorm,  // per head
  kKeyNorm,
  kPostAttentionNorm,  // on the attention's output, before the residual add
  kCrossNorm,
  kMlpNorm,
  kPostMlpNorm,
  kCount,
};

// A dimension of a tensor.
enum class LayerDim : uint8_t {
  kHidden,   // hidden_size
  kQueries,  // num_heads * head_dim
  kKeys,     // num_kv_heads * head_dim
  kValues,   // num_kv_heads * head_dim
  kHead,     // head_dim
  kIntermediate,
};
int SizeOf(const TransformerConfig& config, const LayerConfig& layer,
           LayerDim dim);

// The models and layers that have a tensor.
enum class LayerFeature : uint8_t {
  kAlways,
  kCrossAttention,  // layers that have it
  kGate,            // has_gate
  kQkNorms,         // has_qk_norms
  kPostNorms,       // has_post_norms
};
bool Has(const TransformerConfig& config, const LayerConfig& layer,
         LayerFeature feature);

// The dimension that tensor parallelism shards. kInputs needs an all-reduce
// over the ranks.
enum class ShardAxis : uint8_t { kOutputs, kInputs };

// A matrix [rows, cols] of a checkpoint, [outputs, inputs], with an optional
// bias [rows]. Errors, and later adapters, name it by `label`.
struct MatrixTensor {
  MatrixPart matrix;  // its fuse group; rows are stacked in the table's order
  std::string_view TensorNames::*name;
  std::string_view label;
  LayerDim rows;
  LayerDim cols;
  ShardAxis shards;
  bool TransformerConfig::*has_bias;
  LayerFeature feature = LayerFeature::kAlways;
};
inline constexpr MatrixTensor kMatrixTensors[] = {
    {MatrixPart::kQkv, &TensorNames::q, "q_proj", LayerDim::kQueries,
     LayerDim::kHidden, ShardAxis::kOutputs, &TransformerConfig::has_qkv_bias},
    {MatrixPart::kQkv, &TensorNames::k, "k_proj", LayerDim::kKeys,
     LayerDim::kHidden, ShardAxis::kOutputs, &TransformerConfig::has_qkv_bias},
    {MatrixPart::kQkv, &TensorNames::v, "v_proj", LayerDim::kValues,
     LayerDim::kHidden, ShardAxis::kOutputs, &TransformerConfig::has_qkv_bias},
    {MatrixPart::kOutput, &TensorNames::output, "o_proj", LayerDim::kHidden,
     LayerDim::kQueries, ShardAxis::kInputs,
     &TransformerConfig::has_output_bias},
    {MatrixPart::kCrossQuery, &TensorNames::cross_q, "cross q_proj",
     LayerDim::kQueries, LayerDim::kHidden, ShardAxis::kOutputs,
     &TransformerConfig::has_qkv_bias, LayerFeature::kCrossAttention},
    {MatrixPart::kCrossKv, &TensorNames::cross_k, "cross k_proj",
     LayerDim::kKeys, LayerDim::kHidden, ShardAxis::kOutputs,
     &TransformerConfig::has_qkv_bias, LayerFeature::kCrossAttention},
    {MatrixPart::kCrossKv, &TensorNames::cross_v, "cross v_proj",
     LayerDim::kValues, LayerDim::kHidden, ShardAxis::kOutputs,
     &TransformerConfig::has_qkv_bias, LayerFeature::kCrossAttention},
    {MatrixPart::kCrossOutput, &TensorNames::cross_output, "cross o_proj",
     LayerDim::kHidden, LayerDim::kQueries, ShardAxis::kInputs,
     &TransformerConfig::has_output_bias, LayerFeature::kCrossAttention},
    {MatrixPart::kGateUp, &TensorNames::gate, "gate_proj",
     LayerDim::kIntermediate, LayerDim::kHidden, ShardAxis::kOutputs,
     &TransformerConfig::has_mlp_bias, LayerFeature::kGate},
    {MatrixPart::kGateUp, &TensorNames::up, "up_proj", LayerDim::kIntermediate,
     LayerDim::kHidden, ShardAxis::kOutputs, &TransformerConfig::has_mlp_bias},
    {MatrixPart::kDown, &TensorNames::down, "down_proj", LayerDim::kHidden,
     LayerDim::kIntermediate, ShardAxis::kInputs,
     &TransformerConfig::has_mlp_bias},
};

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
  LayerDim size;
  LayerFeature feature = LayerFeature::kAlways;
};
inline constexpr NormTensor kNormTensors[] = {
    {NormPart::kAttentionNorm, &TensorNames::attention_norm, LayerDim::kHidden},
    {NormPart::kQueryNorm, &TensorNames::q_norm, LayerDim::kHead,
     LayerFeature::kQkNorms},
    {NormPart::kKeyNorm, &TensorNames::k_norm, LayerDim::kHead,
     LayerFeature::kQkNorms},
    {NormPart::kPostAttentionNorm, &TensorNames::post_attention_norm,
     LayerDim::kHidden, LayerFeature::kPostNorms},
    {NormPart::kCrossNorm, &TensorNames::cross_norm, LayerDim::kHidden,
     LayerFeature::kCrossAttention},
    {NormPart::kMlpNorm, &TensorNames::mlp_norm, LayerDim::kHidden},
    {NormPart::kPostMlpNorm, &TensorNames::post_mlp_norm, LayerDim::kHidden,
     LayerFeature::kPostNorms},
};

static_assert(std::size(kNormTensors) == static_cast<size_t>(NormPart::kCount));
static_assert(std::size(kMatrixParts) ==
              static_cast<size_t>(MatrixPart::kCount));

// The parts of a layer: a value for each norm and each matrix. A part that the
// model does not have is a default value.
template <typename Norm, typename Matrix>
class LayerParts {
 public:
  Norm& operator[](NormPart norm) { return norms_[static_cast<size_t>(norm)]; }
  const Norm& operator[](NormPart norm) const {
    return norms_[static_cast<size_t>(norm)];
  }
  Matrix& operator[](MatrixPart matrix) {
    return matrices_[static_cast<size_t>(matrix)];
  }
  const Matrix& operator[](MatrixPart matrix) const {
    return matrices_[static_cast<size_t>(matrix)];
  }

 private:
  std::array<Norm, static_cast<size_t>(NormPart::kCount)> norms_ = {};
  std::array<Matrix, static_cast<size_t>(MatrixPart::kCount)> matrices_ = {};
};

}  // namespace espalier
