// The kernel of cuda_skinny_matmul.h: y = x * w^T for up to 48 rows of x, bound
// by reading w.
//
// One m16n8k16 multiply-add takes sixteen rows of w as its first operand and
// eight rows of x as its second, so that few rows of x waste little. The order
// of k inside a dot product is free as long as both operands agree on it: a
// thread loads eight neighbouring k's (16 bytes) of a row and uses them as the
// 2 + 2 distant k's of two instructions. Each thread reads only the shared
// memory that it filled, so the cp.async ring needs no barrier.
//
//   cluster  a range of the outputs, in tiles of sixteen
//   block    a part of k of that range: pass after pass of kRowTiles tiles
//   warp     every kWarps-th step of 32 k's of that part
//   thread   lane = 4 * g + q: rows g and g + 8 of each tile, row g of every
//            eight of x, k's 8 q .. 8 q + 7 of a step
//
// Weights never change, so the ring is filled before GridDependencyWait(): as
// the blocks of one kernel end, blocks of the next start and load up to 20 MB
// of weights before the inputs are written.
//
// The sums of the warps are reduced in shared memory. The sums of the parts of
// k are reduced in shared memory of the cluster's block that stores them. Both
// orders are fixed, without atomics, so that the bits are the same every time.
//
// Moves w once from memory and x from L2, M / (16 * kRowTiles) bytes of it for
// each byte of w. On an H200 (pure reads: 4.6 TB/s), bf16, cold weights, one
// product after the other (benchmarks/kernels/cuda_matmul_benchmark.cu):
//
//   w                         rows 4    8    16   cuBLASLt, 8 rows
//    3.5 MB    2304 x   768   us 2.2   2.5   2.8         4.0
//    8.4 MB    2048 x  2048      3.8   4.1   4.4         5.8
//   33.6 MB    2048 x  8192     10.4  10.9  12.3        13.2
//   67.1 MB   16384 x  2048     16.9  17.4  18.3        18.6
//  117.4 MB    4096 x 14336     30.2  30.5  33.0        32.7
//  234.9 MB   28672 x  4096     56.2  56.6  59.3        61.4
// 1050.7 MB  128256 x  4096      234   237   246         243
//
// and all products of a decode step with a small kernel in the place of every
// norm and of attention, 4 / 8 / 16 rows against cuBLASLt's at 8: Llama 68m
// 42 / 45 / 50 us against 65, 1B 709 / 736 / 794 against 890, 8B 3.65 / 3.74 /
// 4.01 ms against 4.23.
//
// With more rows every block reads more of x from L2 than can be hidden: on an
// H100 (3.2 TB/s), 8B, by the same benchmark, us,
//
//   w                  rows 8    32    40    48   cuBLASLt, 32 to 48 rows
//  50.3 MB   6144 x  4096  18.4  19.7  20.1  20.7     21.8 to 22.1
//  33.6 MB   4096 x  4096  13.1  14.1  14.8  15.6     14.4 to 14.7
// 117.4 MB   4096 x 14336  43.3  45.5  46.7  49.9     46.9 to 47.6
//
// and in a step more is gained, as cuBLASLt's kernels begin to read when the
// one in front has ended (docs/performance.md).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/cuda_launch.cuh"
#include "kernels/cuda_ptx.cuh"
#include "kernels/matmul/cuda_matmul.h"

