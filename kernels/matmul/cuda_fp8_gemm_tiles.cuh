// Device code of the e4m3 product (cuda_fp8_gemm.h), up to its sums: the ring
// of tiles in shared memory, its producer and its consumers.
//
// Device code of CudaFp8Gemm (cuda_fp8_gemm.h), for SM90 only.
//
// A block has 64, 128 or 256 outputs and up to 128 rows. One warp copies tiles
// of weights and of x to shared memory, through a ring (TMA). Two consumer
// warpgroups load weights from there, widen them in registers while the tensor
// cores multiply the previous ones (wgmma), and keep the sums in registers. The
// first weights are requested before the previous kernel has ended.
//
//   w  [outputs, inputs]   e4m3 codes in the order of fp8_order.h; the m of the
//                          instruction: 64 a time
//   x  [rows, inputs]      bf16; its n: 8 to 128; past num_rows they are zero
//
// Sharing x among the blocks of a cluster (TMA multicast) was measured on an
// H100 and dropped: no product got faster.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "base/cuda_launch.cuh"
#include "kernels/cuda_ptx.cuh"
#include "kernels/matmul/cuda_fp8_convert.cuh"
#include "kernels/matmul/cuda_matmul.h"
#include "kernels/matmul/cuda_tile_instructions.cuh"
#include "kernels/matmul/fp8_order.h"

namespace espalier {
namespace fp8_gemm {

struct GemmPolicy {
  static constexpr int kMaxRows = 128;
  // Inputs of a step: two runs of weights, and two swizzle spans of x.
  static constexpr int kInputs = 128;
  static constexpr int kSwizzled = 64;
  static constexpr int kSwizzledBytes = 2 * kSwizzled;
  // The warpgroups that multiply are the consumers.
  static constexpr int kWarpgroupThreads = 128;
  static constexpr int kWarpgroups = 2;
  static constexpr int kTileOutputs = 64;
  static constexpr int kConsumerThreads = kWarpgroups * kWarpgroupThreads;
  static constexpr int kMaxSharedBytes = 225 * 1024;
  static constexpr int kMaxSlots = 8;
};

// The compile-time shape of a kernel instance.
template <int kRowsValue, int kTilesValue>
struct Shape {
  static constexpr int kRows = kRowsValue;
  static constexpr int kTiles = kTilesValue;  // per block
  // Both warpgroups compute the same outputs. Each multiplies every second
  // step, and their sums are added at the end (sliced-K).
  static constexpr bool kIsSlicedK = kTiles == 1;
  static constexpr int kWarpgroupTiles =
      kIsSlicedK ? 1 : kTiles / GemmPolicy::kWarpgroups;
  static constexpr int kOutputs = kTiles * GemmPolicy::kTileOutputs;
  // The consumers, and the producer's warp. If the consumers need more
  // registers (setmaxnreg), the producer has a warpgroup, because only a
  // warpgroup can release registers.
  static constexpr bool kReallocatesRegisters = kWarpgroupTiles * kRows > 128;
  static constexpr int kThreads =
      GemmPolicy::kConsumerThreads + (kReallocatesRegisters ? 128 : 32);
  // A slot of the ring: the weights of a step, then x in two halves.
  static constexpr int kWeightBytes = kOutputs * GemmPolicy::kInputs;
  static constexpr int kHalfBytes = kRows * GemmPolicy::kSwizzledBytes;
  static constexpr int kSlotBytes = kWeightBytes + 2 * kHalfBytes;
  static constexpr int kSlots = std::min(
      GemmPolicy::kMaxSlots, (GemmPolicy::kMaxSharedBytes - 1024) / kSlotBytes);
  // Dynamic shared memory begins at a multiple of 16 bytes, slots at one of
  // 1024.
  static constexpr int kSharedBytes = kSlots * kSlotBytes + 1024 - 16;
  // A consumer waits for its next step before it releases the current one, so
  // the next step must not need the current slot. With sliced-K a consumer's
  // next step is two steps on, which with two slots needs the current one.
  static_assert(kSlots >= (kIsSlicedK ? 3 : 2));
  static_assert(kWeightBytes % 1024 == 0);
};

struct GemmWork {
  int num_rows = 0;
  int num_outputs = 0;
  int num_steps = 0;  // steps of kInputs in a part
  const __nv_bfloat16* scales = nullptr;
  void* out = nullptr;
  CudaEpilogue epilogue = CudaEpilogue::kStore;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// grid: x the blocks of outputs, y the parts of inputs, z the tiles of rows.
template <typename Shape>
__device__ __forceinline__ int FirstOutput() {
  return blockIdx.x * Shape::kOutputs;
}
template <typename Shape>
__device__ __forceinline__ int FirstRow() {
  return blockIdx.z * Shape::kRows;
}

// ---- The ring ---------------------------------------------------------------

template <typename Shape>
struct Ring {
  char* slots;      // [kSlots][kSlotBytes]
  uint64_t* full;   // [kSlots]  the producer arrives, and all bytes of the step
  uint64_t* empty;  // [kSlots]  each warp that reads the slot arrives

