// Loads and stores of two or four neighbouring numbers of any element type, as
// float32. Addresses are aligned to the size of the access.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace espalier {

__device__ __forceinline__ float4 LoadFour(const float* x) {
  return *reinterpret_cast<const float4*>(x);
}
__device__ __forceinline__ float4 LoadFour(const __nv_bfloat16* x) {
  const uint2 bits = *reinterpret_cast<const uint2*>(x);
  return {__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xFFFF0000u),
          __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xFFFF0000u)};
}
__device__ __forceinline__ float4 LoadFour(const __half* x) {
  const uint2 bits = *reinterpret_cast<const uint2*>(x);
  const float2 a = __half22float2(reinterpret_cast<const __half2&>(bits.x));
  const float2 b = __half22float2(reinterpret_cast<const __half2&>(bits.y));
  return {a.x, a.y, b.x, b.y};
}

__device__ __forceinline__ void StoreTwo(float2 value, float* x) {
  *reinterpret_cast<float2*>(x) = value;
}
__device__ __forceinline__ void StoreTwo(float2 value, __nv_bfloat16* x) {
  *reinterpret_cast<__nv_bfloat162*>(x) =
      __floats2bfloat162_rn(value.x, value.y);
}
__device__ __forceinline__ void StoreTwo(float2 value, __half* x) {
  *reinterpret_cast<__half2*>(x) = __floats2half2_rn(value.x, value.y);
}

__device__ __forceinline__ void StoreFour(float4 value, float* x) {
  *reinterpret_cast<float4*>(x) = value;
}
__device__ __forceinline__ void StoreFour(float4 value, __nv_bfloat16* x) {
  __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(value.x, value.y),
                             __floats2bfloat162_rn(value.z, value.w)};
  *reinterpret_cast<uint2*>(x) = reinterpret_cast<const uint2&>(pairs);
}
__device__ __forceinline__ void StoreFour(float4 value, __half* x) {
  __half2 pairs[2] = {__floats2half2_rn(value.x, value.y),
                      __floats2half2_rn(value.z, value.w)};
  *reinterpret_cast<uint2*>(x) = reinterpret_cast<const uint2&>(pairs);
}

}  // namespace espalier