namespace espalier {

struct SkinnyMatMulArgs {
  const void* x = nullptr;  // [num_rows, num_inputs]
  const void* w = nullptr;  // [num_outputs, num_inputs]
  void* out = nullptr;
  int num_rows = 0;
  int num_outputs = 0;
  int num_inputs = 0;
  CudaEpilogue epilogue = CudaEpilogue::kStore;
};

namespace skinny_matmul {

constexpr int kStep = 32;      // k's of a warp's step: 16 bytes of each q
constexpr int kMaxSplits = 2;  // blocks of a cluster; four were slower

// The shape of a block and the depth of its ring. With `kIsSinglePass` a block
// computes all its outputs in one pass.
template <int kWarpsValue, int kRowTilesValue, int kColTilesValue,
          int kStagesValue, bool kIsSinglePassValue = false>
struct Tiling {
  static constexpr bool kIsSinglePass = kIsSinglePassValue;
  static constexpr int kWarps = kWarpsValue;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRowTiles = kRowTilesValue;  // 16 outputs, per pass
  static constexpr int kColTiles = kColTilesValue;  // eight rows of x
  static constexpr int kStages = kStagesValue;      // steps in a warp's ring
  // 16-byte vectors of a thread in a stage: of w, then of x.
  static constexpr int kVectors = 2 * kRowTiles + kColTiles;
  static constexpr int kWarpVectors = 32 * kVectors * kStages;
  static constexpr int kWarpSums = 128 * kRowTiles * kColTiles;
  // Maximum number of pairs of sums that a cluster's other blocks send here.
  static constexpr int kMaxPairs = 8 * (8 * kColTiles * kRowTiles + kMaxSplits);
  // Maximum number of pairs that a thread stores.
  static constexpr int kThreadPairs =
      (64 * kColTiles * kRowTiles + kThreads - 1) / kThreads;
};

template <typename Tiling>
struct Shared {
  // A warp's sums, [tile][row / 8][4][lane]. With a single pass they are stored
  // in its ring, which has been read by then.
  __device__ __forceinline__ float* WarpSums(int warp) {
    if constexpr (Tiling::kIsSinglePass) {
      static_assert(4 * Tiling::kWarpVectors >= Tiling::kWarpSums);
      return reinterpret_cast<float*>(rings[warp]);
    } else {
      return sums[warp];
    }
  }
  __device__ __forceinline__ const float* WarpSums(int warp) const {
    return const_cast<Shared*>(this)->WarpSums(warp);
  }

