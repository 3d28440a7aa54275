// The shapes of CudaAttention that its tests go through, each of which a kernel
// or a form of one takes.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kernels/attention/cuda_attention.h"

namespace espalier::testing {

inline auto AttentionShapes() {
  constexpr DType kBf16 = DType::kBFloat16, kF16 = DType::kFloat16,
                  kF32 = DType::kFloat32;
  return ::testing::Values(
      // Tensor-core shapes: groups that fill tiles, and groups that do not.
      CudaAttentionShape{8, 2, 128, 16, kBf16},
      CudaAttentionShape{8, 2, 64, 16, kF16},
      CudaAttentionShape{2, 2, 64, 32, kBf16},
      CudaAttentionShape{6, 2, 128, 64, kF16},
      CudaAttentionShape{20, 1, 64, 16, kBf16},
      CudaAttentionShape{7, 1, 128, 48, kBf16},
      // SIMT shapes.
      CudaAttentionShape{8, 2, 128, 16, kF32},
      CudaAttentionShape{2, 2, 64, 1, kF32},
      CudaAttentionShape{5, 1, 256, 7, kF32},
      CudaAttentionShape{4, 2, 8, 5, kBf16},
      CudaAttentionShape{12, 1, 80, 16, kF16});
}

inline std::string AttentionShapeName(
    const ::testing::TestParamInfo<CudaAttentionShape>& shape) {
  const CudaAttentionShape& s = shape.param;
  return "Heads" + std::to_string(s.num_heads) + "Of" +
         std::to_string(s.num_kv_heads) + "Dim" + std::to_string(s.head_dim) +
         "Page" + std::to_string(s.page_size) + "Type" +
         std::to_string(static_cast<int>(s.dtype));
}

}  // namespace espalier::testing
