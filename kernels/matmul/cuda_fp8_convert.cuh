// Conversion of e4m3 codes to bfloat16 weights (fp8.h), four at a time in
// registers.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace espalier {

// bf16(q * s), twice: a code's exponent and mantissa at their places in a
// bfloat16 are q * 2^-120, subnormal ones too, and `factor` is s * 2^120.
__device__ __forceinline__ uint32_t ScaleFp8Pair(uint32_t pair,
                                                 __nv_bfloat162 factor) {
  const __nv_bfloat162 product =
      __hmul2(reinterpret_cast<const __nv_bfloat162&>(pair), factor);
  return reinterpret_cast<const uint32_t&>(product);
}

// Widen bytes 0 and 2 of a word, and bytes 1 and 3.
__device__ __forceinline__ uint32_t EvenFp8Pair(uint32_t word,
                                                __nv_bfloat162 factor) {
  return ScaleFp8Pair((word << 8 & 0x80008000u) | (word << 4 & 0x07F007F0u),
                      factor);
}
__device__ __forceinline__ uint32_t OddFp8Pair(uint32_t word,
                                               __nv_bfloat162 factor) {
  return ScaleFp8Pair((word & 0x80008000u) | (word >> 4 & 0x07F007F0u), factor);
}

// Returns the `factor` of a scale. Exact, because scales are less than 2^8.
__device__ __forceinline__ __nv_bfloat162 Fp8Factor(__nv_bfloat16 scale) {
  return __bfloat162bfloat162(
      __float2bfloat16_rn(__bfloat162float(scale) * 0x1p120f));
}

}  // namespace espalier
