// The kernel of cuda_skinny_matmul.cuh, with the same division, sums and places
// of results, but another ring. A step is 64 inputs, of which a thread loads
// sixteen weights of an output as one vector (fp8_order.h). The matching inputs
// are in vectors that other threads of the warp load, so they are read with
// ldmatrix, and the warp synchronises before and after.
#include <algorithm>

#include "base/ceil_div.h"
#include "kernels/cuda_kernel_support.cuh"
#include "kernels/matmul/cuda_fp8_convert.cuh"
#include "kernels/matmul/cuda_fp8_skinny.h"
#include "kernels/matmul/cuda_skinny_launch.cuh"
#include "kernels/matmul/cuda_skinny_matmul.cuh"
#include "kernels/matmul/fp8_order.h"

namespace espalier {
namespace {

using skinny_matmul::ArriveReductionBuffer;
using skinny_matmul::CopyInputs;
using skinny_matmul::CopyWeights;
using skinny_matmul::EvictFirstPolicy;
using skinny_matmul::LoadAddends;
using skinny_matmul::PairPlace;
using skinny_matmul::PlaceOf;
using skinny_matmul::Shared;
using skinny_matmul::StoredPair;
using skinny_matmul::StorePass;
using skinny_matmul::WarpWork;

struct Fp8SkinnyArgs : SkinnyMatMulArgs {
  const __nv_bfloat16* scales = nullptr;  // [num_outputs]
};

// skinny_matmul::Tiling, except that a step has two vectors of each eight rows
// of x.
template <int kWarpsValue, int kRowTilesValue, int kColTilesValue,
          int kStagesValue>
struct Fp8Tiling : skinny_matmul::Tiling<kWarpsValue, kRowTilesValue,
                                         kColTilesValue, kStagesValue> {
  static constexpr int kVectors = 2 * kRowTilesValue + 2 * kColTilesValue;
  static constexpr int kWarpVectors = 32 * kVectors * kStagesValue;
};

// ldmatrix.x4: lane l passes the address of row l % 8 of matrix l / 8, and gets
// numbers 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each.
__device__ __forceinline__ void LdMatrixX4(const uint4* from,
                                           uint32_t* matrices) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]),
        "=r"(matrices[3])
      : "r"(SharedAddress(from))
      : "memory");
}

// The factors of a thread's outputs, rows g and g + 8 of each tile of a pass.
template <typename Tiling>
struct PassFactors {
  __nv_bfloat162 values[Tiling::kRowTiles][2];

  __device__ __forceinline__ void Load(const Fp8SkinnyArgs& args, int tile) {
#pragma unroll
    for (int i = 0; i < 2 * Tiling::kRowTiles; ++i) {
      const int output = min(16 * tile + 8 * i + int(threadIdx.x % 32 / 4),
                             args.num_outputs - 1);
      values[i / 2][i % 2] = Fp8Factor(args.scales[output]);
    }
  }
};

// skinny_matmul::Ring.
template <typename Tiling>
class Fp8Ring {
 public:
  __device__ __forceinline__ Fp8Ring(const Fp8SkinnyArgs& args,
                                     const WarpWork& work, uint4* vectors)
      : args_(args),
        work_(work),
        vectors_(vectors),
        lane_(threadIdx.x % 32),
        last_block_((args.num_outputs - 1) / kFp8BlockOutputs),
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
    const int run = work_.first_step + weights_step_ * Tiling::kWarps;
    const char* const from =
        static_cast<const char*>(args_.w) + run * kFp8RunBytes + lane_ * 16;
#pragma unroll
    for (int j = 0; j < 2 * Tiling::kRowTiles; ++j) {
      if (tile_ + j / 2 >= work_.end_tile) break;
      // Blocks past the last are never stored; the last is loaded in their
      // place.
      const int block = min(2 * tile_ + j, last_block_);
      CopyWeights(Vectors(stage) + 32 * j + lane_,
                  from + int64_t{block} * kFp8BlockOutputs * args_.num_inputs,
                  true, policy_);
    }
    if (++weights_step_ == work_.num_steps) {
      weights_step_ = 0;
      tile_ += Tiling::kRowTiles;
    }
  }
  __device__ __forceinline__ void LoadInputs(int stage) {
    if (inputs_left_ == 0) return;
    --inputs_left_;
    const int run = work_.first_step + inputs_step_ * Tiling::kWarps;
    const int chunk = lane_ % 8;
#pragma unroll
    for (int j = 0; j < 2 * Tiling::kColTiles; ++j) {
      const int row = 4 * j + lane_ / 8;
      CopyInputs(Inputs(stage, row, chunk),
                 static_cast<const __nv_bfloat16*>(args_.x) +
                     row * args_.num_inputs + run * kFp8RunInputs + chunk * 8,
                 row < args_.num_rows);
    }
    if (++inputs_step_ == work_.num_steps) inputs_step_ = 0;
  }

  // Multiplies a step. Sums of tiles past the last are not read.
  __device__ __forceinline__ void Multiply(
      int stage, const PassFactors<Tiling>& factors,
      float (&sums)[Tiling::kRowTiles][Tiling::kColTiles][4]) {
    uint32_t x[Tiling::kColTiles][8];  // a matrix of eight inputs each
#pragma unroll
    for (int j = 0; j < Tiling::kColTiles; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        LdMatrixX4(Inputs(stage, 8 * j + lane_ % 8, 4 * half + lane_ / 8),
                   &x[j][4 * half]);
      }
    }
