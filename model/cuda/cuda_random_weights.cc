#include "model/cuda/cuda_random_weights.h"

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kernels/elementwise/cuda_elementwise.h"
#include "kernels/matmul/cuda_fp8_fill.h"

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
    RETURN_IF_ERROR(FillStack({config_}, weights));
    if (!config_.encoder) return absl::OkStatus();
    return FillStack({config_, /*is_encoder=*/true}, weights.encoder);
  }

 private:
  absl::Status FillStack(const TensorOwner& owner,
                         const CudaTransformerStack& stack) {
    RETURN_IF_ERROR(FillParts(owner, stack));
    for (size_t i = 0; i < stack.layers.size(); ++i) {
      RETURN_IF_ERROR(FillParts(owner.OfLayer(i), stack.layers[i]));
    }
    return absl::OkStatus();
  }

  // Padding rows get random numbers too: those of gate_up meet zero columns of
  // `down`, and random heads fill their padded width.
  absl::Status FillParts(const TensorOwner& owner,
                         const CudaWeightParts& parts) {
    for (const TableTensor& table : kTableTensors) {
      const CudaMatrix& w = parts[table.table];
      if (w.data == nullptr) continue;
      RETURN_IF_ERROR(Fill(w, w.num_rows, SizeOf(owner, table.cols)));
    }
    for (const NormTensor& norm : kNormTensors) {
      RETURN_IF_ERROR(
          FillNorm(parts[norm.norm].weight, SizeOf(owner, norm.size)));
    }
    for (const MatrixPart matrix : kMatrixParts) {
      const CudaMatrix& w = parts[matrix].matrix;
      if (w.data == nullptr || w.data == parts[TablePart::kEmbedding].data) {
        continue;
      }
      const auto [rows, cols] =
          std::pair(FirstMember(matrix).rows, FirstMember(matrix).cols);
      RETURN_IF_ERROR(
          Fill(w, rows == TensorDim::kHidden ? config_.hidden_size : w.num_rows,
               cols == TensorDim::kQueries ? widths_.q : SizeOf(owner, cols)));
    }
    return absl::OkStatus();
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
