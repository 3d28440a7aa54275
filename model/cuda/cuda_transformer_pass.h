// CudaTransformerPass: what a transformer has on a device, its weights, keys
// and values and the memory it computes in, and one forward pass over them.
//
//   embed + norm -> [ q k v, finish heads, rotate and store k v, attend,
//                     output +=, norm, gate up, activation, down +=, norm ]
//                   x layers -> head
//
// A model has what its TransformerConfig says: where that is what Llama has,
// activations are part of the gate's and up's product, heads need no finishing,
// and norms are the plain ones of kernels/elementwise/cuda_elementwise.h.
//
// Thread safety: one thread, one stream at a time.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "base/cuda_memory.h"
#include "exec_request/cuda_model.h"
#include "kernels/elementwise/cuda_elementwise.h"
#include "kernels/matmul/cuda_matmul.h"
#include "model/cuda/cuda_transformer_memory.h"
#include "model/cuda/cuda_transformer_weights.h"
#include "model/transformer_config.h"

namespace espalier {

class CudaTransformerPass {
 public:
  // Everything but the weights is allocated here.
  // Errors: kInvalidArgument if options.kv_cache_bytes is too little;
  // kResourceExhausted, naming the bytes, if device memory runs out; kInternal.
  static absl::StatusOr<std::unique_ptr<CudaTransformerPass>> Create(
      const TransformerConfig& config, const CudaTransformerOptions& options,
      const CudaDevice& device, CudaTransformerWeights weights);

  // CudaModel::Enqueue. REQUIRES: counts are within the options' bounds, and
  // num_tokens is not 0.
  absl::Status Enqueue(const CudaBatch& batch, float* logits,
                       cudaStream_t stream);

  const CudaKvCache& cache() const { return kv_.cache; }
  // Of every layer, its window aside.
  CudaAttentionShape attention_shape() const;
  CudaMemoryParts memory() const;

 private:
  // Activations between two parts of a layer: the residual stream, and what
  // the next part reads.
  struct TokenRows {
    int num_rows = 0;
    float* x = nullptr;
    void* attended = nullptr;
  };
  // What a part of a layer leaves to the stream.
  struct Addition {
    const void* in = nullptr;
    const CudaMatrix& w;
    const float* bias = nullptr;
    const float* post_norm = nullptr;
  };

  CudaTransformerPass(const TransformerConfig& config,
                      const CudaTransformerOptions& options,
                      const CudaDevice& device, CudaTransformerWeights weights);

  CudaAttentionShape LayerShape(int layer_idx) const;
  CudaNorm Norm(const CudaNormWeights& weights) const;
  absl::Status Embed(const CudaBatch& batch, cudaStream_t stream);
  absl::Status StoreProjections(int layer_idx, const CudaBatch& batch,
                                cudaStream_t stream);
  absl::Status FinishHeads(const CudaTransformerLayer& layer, int num_tokens,
                           cudaStream_t stream);
  absl::Status Attend(int layer_idx, const CudaBatch& batch,
                      cudaStream_t stream);
  absl::StatusOr<TokenRows> KeepLogitsTokens(const CudaBatch& batch,
                                             cudaStream_t stream);
  absl::Status FinishLayer(const CudaTransformerLayer& layer,
                           const TokenRows& rows,
                           const CudaNormWeights& next_norm,
                           cudaStream_t stream);
  absl::Status FeedForward(const CudaTransformerLayer& layer, int num_rows,
                           cudaStream_t stream);
  absl::Status AddAndNormalise(const Addition& addition, const TokenRows& rows,
                               const CudaNormWeights& next_norm,
                               cudaStream_t stream);
  absl::Status WriteLogits(int num_rows, float* logits, cudaStream_t stream);

  const TransformerConfig config_;
  const CudaTransformerOptions options_;
  const CudaDevice device_;
  const CudaTransformerWeights weights_;
  float embedding_scale_ = 1;
  CudaKvMemory kv_;
  CudaRotaryMemory rotary_;
  CudaRotaryMemory local_rotary_;  // of layers with a window; or empty
  CudaTransformerScratch scratch_;
  std::unique_ptr<CudaMatMul> matmul_;
};

}  // namespace espalier