  __device__ static int SlotOf(int step) { return step % Shape::kSlots; }
  __device__ static uint32_t PhaseOf(int step) {
    return step / Shape::kSlots & 1;
  }
  __device__ char* weights(int step) const {
    return slots + SlotOf(step) * Shape::kSlotBytes;
  }
  __device__ char* inputs(int step, int half) const {
    return weights(step) + Shape::kWeightBytes + half * Shape::kHalfBytes;
  }
  __device__ void AwaitFull(int step) const {
    WaitParity(&full[SlotOf(step)], PhaseOf(step));
  }
  __device__ void AwaitEmpty(int step) const {
    WaitParity(&empty[SlotOf(step)], PhaseOf(step));
  }
};

// The producer is one thread. It calls LoadFirstWeights before
// GridDependencyWait, and LoadRest after it, because the previous kernel writes
// x.
template <typename Shape>
class Producer {
 public:
  __device__ Producer(const CUtensorMap& w, const CUtensorMap& x,
                      const Ring<Shape>& ring)
      : w_(w), x_(x), ring_(ring) {}

  __device__ void LoadFirstWeights(int num_steps) const {
    for (int step = 0; step < min(Shape::kSlots, num_steps); ++step) {
      LoadWeights(step, num_steps);
    }
  }
  __device__ void LoadRest(int num_steps) const {
    const int num_first = min(Shape::kSlots, num_steps);
    for (int step = 0; step < num_first; ++step) LoadInputs(step, num_steps);
    for (int step = num_first; step < num_steps; ++step) {
      ring_.AwaitEmpty(step - Shape::kSlots);
      LoadWeights(step, num_steps);
      LoadInputs(step, num_steps);
    }
  }

 private:
  __device__ uint64_t* Full(int step) const {
    return &ring_.full[Ring<Shape>::SlotOf(step)];
  }
  // Arrives for the step, and expects the bytes of its weights and of x.
  __device__ void LoadWeights(int step, int num_steps) const {
    ArriveAndExpectTx(Full(step), Shape::kSlotBytes);
    // A row of w_ is a block of eight outputs. It has as many elements, of 8
    // bytes each, as there are inputs.
    TmaLoad2d(w_, (blockIdx.y * num_steps + step) * GemmPolicy::kInputs,
              FirstOutput<Shape>() / kFp8BlockOutputs, ring_.weights(step),
              Full(step));
  }
  __device__ void LoadInputs(int step, int num_steps) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int input = (blockIdx.y * num_steps + step) * GemmPolicy::kInputs +
                        half * GemmPolicy::kSwizzled;
      TmaLoad2d(x_, input, FirstRow<Shape>(), ring_.inputs(step, half),
                Full(step));
    }
  }

  const CUtensorMap& w_;
  const CUtensorMap& x_;
  const Ring<Shape>& ring_;
};

// ---- Multiplying ------------------------------------------------------------

// A thread's codes of a run (64 inputs) of a tile (64 outputs). Of the sixteen
// outputs of its warp, `low` is of output lane / 4, `high` of the eighth after.
struct TileCodes {
  uint4 low;
  uint4 high;

  // `tile` points to the tile's blocks of eight outputs, 1024 bytes each.
  __device__ __forceinline__ void Load(const char* tile, int run) {
    const int warp = threadIdx.x / 32 % 4;
    const char* const from =
        tile + warp * 2 * 1024 + run * kFp8RunBytes + threadIdx.x % 32 * 16;
    low = *reinterpret_cast<const uint4*>(from);
    high = *reinterpret_cast<const uint4*>(from + 1024);
  }
  // Keeps computations on these codes after this line. Otherwise the compiler
  // would move them ahead of the wgmma that they should overlap.
  __device__ __forceinline__ void FenceOperands() {
    asm volatile(""
                 : "+r"(low.x), "+r"(low.y), "+r"(low.z), "+r"(low.w),
                   "+r"(high.x), "+r"(high.y), "+r"(high.z), "+r"(high.w));
  }
};

// The run widened to bfloat16: the operands of four wgmma steps.
struct Fragments {
  uint32_t values[4][4];