  uint4 rings[Tiling::kWarps][Tiling::kWarpVectors];
  float sums[Tiling::kIsSinglePass ? 1 : Tiling::kWarps]
            [Tiling::kIsSinglePass ? 4 : Tiling::kWarpSums];
  float2 inbox[Tiling::kMaxPairs];  // [num_splits][inbox_runs][8]
};

// Asynchronous copies of 16 bytes, zeros if not valid. A warp copies half a
// cache line at a time, its neighbour the other half: requesting the whole line
// at once gains 8 %. Weights are read once, so they leave L2 first: 1 %.
__device__ __forceinline__ uint64_t EvictFirstPolicy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void CopyWeights(uint4* to, const void* from,
                                            bool valid, uint64_t policy) {
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint.L2::128B "
      "[%0], [%1], 16, %2, %3;" ::"r"(SharedAddress(to)),
      "l"(from), "r"(valid ? 16 : 0), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void CopyInputs(uint4* to, const void* from,
                                           bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(
                   SharedAddress(to)),
               "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
// The work of a warp: tiles of outputs and steps of k, pass after pass of
// kRowTiles tiles, each over all its steps.
struct WarpWork {
  int first_tile = 0;
  int end_tile = 0;
  int first_step = 0;  // then every kWarps-th
  int num_steps = 0;   // in a pass
};

// A thread's view of its warp's ring and of the ring's sources in global
// memory.
template <typename T, typename Tiling>
class Ring {
 public:
  __device__ __forceinline__ Ring(const SkinnyMatMulArgs& args,
                                  const WarpWork& work, uint4* vectors)
      : args_(args),
        work_(work),
        vectors_(vectors + threadIdx.x % 32),
        group_(threadIdx.x % 32 / 4),
        first_k_(work.first_step * kStep + threadIdx.x % 4 * 8),
        tile_(work.first_tile) {
    const int num_tiles = work.end_tile - work.first_tile;
    const int num_passes =
        (num_tiles + Tiling::kRowTiles - 1) / Tiling::kRowTiles;
    weights_left_ = inputs_left_ = num_passes * work.num_steps;
  }

  // Load the weights, or the inputs, of the next step, if there is one.
  __device__ __forceinline__ void LoadWeights(int stage) {
    if (weights_left_ == 0) return;
    --weights_left_;
    const int k = first_k_ + weights_step_ * Tiling::kWarps * kStep;
#pragma unroll
    for (int j = 0; j < 2 * Tiling::kRowTiles; ++j) {
      if (tile_ + j / 2 >= work_.end_tile) break;
      // Rows past the last are never stored; the last is loaded in their place.
      const int row = min(16 * tile_ + 8 * j + group_, args_.num_outputs - 1);
      CopyWeights(
          Vector(stage, j),
          static_cast<const T*>(args_.w) + int64_t{row} * args_.num_inputs + k,
          k < args_.num_inputs, policy_);
    }
    if (++weights_step_ == work_.num_steps) {
      weights_step_ = 0;
      tile_ += Tiling::kRowTiles;
    }
  }
  __device__ __forceinline__ void LoadInputs(int stage) {
    if (inputs_left_ == 0) return;
    --inputs_left_;
    const int k = first_k_ + inputs_step_ * Tiling::kWarps * kStep;
#pragma unroll
    for (int j = 0; j < Tiling::kColTiles; ++j) {
      const int row = 8 * j + group_;
      CopyInputs(Vector(stage, 2 * Tiling::kRowTiles + j),
                 static_cast<const T*>(args_.x) + row * args_.num_inputs + k,
                 row < args_.num_rows && k < args_.num_inputs);
    }
    if (++inputs_step_ == work_.num_steps) inputs_step_ = 0;
  }

  // Multiplies a step. Sums of tiles past the last are not read.
  __device__ __forceinline__ void Multiply(
      int stage, float (&sums)[Tiling::kRowTiles][Tiling::kColTiles][4]) {
    uint4 x[Tiling::kColTiles];
#pragma unroll
    for (int j = 0; j < Tiling::kColTiles; ++j) {
      x[j] = *Vector(stage, 2 * Tiling::kRowTiles + j);
    }
#pragma unroll
    for (int i = 0; i < Tiling::kRowTiles; ++i) {
      const uint4 a = *Vector(stage, 2 * i);
      const uint4 b = *Vector(stage, 2 * i + 1);
#pragma unroll
      for (int j = 0; j < Tiling::kColTiles; ++j) {
        MmaM16N8K16<T>(sums[i][j], {a.x, b.x, a.y, b.y}, x[j].x, x[j].y);
        MmaM16N8K16<T>(sums[i][j], {a.z, b.z, a.w, b.w}, x[j].z, x[j].w);
      }
    }
  }

 private:
  __device__ __forceinline__ uint4* Vector(int stage, int j) {
    return vectors_ + 32 * (stage * Tiling::kVectors + j);
  }

  const SkinnyMatMulArgs& args_;
  const WarpWork& work_;
  uint4* const vectors_;
  const int group_;
  const int first_k_;
  const uint64_t policy_ = EvictFirstPolicy();
  int tile_;  // next pass to load
  int weights_step_ = 0;
  int inputs_step_ = 0;
  int weights_left_;
  int inputs_left_;
};

// A pair of outputs eight rows of w apart, as the multiply-add leaves them in
// one thread: rows g and g + 8 of a tile for one row of x. The pairs of a pass
// come in runs of eight g's, run = row * kRowTiles + tile.
template <typename Tiling>
struct PairIndex {
  int run;
  int g;

  __device__ __forceinline__ int row() const { return run / Tiling::kRowTiles; }
  __device__ __forceinline__ int tile() const {
    return run % Tiling::kRowTiles;
  }
};

// Returns the `i`th pair that this block stores: every num_splits-th run of a
// cluster's runs.
template <typename Tiling>
__device__ __forceinline__ PairIndex<Tiling> StoredPair(int i) {
  return {static_cast<int>(i / 8 * gridDim.x + blockIdx.x), i % 8};
}

// The place of a pair in `out`, and the number of its outputs to store.
struct PairPlace {
  int row;
  int output;      // the lower one
  int num_stored;  // 0, 1 (the upper one is past the last) or 2
};
template <typename Tiling>
__device__ __forceinline__ PairPlace PlaceOf(const SkinnyMatMulArgs& args,
                                             const PairIndex<Tiling>& pair,
                                             int first_tile, int end_tile) {
  const int tile = first_tile + pair.tile();
  const int output = 16 * tile + pair.g;
  const bool none = pair.row() >= args.num_rows || tile >= end_tile ||
                    output >= args.num_outputs;
  return {pair.row(), output,
          none ? 0 : (output + 8 < args.num_outputs ? 2 : 1)};
}

// Returns the addends of kAddFloat, loaded long before the sums are complete.
__device__ __forceinline__ float2 LoadAddends(const SkinnyMatMulArgs& args,
                                              const PairPlace& place) {
  if (args.epilogue != CudaEpilogue::kAddFloat) return make_float2(0, 0);
  const float* const from = static_cast<const float*>(args.out) +
                            int64_t{place.row} * args.num_outputs +
                            place.output;
  return make_float2(place.num_stored > 0 ? from[0] : 0,
                     place.num_stored > 1 ? from[8] : 0);
}

template <typename T>
__device__ __forceinline__ void StorePair(const SkinnyMatMulArgs& args,
                                          const PairPlace& place, float2 sums) {
  if (place.num_stored == 0) return;
  const int64_t row = place.row;
  if (args.epilogue == CudaEpilogue::kSiluMul) {
    // A block of sixteen gives eight: output = 16 b + g gives 8 b + g.
    const int64_t at = row * (args.num_outputs / 2) + place.output / 16 * 8 +
                       place.output % 16;
    const float silu = sums.x / (1 + __expf(-sums.x));
    static_cast<T*>(args.out)[at] = T(silu * sums.y);
    return;
  }
  const int64_t at = row * args.num_outputs + place.output;
  if (args.epilogue == CudaEpilogue::kStore) {
    T* const out = static_cast<T*>(args.out) + at;
    out[0] = T(sums.x);
    if (place.num_stored > 1) out[8] = T(sums.y);
  } else {
    float* const out = static_cast<float*>(args.out) + at;
    out[0] = sums.x;
    if (place.num_stored > 1) out[8] = sums.y;
  }
}

// Stores a warp's sums in shared memory for the block.
template <typename Tiling>
__device__ __forceinline__ void StoreWarpPartials(
    const float (&sums)[Tiling::kRowTiles][Tiling::kColTiles][4],
    float* warp_sums) {
#pragma unroll
  for (int i = 0; i < Tiling::kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < Tiling::kColTiles; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        warp_sums[((i * Tiling::kColTiles + j) * 4 + c) * 32 +
                  threadIdx.x % 32] = sums[i][j][c];
      }
    }
  }
}

// Adds the warps' sums in their order.
template <typename Tiling>
__device__ __forceinline__ float2 ReduceWarpPartials(
    const Shared<Tiling>& shared, const PairIndex<Tiling>& pair) {
  const int row = pair.row();
  const int at = (pair.tile() * Tiling::kColTiles + row / 8) * 128 +
                 row % 2 * 32 + pair.g * 4 + row % 8 / 2;
  float2 sums = make_float2(0, 0);
#pragma unroll
  for (int warp = 0; warp < Tiling::kWarps; ++warp) {
    sums.x += shared.WarpSums(warp)[at];
    sums.y += shared.WarpSums(warp)[at + 64];
  }
  return sums;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// Sends this block's sums to the blocks of the cluster that store them, and
// waits for the sums sent to this block.
template <typename Tiling>
__device__ __forceinline__ void ClusterReduceScatter(Shared<Tiling>& shared,
                                                     int num_runs,
                                                     int inbox_runs) {
  const int num_splits = gridDim.x;
  __cluster_barrier_wait();  // the others' inboxes are free
  for (int i = threadIdx.x; i < 8 * num_runs; i += Tiling::kThreads) {
    const PairIndex<Tiling> pair = {i / 8, i % 8};
    float2* const inbox = static_cast<float2*>(
        __cluster_map_shared_rank(shared.inbox, pair.run % num_splits));
    inbox[(blockIdx.x * inbox_runs + pair.run / num_splits) * 8 + pair.g] =
        ReduceWarpPartials(shared, pair);
  }
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}
#endif

// Adds the sums of the cluster's blocks in their order.
__device__ __forceinline__ float2 ClusterSums(const float2* inbox,
                                              int inbox_runs, int i) {
  float2 sums = make_float2(0, 0);
  for (int s = 0; s < gridDim.x; ++s) {
    const float2 part = inbox[s * inbox_runs * 8 + i];
    sums.x += part.x;
    sums.y += part.y;
  }
  return sums;
}

// Arrives at the cluster barrier: the next ClusterReduceScatter may write to
// this block's inbox.
__device__ __forceinline__ void ArriveReductionBuffer() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (gridDim.x > 1) __cluster_barrier_arrive();
#endif
}

// Returns a block's part of the outputs and a warp's part of k.
template <typename Tiling>
__device__ __forceinline__ WarpWork WorkOfWarp(const SkinnyMatMulArgs& args) {
  const int num_tiles = (args.num_outputs + 15) / 16;
  const int num_steps = (args.num_inputs + kStep - 1) / kStep;
  const int begin = num_steps * blockIdx.x / gridDim.x + threadIdx.x / 32;
  const int end = num_steps * (blockIdx.x + 1) / gridDim.x;
  return {
      .first_tile = static_cast<int>(num_tiles * blockIdx.y / gridDim.y),
      .end_tile = static_cast<int>(num_tiles * (blockIdx.y + 1) / gridDim.y),
      .first_step = begin,
      .num_steps = max(0, end - begin + Tiling::kWarps - 1) / Tiling::kWarps};
}

// Computes the sums of a pass; `stage` is the slot of the next step.
template <typename T, typename Tiling>
__device__ __forceinline__ void MultiplyPass(
    Ring<T, Tiling>& ring, int num_steps, int& stage,
    float (&sums)[Tiling::kRowTiles][Tiling::kColTiles][4]) {
  for (int i = 0; i < num_steps; ++i) {
    CpAsyncWaitGroup<Tiling::kStages - 1>();
    ring.Multiply(stage, sums);
    ring.LoadWeights(stage);
    ring.LoadInputs(stage);
    CpAsyncCommitGroup();
    stage = stage + 1 == Tiling::kStages ? 0 : stage + 1;
  }
}

// Reduces a pass's sums and stores them.
template <typename T, typename Tiling>
__device__ __forceinline__ void StorePass(
    const SkinnyMatMulArgs& args, Shared<Tiling>& shared,
    const float (&sums)[Tiling::kRowTiles][Tiling::kColTiles][4],
    const PairPlace (&places)[Tiling::kThreadPairs],
    const float2 (&addends)[Tiling::kThreadPairs]) {
  const int num_runs = args.num_rows * Tiling::kRowTiles;
  const int inbox_runs = (num_runs + gridDim.x - 1) / gridDim.x;
  // The sums of the previous pass have been read. With a single pass, all lanes
  // of a warp have read the ring, which its sums overwrite.
  __syncthreads();
  StoreWarpPartials<Tiling>(sums, shared.WarpSums(threadIdx.x / 32));
  __syncthreads();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (gridDim.x > 1) ClusterReduceScatter(shared, num_runs, inbox_runs);
#endif
#pragma unroll
  for (int j = 0; j < Tiling::kThreadPairs; ++j) {
    if (places[j].num_stored == 0) continue;
    const int i = threadIdx.x + j * Tiling::kThreads;
    float2 total = gridDim.x > 1
                       ? ClusterSums(shared.inbox, inbox_runs, i)
                       : ReduceWarpPartials(shared, StoredPair<Tiling>(i));
    total.x += addends[j].x;
    total.y += addends[j].y;
    StorePair<T>(args, places[j], total);
  }
}

// grid: x is the parts of k (one cluster), y the parts of the outputs.
template <typename T, typename Tiling>
__global__ void __launch_bounds__(Tiling::kThreads)
    SkinnyMatMulKernel(const SkinnyMatMulArgs args) {
  extern __shared__ uint4 memory[];
  auto& shared = *reinterpret_cast<Shared<Tiling>*>(memory);
  LaunchDependents();
  ArriveReductionBuffer();
  const WarpWork work = WorkOfWarp<Tiling>(args);
  Ring<T, Tiling> ring(args, work, shared.rings[threadIdx.x / 32]);
  for (int i = 0; i < Tiling::kStages; ++i) {
    ring.LoadWeights(i);
    CpAsyncCommitGroup();
  }
  GridDependencyWait();
  for (int i = 0; i < Tiling::kStages; ++i) {
    ring.LoadInputs(i);
    CpAsyncCommitGroup();
  }
  int stage = 0;
  for (int tile = work.first_tile; tile < work.end_tile;
       tile += Tiling::kRowTiles) {
    if (tile != work.first_tile) ArriveReductionBuffer();
    PairPlace places[Tiling::kThreadPairs];
    float2 addends[Tiling::kThreadPairs];
#pragma unroll
    for (int j = 0; j < Tiling::kThreadPairs; ++j) {
      places[j] =
          PlaceOf(args, StoredPair<Tiling>(threadIdx.x + j * Tiling::kThreads),
                  tile, work.end_tile);
      addends[j] = LoadAddends(args, places[j]);
    }
    float sums[Tiling::kRowTiles][Tiling::kColTiles][4] = {};
    MultiplyPass(ring, work.num_steps, stage, sums);
    StorePass<T>(args, shared, sums, places, addends);
  }
}

}  // namespace skinny_matmul
}  // namespace espalier
