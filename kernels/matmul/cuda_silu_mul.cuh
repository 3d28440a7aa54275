// What the products of a GPU make of a gate and its up, where the epilogue is
// CudaEpilogue::kSiluMul and both are still sums in float32.
#pragma once

namespace espalier {

__device__ __forceinline__ float SiluMul(float gate, float up) {
  return __fdividef(gate, 1 + __expf(-gate)) * up;
}

}  // namespace espalier