#pragma unroll
    for (int i = 0; i < Tiling::kRowTiles; ++i) {
      const uint4 a = Vectors(stage)[32 * (2 * i) + lane_];
      const uint4 b = Vectors(stage)[32 * (2 * i + 1) + lane_];
      const uint32_t low[4] = {a.x, a.y, a.z, a.w};
      const uint32_t high[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint32_t w[4] = {EvenFp8Pair(low[k], factors.values[i][0]),
                               EvenFp8Pair(high[k], factors.values[i][1]),
                               OddFp8Pair(low[k], factors.values[i][0]),
                               OddFp8Pair(high[k], factors.values[i][1])};
#pragma unroll
        for (int j = 0; j < Tiling::kColTiles; ++j) {
          MmaM16N8K16<__nv_bfloat16>(sums[i][j], w, x[j][2 * k],
                                     x[j][2 * k + 1]);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ uint4* Vectors(int stage) const {
    return vectors_ + 32 * stage * Tiling::kVectors;
  }
  // Returns eight inputs of a row of x: rows are as long as all banks, so that
  // places are XOR-swizzled by row.
  __device__ __forceinline__ uint4* Inputs(int stage, int row,
                                           int chunk) const {
    return Vectors(stage) + 64 * Tiling::kRowTiles + row * 8 +
           (chunk ^ row % 8);
  }

  const Fp8SkinnyArgs& args_;
  const WarpWork& work_;
  uint4* const vectors_;
  const int lane_;
  const int last_block_;
  const uint64_t policy_ = EvictFirstPolicy();
  int tile_;  // next pass to load
  int weights_step_ = 0;
  int inputs_step_ = 0;
  int weights_left_;
  int inputs_left_;
};

// skinny_matmul::WorkOfWarp, in runs of 64 inputs.
template <typename Tiling>
__device__ __forceinline__ WarpWork WorkOfWarp(const Fp8SkinnyArgs& args) {
  const int num_tiles = (args.num_outputs + 15) / 16;
  const int num_steps = args.num_inputs / kFp8RunInputs;
  const int begin = num_steps * blockIdx.x / gridDim.x + threadIdx.x / 32;
  const int end = num_steps * (blockIdx.x + 1) / gridDim.x;
  return {
      .first_tile =
          static_cast<int>(int64_t{num_tiles} * blockIdx.y / gridDim.y),
      .end_tile =
          static_cast<int>(int64_t{num_tiles} * (blockIdx.y + 1) / gridDim.y),
      .first_step = begin,
      .num_steps = max(0, end - begin + Tiling::kWarps - 1) / Tiling::kWarps};
}

// Computes the sums of a pass; `stage` is the slot of the next step.
template <typename Tiling>
__device__ __forceinline__ void MultiplyPass(
    Fp8Ring<Tiling>& ring, const PassFactors<Tiling>& factors, int num_steps,
    int& stage, float (&sums)[Tiling::kRowTiles][Tiling::kColTiles][4]) {
  for (int i = 0; i < num_steps; ++i) {
    CpAsyncWaitGroup<Tiling::kStages - 1>();
    __syncwarp();  // all lanes' inputs are loaded
    ring.Multiply(stage, factors, sums);
    __syncwarp();  // all lanes have read them
    ring.LoadWeights(stage);
    ring.LoadInputs(stage);
    CpAsyncCommitGroup();
    stage = stage + 1 == Tiling::kStages ? 0 : stage + 1;
  }
}

// grid: x is the part of the inputs (one cluster), y the part of the outputs.
template <typename Tiling>
__global__ void __launch_bounds__(Tiling::kThreads)
    Fp8SkinnyKernel(const Fp8SkinnyArgs args) {
  extern __shared__ uint4 memory[];
  auto& shared = *reinterpret_cast<Shared<Tiling>*>(memory);
  LaunchDependents();
  ArriveReductionBuffer();
  const WarpWork work = WorkOfWarp<Tiling>(args);
  Fp8Ring<Tiling> ring(args, work, shared.rings[threadIdx.x / 32]);
  for (int i = 0; i < Tiling::kStages; ++i) {
    ring.LoadWeights(i);
    CpAsyncCommitGroup();
  }
  PassFactors<Tiling> factors;
  factors.Load(args, work.first_tile);
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
    PassFactors<Tiling> next_factors;
    next_factors.Load(args, tile + Tiling::kRowTiles);
    float sums[Tiling::kRowTiles][Tiling::kColTiles][4] = {};
    MultiplyPass(ring, factors, work.num_steps, stage, sums);
    StorePass<__nv_bfloat16>(args, shared, sums, places, addends);
    factors = next_factors;
  }
}

// ---- Launching --------------------------------------------------------------

// The deepest ring with which two blocks share a multiprocessor.
template <int kColTiles, int kRowTiles>
struct TilingOf;
template <>
struct TilingOf<1, 1> : Fp8Tiling<8, 1, 1, 6> {};
template <>
struct TilingOf<1, 2> : Fp8Tiling<8, 2, 1, 4> {};
template <>
struct TilingOf<1, 3> : Fp8Tiling<8, 3, 1, 3> {};
template <>
struct TilingOf<1, 4> : Fp8Tiling<8, 4, 1, 2> {};
template <>
struct TilingOf<2, 1> : Fp8Tiling<8, 1, 2, 4> {};
template <>
struct TilingOf<2, 2> : Fp8Tiling<8, 2, 2, 2> {};
template <>
struct TilingOf<2, 3> : Fp8Tiling<4, 3, 2, 4> {};
template <>
struct TilingOf<2, 4> : Fp8Tiling<4, 4, 2, 3> {};

constexpr int kMaxRowTiles = 4;  // that there are tilings for

struct Fp8Family {
  using Args = Fp8SkinnyArgs;
  static constexpr int kMaxColTiles = 2;
  static constexpr int MaxRowTiles(int) { return kMaxRowTiles; }
  template <int kColTiles, int kRowTiles>
  using TilingOf = espalier::TilingOf<kColTiles, kRowTiles>;
  template <typename Tiling>
  static auto Kernel() {
    return Fp8SkinnyKernel<Tiling>;
  }
};
// Two blocks share a multiprocessor.
static_assert(skinny_matmul::MaxSharedBytes<Fp8Family, 1>() <= 113 * 1024 &&
              skinny_matmul::MaxSharedBytes<Fp8Family, 2>() <= 113 * 1024);

// From this many inputs, two blocks of one tile are faster than one of two.
constexpr int kManyInputs = 8192;

// Every multiprocessor gets nearly the same number of bytes, in one block or
// two. Split-K, which the bfloat16 kernel uses, was slower in every product of
// 8b except where the outputs alone would leave half of the device idle.
SkinnyDivision Divide(const Fp8SkinnyArgs& args, bool clusters,
                      const CudaDevice& device) {
  const int tiles = CeilDiv(args.num_outputs, 16);
  const int sms = device.num_sms;
  SkinnyDivision division = {.splits = 1, .groups = 2 * sms, .row_tiles = 1};
  if (clusters && args.num_inputs >= 3072 && 2 * tiles <= sms) {
    division.splits = 2;
  } else if (tiles <= 3 * sms &&
             (tiles > 2 * sms || args.num_inputs < kManyInputs)) {
    division.groups = sms;
  }
  division.groups = std::min(division.groups, tiles);
  division.row_tiles = std::min(CeilDiv(tiles, division.groups), kMaxRowTiles);
  return division;
}

Fp8SkinnyArgs ArgsOf(const void* x, int num_rows, const CudaMatrix& w,
                     CudaEpilogue epilogue, void* out) {
  Fp8SkinnyArgs args;
  args.x = x;
  args.w = w.data;
  args.out = out;
  args.num_rows = num_rows;
  args.num_outputs = w.num_rows;
  args.num_inputs = w.num_cols;
  args.epilogue = epilogue;
  args.scales = reinterpret_cast<const __nv_bfloat16*>(w.fp8_scales);
  return args;
}

}  // namespace

