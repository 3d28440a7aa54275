// CudaTransformer: the forward pass of transformer models on the device, over
// paged keys and values. It computes the same model as TransformerModel, in
// bf16, f16 or f32; the residual stream, norms, softmax and logits are always
// float32.
//
// One call takes a batch of rows of any length, prompt chunks and decoding rows
// together (exec_request/cuda_model.h).
//
// It supports every feature of TransformerConfig
// (model/cuda/cuda_transformer_pass.h). Models that exceed the kernels' limits
// are refused, naming the size (model/cuda_limits.h).
//
// In the last layer, after attention, only tokens that have logits are computed
// further.
//
// A token's logits depend on its own sequence only, except for the rounding of
// sums, which depends on the number of tokens in a call and on the division of
// attention's work.
//
// Thread safety: as CudaModel.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/cuda_resources.h"
#include "base/dtype.h"
#include "exec_request/cuda_model.h"
#include "kernels/matmul/weight_format.h"
#include "model/transformer_config.h"

namespace espalier {

struct CudaTransformerOptions {
  int page_size = 16;  // tokens; 16, 32 or 64 are fast
  // Size of the KV cache; description().num_pages is one less than the pages
  // that fit, because rows without a beam write to a page of their own.
  int64_t kv_cache_bytes = int64_t{1} << 30;
  DType dtype = DType::kBFloat16;  // weights, activations, KV cache
  // kFp8: layers' matrices are quantised to e4m3; needs dtype kBFloat16.
  // kAsStored: matrices that the file stores as e4m3 stay so, if dtype is
  // kBFloat16.
  WeightFormat weights = WeightFormat::kAsStored;
  // Bounds of one call; they size the scratch. If sources are features, their
  // encoder reads max_tokens / EncoderConfig::max_tokens of them in a call, and
  // one in any case.
  int max_tokens = 4096;
  // Rows of logits, for beams, samples and scored prompt tokens. 0: as many as
  // fit in 1 GiB, at least 256, at most max_tokens and kMaxCudaLogitsRows.
  int max_logits = 0;
  // Work items of attention; 0: enough to divide any call well.
  int max_attention_items = 0;
  int max_attention_partials = 0;  // items, summed over tokens
};

// Returns `options` with its zeros replaced by the defaults for vocab_size.
CudaTransformerOptions WithBounds(CudaTransformerOptions options,
                                  int vocab_size);

struct CudaTransformerWeights;  // model/cuda/cuda_transformer_weights.h

class CudaTransformer : public CudaModel {
 public:
  // Loads a model directory as TransformerModel does, converting weights to
  // options.dtype.
  // Errors: as TransformerModel::Load; kInvalidArgument naming the value if an
  // option is out of range, the model is too large (model/cuda_limits.h), or a
  // weight that float16 cannot hold; kResourceExhausted,
  // naming the bytes, if device memory runs out.
  static absl::StatusOr<std::unique_ptr<CudaTransformer>> Load(
      const std::string& directory, const CudaTransformerOptions& options,
      const CudaDevice& device);
  // Makes a model with normally distributed weights, generated on the device,
  // for benchmarks of shapes without published weights.
  static absl::StatusOr<std::unique_ptr<CudaTransformer>> Random(
      const TransformerConfig& config, const CudaTransformerOptions& options,
      const CudaDevice& device);

  // Makes a model of loaded weights, with a KV cache and scratch of its own.
  // Errors: as Load; also if options.dtype or options.weights differs from that
  // of `weights`.
  static absl::StatusOr<std::unique_ptr<CudaTransformer>> Create(
      std::shared_ptr<const CudaTransformerWeights> weights,
      const CudaTransformerOptions& options, const CudaDevice& device);

  const TransformerConfig& config() const;
  // Pass to Create for another model on the same weights and device.
  virtual const std::shared_ptr<const CudaTransformerWeights>& weights()
      const = 0;
};

}  // namespace espalier
