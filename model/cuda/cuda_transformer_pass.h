// CudaTransformerPass: a transformer's device memory (weights, KV cache,
// scratch) and its forward pass.
//
//   embed + norm -> [ q k v, finish heads, rotate and store k v, attend,
//                     output +=, norm, gate up, activation, down +=, norm ]
//                   x layers -> head
//
// TransformerConfig selects the parts. With Llama's features the activation is
// fused into the gate_up product, heads need no finishing, and norms are the
// plain ones of kernels/elementwise/cuda_elementwise.h.
//
// With an encoder, a layer has cross-attention between its two parts, as on the
// host (model/transformer_pass.h). Before the decoder's layers, the encoder
// reads the batch's sources, tokens or features, and their cross-attention keys
// and values are stored in the sources' pages.
//
// Thread safety: one thread, one stream at a time.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "base/cuda_memory.h"
#include "exec_request/cuda_model.h"
#include "kernels/elementwise/cuda_elementwise.h"
#include "kernels/elementwise/cuda_finish_heads.h"
#include "kernels/elementwise/cuda_im2col.h"
#include "kernels/matmul/cuda_matmul.h"
#include "model/cuda/cuda_transformer_memory.h"
#include "model/cuda/cuda_transformer_weights.h"
#include "model/transformer_config.h"

namespace espalier {

class CudaTransformerPass {
 public:
  // Allocates all memory but the weights.
  // Errors: kInvalidArgument if options.kv_cache_bytes is too little;
  // kResourceExhausted, naming the bytes, if device memory runs out; kInternal.
  static absl::StatusOr<std::unique_ptr<CudaTransformerPass>> Create(
      std::shared_ptr<const CudaTransformerWeights> weights,
      const CudaTransformerOptions& options, const CudaDevice& device);

  // CudaModel::Enqueue.
  // REQUIRES: counts are within the options' bounds, and batch.num_tokens or
  // batch.sources.num_tokens is not 0.
  absl::Status Enqueue(const CudaBatch& batch, float* logits,
                       cudaStream_t stream);

  const CudaKvCache& cache() const { return kv_.cache; }
  // The decoder's shape, without the window and biases of single layers.
  CudaAttentionShape attention_shape() const;
  CudaMemoryParts memory() const;
  const std::shared_ptr<const CudaTransformerWeights>& shared_weights() const {
    return shared_weights_;
  }

 private:
  // Input tokens of a stack of layers, and their KV cache.
  struct StackTokens {
    int num_tokens = 0;
    const int* tokens = nullptr;
    const int* positions = nullptr;
    const int* token_tables = nullptr;
    const CudaAttentionInputs& attention;
    const CudaKvCache& cache;
  };
  // Activations between two parts of a layer: the residual stream, and the
  // output of attention.
  struct TokenRows {
    int num_rows = 0;
    float* x = nullptr;
    void* attended = nullptr;
  };
  // The output projection that is applied to `attended`.
  struct AttentionOutput {
    const CudaProductWeights& product;
    const float* post_norm = nullptr;
    const CudaNormWeights& norm;  // norms the sum, with norms_sums
  };
  // A part's last product, whose result is added to the residual stream.
  struct Addition {
    const void* in = nullptr;
    const CudaProductWeights& product;
    const float* post_norm = nullptr;
  };

  CudaTransformerPass(std::shared_ptr<const CudaTransformerWeights> weights,
                      const CudaTransformerOptions& options,
                      const CudaDevice& device);

  CudaAttentionShape SelfAttentionShape(const CudaTransformerStack& stack,
                                        int layer_idx) const;
  CudaAttentionShape LayerShape(int layer_idx) const;  // decoder layer
  CudaNorm Norm(const CudaNormWeights& weights) const;
  // Returns the norm after a residual add: with norms_sums `own`, whose result
  // replaces x, else `next`, the norm that the next part begins with.
  CudaNorm NormOfSum(const CudaNormWeights& own,
                     const CudaNormWeights& next) const;
  absl::Status Embed(const CudaTransformerStack& stack,
                     const StackTokens& tokens, cudaStream_t stream);
  absl::Status StoreProjections(const CudaWeightParts& layer, int layer_idx,
                                const StackTokens& tokens, cudaStream_t stream);
  absl::Status FinishHeads(const CudaHeadWeights& heads, int num_heads,
                           int num_kv_heads, int num_tokens,
                           cudaStream_t stream);
  // Encoder.
  absl::Status EmbedFeatures(const CudaSourceBatch& sources,
                             cudaStream_t stream);
  absl::Status Convolve(const CudaFrames& frames, int stride, int width,
                        const CudaProductWeights& product, void* out,
                        cudaStream_t stream);
  absl::Status ReadSources(const CudaBatch& batch, cudaStream_t stream);
  absl::Status StoreSources(const CudaBatch& batch, cudaStream_t stream);
  // Adds the output of self-attention to the residual stream and writes the
  // output of cross-attention to `attended`.
  absl::Status AttendToSource(int layer_idx, const CudaBatch& batch,
                              cudaStream_t stream);
  absl::Status ReportScores(int layer_idx, const CudaAlignedTokens& aligned,
                            const CudaBatch& batch, cudaStream_t stream);
  static AttentionOutput OutputOf(const CudaWeightParts& layer);
  static AttentionOutput CrossOutputOf(const CudaWeightParts& layer);
  absl::StatusOr<TokenRows> KeepLogitsTokens(const CudaBatch& batch,
                                             cudaStream_t stream);
  absl::Status FinishLayer(const CudaWeightParts& layer,
                           const AttentionOutput& output, const TokenRows& rows,
                           const CudaNormWeights& next_norm,
                           cudaStream_t stream);
  absl::Status FeedForward(const CudaWeightParts& layer, int num_rows,
                           cudaStream_t stream);
  absl::Status AddAndNormalise(const Addition& addition, const TokenRows& rows,
                               const CudaNorm& norm, cudaStream_t stream);
  absl::Status WriteLogits(int num_rows, float* logits, cudaStream_t stream);

  const std::shared_ptr<const CudaTransformerWeights> shared_weights_;
  const CudaTransformerWeights& weights_;
  const TransformerConfig& config_;
  const CudaTransformerOptions options_;
  const CudaDevice device_;
  float embedding_scale_ = 1;
  CudaKvMemory kv_;
  CudaRotaryMemory rotary_;        // or empty
  CudaRotaryMemory local_rotary_;  // for layers with a window; or empty
  CudaSinusoids sinusoids_;        // or empty
  CudaKvMemory source_kv_;         // encoder's current layer; or empty
  CudaTransformerScratch scratch_;
  std::unique_ptr<CudaMatMul> matmul_;
};

}  // namespace espalier
