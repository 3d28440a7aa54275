// The blocks that sample one token together (cuda_sample.cu): a cluster, whose
// blocks access each other's shared memory. In code compiled for less than
// compute capability 9.0 it is always one block (CompiledCapability).
#pragma once

#include "kernels/sample/cuda_sample_row.cuh"

namespace espalier::cuda_sample {

constexpr int kMaxCluster = 16;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

template <typename Policy>
__device__ int BlockRank() {
  if constexpr (!Policy::kClusters) return 0;
  return static_cast<int>(__clusterRelativeBlockRank());
}
template <typename Policy>
__device__ int NumBlocks() {
  if constexpr (!Policy::kClusters) return 1;
  return static_cast<int>(__clusterSizeInBlocks());
}
// Returns the counterpart of `own` in the shared memory of block `rank`.
// REQUIRES: all blocks have begun; no block ends before a SyncCluster() after
// the access.
template <typename T>
__device__ T& MapSharedRank(T& own, int rank) {
  return *static_cast<T*>(__cluster_map_shared_rank(&own, rank));
}
// Called by all threads of all blocks. Writes before ArriveCluster() are
// visible to all after WaitCluster(). Threads that have exited are not waited
// for.
__device__ inline void ArriveCluster() { __cluster_barrier_arrive(); }
__device__ inline void WaitCluster() { __cluster_barrier_wait(); }

#else

template <typename Policy>
__device__ int BlockRank() {
  return 0;
}
template <typename Policy>
__device__ int NumBlocks() {
  return 1;
}
template <typename T>
__device__ T& MapSharedRank(T& own, int) {
  return own;
}
__device__ inline void ArriveCluster() {}
__device__ inline void WaitCluster() { __syncthreads(); }

#endif

__device__ inline void SyncCluster() {
  ArriveCluster();
  WaitCluster();
}

}  // namespace espalier::cuda_sample
