// The inclusive sum over a warp, from CUB: its shuffles set the predicate of
// the addition, which saves the comparison of lanes in every step.
#pragma once

#include <cub/warp/warp_scan.cuh>

namespace espalier {

// Returns the sum of a warp's integers up to and including this lane's.
template <typename T>
__device__ __forceinline__ T WarpInclusiveSum(T x) {
  using Scan = cub::WarpScan<T>;
  typename Scan::TempStorage storage;  // empty: lanes shuffle
  T sum;
  Scan(storage).InclusiveSum(x, sum);
  return sum;
}

}  // namespace espalier
