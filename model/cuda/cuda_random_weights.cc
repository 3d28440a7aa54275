#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/elementwise/cuda_elementwise.h"
#include "kernels/matmul/cuda_fp8_fill.h"
#include "model/cuda/cuda_transformer_weights.h"

namespace espalier {
namespace {

constexpr float kRandomDeviation = 0.02f;

// Fills matrices and norms, each with numbers of its own.
class RandomFiller {
 public:
  RandomFiller(const TransformerConfig& config,
               const CudaTransformerWidths& widths)
      : config_(config), widths_(widths) {}

  absl::Status Run(const CudaTransformerWeights& weights) {
    const int hidden = config_.hidden_size;
    RETURN_IF_ERROR(Fill(weights.embedding, config_.vocab_size, hidden));
    if (!config_.tie_word_embeddings) {
      RETURN_IF_ERROR(Fill(weights.head, config_.vocab_size, hidden));
    }
    RETURN_IF_ERROR(FillStack(weights, config_.intermediate_size));
    if (!config_.encoder) return absl::OkStatus();
    for (const CudaTransformerLayer& layer : weights.layers) {
      RETURN_IF_ERROR(FillNorm(layer.cross_norm.weight, hidden));
      RETURN_IF_ERROR(Fill(layer.cross_q, widths_.q, hidden));
      RETURN_IF_ERROR(Fill(layer.cross_kv, 2 * widths_.kv, hidden));
      RETURN_IF_ERROR(Fill(layer.cross_output, hidden, widths_.q));
    }
    return FillStack(weights.encoder, config_.encoder->intermediate_size);
  }

 private:
  absl::Status FillStack(const CudaTransformerStack& stack,
                         int intermediate_size) {
    const int hidden = config_.hidden_size;
    if (stack.positions.data != nullptr) {
      RETURN_IF_ERROR(Fill(stack.positions, stack.positions.num_rows, hidden));
    }
    RETURN_IF_ERROR(FillNorm(stack.embedding_norm.weight, hidden));
    RETURN_IF_ERROR(FillNorm(stack.final_norm.weight, hidden));
    for (const CudaTransformerLayer& layer : stack.layers) {
      RETURN_IF_ERROR(FillLayer(layer, intermediate_size));
    }
    return absl::OkStatus();
  }

  // Rows past the real ones get numbers too: those of gate_up meet columns of
  // `down` that are zero, and heads are as wide as they lie in memory.
  absl::Status FillLayer(const CudaTransformerLayer& layer,
                         int intermediate_size) {
    const int hidden = config_.hidden_size;
    RETURN_IF_ERROR(FillNorm(layer.attention_norm.weight, hidden));
    RETURN_IF_ERROR(Fill(layer.qkv, layer.qkv.num_rows, hidden));
    RETURN_IF_ERROR(Fill(layer.output, hidden, widths_.q));
    RETURN_IF_ERROR(FillNorm(layer.q_norm, config_.head_dim));
    RETURN_IF_ERROR(FillNorm(layer.k_norm, config_.head_dim));
    RETURN_IF_ERROR(FillNorm(layer.post_attention_norm, hidden));
    RETURN_IF_ERROR(FillNorm(layer.mlp_norm.weight, hidden));
    RETURN_IF_ERROR(Fill(layer.gate_up, layer.gate_up.num_rows, hidden));
    RETURN_IF_ERROR(Fill(layer.down, hidden, intermediate_size));
    return FillNorm(layer.post_mlp_norm, hidden);
  }

  absl::Status Fill(const CudaMatrix& w, int num_rows, int num_cols) {
    if (w.fp8_scales != nullptr) {
      return CudaFillFp8Normal(w, num_rows, num_cols, kRandomDeviation, ++seed_,
                               /*stream=*/nullptr);
    }
    return CudaFillNormal(const_cast<void*>(w.data), w.dtype, num_rows,
                          num_cols, w.num_cols, kRandomDeviation, ++seed_,
                          /*stream=*/nullptr);
  }
  absl::Status FillNorm(float* norm, int size) {
    if (norm == nullptr) return absl::OkStatus();
    const std::vector<float> ones(size, 1.0f);
    RETURN_IF_CUDA_ERROR(cudaMemcpy(norm, ones.data(), size * sizeof(float),
                                    cudaMemcpyHostToDevice));
    return absl::OkStatus();
  }

  const TransformerConfig& config_;
  const CudaTransformerWidths& widths_;
  uint64_t seed_ = 0;
};

}  // namespace

absl::StatusOr<CudaTransformerWeights> RandomCudaTransformerWeights(
    const TransformerConfig& config, const CudaWeightTypes& types) {
  ASSIGN_OR_RETURN(CudaTransformerWeights weights,
                   AllocateCudaTransformerWeights(config, types));
  RETURN_IF_ERROR(RandomFiller(config, weights.widths).Run(weights));
  RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  return weights;
}

}  // namespace espalier