  __device__ __forceinline__ void Widen(const TileCodes& codes,
                                        const __nv_bfloat162 (&factors)[2]) {
    const uint32_t low[4] = {codes.low.x, codes.low.y, codes.low.z,
                             codes.low.w};
    const uint32_t high[4] = {codes.high.x, codes.high.y, codes.high.z,
                              codes.high.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      values[k][0] = EvenFp8Pair(low[k], factors[0]);
      values[k][1] = EvenFp8Pair(high[k], factors[1]);
      values[k][2] = OddFp8Pair(low[k], factors[0]);
      values[k][3] = OddFp8Pair(high[k], factors[1]);
    }
  }
};

// Multiplies a warpgroup's share of the block. While a run of a tile is
// multiplied, the next run is widened, and the codes of the one after it are
// loaded from shared memory.
template <typename Shape>
class Consumer {
 public:
  __device__ Consumer(
      const Ring<Shape>& ring,
      const __nv_bfloat162 (&factors)[Shape::kWarpgroupTiles][2])
      : ring_(ring),
        factors_(factors),
        group_(threadIdx.x / GemmPolicy::kWarpgroupThreads),
        first_tile_(Shape::kIsSlicedK ? 0 : group_ * Shape::kWarpgroupTiles) {}

  __device__ __forceinline__ void MultiplyAll(
      int num_steps, Sums<Shape::kRows> (&sums)[Shape::kWarpgroupTiles]) {
    constexpr int kStride = Shape::kIsSlicedK ? GemmPolicy::kWarpgroups : 1;
    int step = Shape::kIsSlicedK ? group_ : 0;
    if (step >= num_steps) return;
    ring_.AwaitFull(step);
    LoadCodes(step, 0);
    Widen(0);
    int before = -1;
    for (; step < num_steps; step += kStride) {
#pragma unroll
      for (int i = 0; i < kTileRuns; ++i) {
        if (i + 1 < kTileRuns) {
          LoadCodes(step, i + 1);
        } else if (step + kStride < num_steps) {
          ring_.AwaitFull(step + kStride);
          LoadCodes(step + kStride, 0);
        }
        Multiply(step, i, sums);
        WgmmaWaitGroup<1>();
        if (i == 0 && before >= 0) Release(before);
        Widen((i + 1) % kTileRuns);
      }
      before = step;
    }
    WgmmaWaitGroup();
    // The last slots are not released, because no copy waits for them.
  }

 private:
  // Runs of the warpgroup's tiles in a step. Even, as fragments_ alternate.
  static constexpr int kTileRuns =
      GemmPolicy::kInputs / kFp8RunInputs * Shape::kWarpgroupTiles;

  __device__ __forceinline__ void LoadCodes(int step, int i) {
    const int tile = first_tile_ + i % Shape::kWarpgroupTiles;
    codes_.Load(ring_.weights(step) +
                    tile * GemmPolicy::kTileOutputs * GemmPolicy::kInputs,
                i / Shape::kWarpgroupTiles);
  }
  // Widens the codes loaded last, the i-th of a step.
  __device__ __forceinline__ void Widen(int i) {
    codes_.FenceOperands();
    fragments_[i % 2].Widen(codes_, factors_[i % Shape::kWarpgroupTiles]);
  }
  __device__ __forceinline__ void Multiply(
      int step, int i, Sums<Shape::kRows> (&sums)[Shape::kWarpgroupTiles]) {
    const uint64_t x =
        TileDescriptor(ring_.inputs(step, i / Shape::kWarpgroupTiles));
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      constexpr int kStride = kWgmmaK * 2 / 16;  // in units of 16 bytes
      WgmmaRS(fragments_[i % 2].values[k], x + k * kStride,
              sums[i % Shape::kWarpgroupTiles]);
    }
    WgmmaCommitGroup();
  }
  // Each warp releases the slot once.
  __device__ __forceinline__ void Release(int step) {
    if (threadIdx.x % 32 == 0) {
      Arrive(&ring_.empty[Ring<Shape>::SlotOf(step)]);
    }
  }

  const Ring<Shape>& ring_;
  const __nv_bfloat162 (&factors_)[Shape::kWarpgroupTiles][2];
  const int group_;
  const int first_tile_;
  TileCodes codes_;
  Fragments fragments_[2];
};

#endif

}  // namespace fp8_gemm
}  // namespace espalier
