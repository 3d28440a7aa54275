// TransformerTensors: a model's tensors, found in a checkpoint by the names of
// the model's family (tensor_names.h) and checked against config.json. Nothing
// is copied: the tensors point into the checkpoint's files.
//
// A weight that config.json does not account for is an error (docs/models.md):
// ignoring it would change the results.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "model/checkpoint.h"
#include "model/transformer_config.h"
#include "model/transformer_parts.h"

namespace espalier {

// Scales of an e4m3 matrix.
struct Fp8Scales {
  std::span<const std::byte> data;  // one per row, or one for the matrix
  DType dtype = DType::kFloat32;
};

// A matrix, row-major; a norm or a bias has num_rows numbers. No rows: absent.
struct TransformerTensor {
  std::span<const std::byte> data;
  DType dtype = DType::kFloat32;
  int num_rows = 0;
  bool is_transposed = false;  // stored [num_cols, num_rows]
  // A convolution's: stored [num_rows, num_cols / kNumTaps, kNumTaps], used
  // [num_rows, kNumTaps, num_cols / kNumTaps], in the order of frames.
  bool has_taps = false;
  // If not empty, `data` are e4m3 codes, and `dtype` is kBFloat16, the type
  // they dequantise to (model/fp8_rows.h).
  Fp8Scales fp8_scales = {};
  // A float32 for each row. If not empty, `data` are int8 codes, and `dtype` is
  // the type they dequantise to (model/int8_rows.h).
  std::span<const std::byte> int8_scales = {};
  std::string name = {};  // in the checkpoint

  bool is_fp8() const { return !fp8_scales.data.empty(); }
  bool is_int8() const { return !int8_scales.empty(); }
  // Columns of a stored row.
  size_t num_cols() const {
    const bool has_codes = is_fp8() || is_int8();
    return data.size() / (has_codes ? 1 : NumBytes(dtype)) / num_rows;
  }
};

// Empty if the model has no such norm.
struct NormTensors {
  TransformerTensor weight;
  TransformerTensor bias;
};

// A fuse group: its tensors in the order of kMatrixTensors, or one fused tensor
// with the rows of all. One bias per tensor, or none; one without data is 0.
struct MatrixTensors {
  std::vector<TransformerTensor> weights;
  std::vector<TransformerTensor> biases;
};

using TensorParts =
    TransformerParts<NormTensors, MatrixTensors, TransformerTensor>;

// An encoder, or a decoder, and its tensors outside of layers. Positions have
// no rows if they are sinusoidal and not stored.
struct TransformerStackTensors : TensorParts {
  std::vector<TensorParts> layers;
};

// The head has no weights if it is the embedding. The bias of the logits is the
// head's; without one it is zero.
struct TransformerTensors : TransformerStackTensors {
  TransformerStackTensors encoder;  // without layers in a decoder-only model
};

// The result lives as long as the checkpoint. Throws std::bad_alloc.
// Errors: kInvalidArgument naming the file (with shards, the one that has the
// tensor), the tensor and the value, of which 60 bytes are shown, if a tensor
// is missing, its shape or dtype (BF16, F16, F32; of a matrix F8_E4M3 with
// scales, where config.json says so, and I8 in files of CTranslate2) is wrong,
// a scale is not in [0, 256), a tied head differs from the embedding, or a
// weight is not used.
absl::StatusOr<TransformerTensors> FindTransformerTensors(
    const Checkpoint& checkpoint, const TransformerConfig& config);

// Returns all tensors that are present.
std::vector<TransformerTensor> AllTensors(const TransformerTensors& tensors);

}  // namespace espalier