bool HasFp8Skinny(int num_rows, const CudaDevice& device) {
  const int col_tiles = skinny_matmul::ColTiles(num_rows);
  return col_tiles <= Fp8Family::kMaxColTiles &&
         skinny_matmul::HasSharedBytes<Fp8Family>(col_tiles, device);
}

absl::Status PrepareFp8Skinny(const CudaDevice& device) {
  return skinny_matmul::Prepare<Fp8Family>(device);
}

absl::Status Fp8SkinnyDivided(const void* x, int num_rows, const CudaMatrix& w,
                              CudaEpilogue epilogue, void* out,
                              const SkinnyDivision& division,
                              cudaStream_t stream) {
  return skinny_matmul::Enqueue<Fp8Family>(
      ArgsOf(x, num_rows, w, epilogue, out), division, stream);
}

absl::Status Fp8SkinnyMatMul(const void* x, int num_rows, const CudaMatrix& w,
                             CudaEpilogue epilogue, void* out,
                             const CudaDevice& device, cudaStream_t stream) {
  const bool clusters = HasClusters(Fp8SkinnyKernel<TilingOf<1, 1>>, device);
  const Fp8SkinnyArgs args = ArgsOf(x, num_rows, w, epilogue, out);
  return skinny_matmul::Enqueue<Fp8Family>(args, Divide(args, clusters, device),
                                           stream);
}

}  // namespace espalier
