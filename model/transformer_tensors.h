// TransformerTensors: the tensors of a checkpoint, each found under its name of
// the model's family (tensor_names.h) and checked against config.json, before
// anything is made of them. Nothing is copied: parts point into the
// checkpoint's files.
//
// A tensor that the model's config.json does not speak of is an error
// (docs/models.md): what is left unread would be missing from the results.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "model/checkpoint.h"
#include "model/layer_parts.h"
#include "model/transformer_config.h"

namespace espalier {

// Those of a matrix that is stored as e4m3 codes.
struct Fp8Scales {
  std::span<const std::byte> data;  // one for each row, or for all
  DType dtype = DType::kFloat32;
};

// A matrix, row-major; a norm or a bias has num_rows numbers. No rows: absent.
struct TransformerTensor {
  std::span<const std::byte> data;
  DType dtype = DType::kFloat32;
  int num_rows = 0;
  bool is_transposed = false;  // stored [num_cols, num_rows]
  // Not empty: data are e4m3 codes and dtype, kBFloat16, is what they stand for
  // (model/fp8_rows.h).
  Fp8Scales fp8_scales = {};
  std::string name = {};  // in the checkpoint

  bool is_fp8() const { return !fp8_scales.data.empty(); }
  // Of a row as it is stored.
  size_t num_cols() const {
    return data.size() / (is_fp8() ? 1 : NumBytes(dtype)) / num_rows;
  }
};

// No data: the model has none.
struct NormTensors {
  TransformerTensor weight;
  TransformerTensor bias;
};

// A fuse group: its tensors in the order of kMatrixTensors, or the one that has
// the rows of all. As many biases, or none.
struct MatrixTensors {
  std::vector<TransformerTensor> weights;
  std::vector<TransformerTensor> biases;
};

using TransformerLayerTensors = LayerParts<NormTensors, MatrixTensors>;

// An encoder, or a decoder.
struct TransformerStackTensors {
  // [offset + max_context, hidden_size]; of sinusoidal ones no rows, if they
  // are not stored
  TransformerTensor positions;
  NormTensors embedding_norm;         // [hidden_size]
  TransformerTensor distance_biases;  // [num_distance_buckets, num_heads]
  std::vector<TransformerLayerTensors> layers;
  NormTensors final_norm;  // [hidden_size]
};

struct TransformerTensors : TransformerStackTensors {
  TransformerTensor embedding;    // [vocab_size, embedding_size]
  TransformerTensor project_in;   // [hidden_size, embedding_size]
  TransformerTensor project_out;  // [embedding_size, hidden_size]
  // [vocab_size, embedding_size]; no rows if tied
  TransformerTensor head;
  TransformerTensor logits_bias;    // [1, vocab_size]
  TransformerStackTensors encoder;  // no layers if there is none
};

// The result lives as long as the checkpoint. Throws std::bad_alloc.
// Errors: kInvalidArgument naming the file (with shards, the one that has the
// tensor), the tensor and the value, of which 60 bytes are shown, if a tensor
// is missing, its shape or dtype (BF16, F16, F32; of a matrix F8_E4M3 with
// scales, where config.json says so) is wrong, a scale is not in [0, 256), a
// tied head has numbers of its own, or there is a weight that nothing reads.
absl::StatusOr<TransformerTensors> FindTransformerTensors(
    const Checkpoint& checkpoint, const TransformerConfig& config);

// All of them that there are.
std::vector<TransformerTensor> AllTensors(const TransformerTensors& tensors);

}  // namespace espalier
