// CudaTransformer: the forward pass of transformer models on the device, over
// paged keys and values. It computes what TransformerModel does, in bf16, f16
// or f32; the residual stream, norms, softmax and logits are float32 in all of
// them.
//
// One entry point takes rows of any length: prompt chunks, decoding rows, many
// at once (exec_request/cuda_model.h).
//
// It computes every feature of TransformerConfig
// (model/cuda/cuda_transformer_pass.h); models that are too large for its
// kernels are refused by name (model/cuda_limits.h).
//
// In the last layer, once keys and values are stored and attention has run,
// only the tokens that have logits go on.
//
// A token's logits depend on its own sequence and, by the rounding of sums
// alone, on how many tokens a call has and how attention's work was divided.
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
  // Key/value memory; description().num_pages is what it holds, less one page
  // that rows without a beam write to.
  int64_t kv_cache_bytes = int64_t{1} << 30;
  DType dtype = DType::kBFloat16;  // of weights, activations, keys and values
  // kFp8: layers' matrices are e4m3, whatever the file has; of kBFloat16.
  // kAsStored: those that the file has so, if dtype is kBFloat16.
  WeightFormat weights = WeightFormat::kAsStored;
  // Bounds of one call, which size the scratch.
  int max_tokens = 4096;
  // Rows of logits: of beams, samples and scored tokens of prompts. 0 stands
  // for as many as 1 GiB of logits holds, but 256 at least, up to max_tokens
  // and kMaxCudaLogitsRows.
  int max_logits = 0;
  // Of attention's work; 0 stands for as many as divide any call well.
  int max_attention_items = 0;
  int max_attention_partials = 0;  // items, summed over tokens
};

// `options` for a model of so many tokens, with its zeros filled in.
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
  // The same with normally distributed weights made on the device, to measure
  // shapes that no weights exist for.
  static absl::StatusOr<std::unique_ptr<CudaTransformer>> Random(
      const TransformerConfig& config, const CudaTransformerOptions& options,
      const CudaDevice& device);

  // Makes a model of loaded weights, with a cache and scratch of its own.
  // Errors: as Load; also if options.dtype or options.weights is not that of
  // `weights`.
  static absl::StatusOr<std::unique_ptr<CudaTransformer>> Create(
      std::shared_ptr<const CudaTransformerWeights> weights,
      const CudaTransformerOptions& options, const CudaDevice& device);

  const TransformerConfig& config() const;
  // For other models on the same weights and device.
  virtual const std::shared_ptr<const CudaTransformerWeights>& weights()
      const = 0;
};

}  // namespace espalier
