// The inclusive sum over a warp, by CUB: its shuffles set the predicate of the
// addition, so a step takes an instruction less than a comparison of lanes.
#pragma once

#include <cub/warp/warp_scan.cuh>

namespace espalier {

// The sum of a warp's integers up to and with this lane's.
template <typename T>
__device__ __forceinline__ T WarpInclusiveSum(T x) {
  using Scan = cub::WarpScan<T>;
  typename Scan::TempStorage storage;  // empty: lanes shuffle
  T sum;
  Scan(storage).InclusiveSum(x, sum);
  return sum;
}

}  // namespace espalier
