// silu(gate) * up on float32 sums, for CudaEpilogue::kSiluMul.
#pragma once

namespace espalier {

__device__ __forceinline__ float SiluMul(float gate, float up) {
  return __fdividef(gate, 1 + __expf(-gate)) * up;
}

}  // namespace espalier
