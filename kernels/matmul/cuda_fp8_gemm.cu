#include <cuda_bf16.h>

#include <cstdint>
#include <limits>

#include "base/ceil_div.h"
#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/matmul/cuda_fp8_gemm.h"
#include "kernels/matmul/cuda_fp8_gemm_store.cuh"
#include "kernels/matmul/cuda_fp8_gemm_tiles.cuh"
#include "kernels/matmul/cuda_tensor_map.h"
#include "kernels/matmul/fp8_order.h"

namespace espalier {
namespace {

using fp8_gemm::GemmPolicy;
using fp8_gemm::GemmWork;
using fp8_gemm::Shape;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

using fp8_gemm::Consumer;
using fp8_gemm::FirstOutput;
using fp8_gemm::Producer;
using fp8_gemm::Ring;

template <typename Shape>
__device__ void MultiplyAndStore(const Ring<Shape>& ring,
                                 const GemmWork& work) {
  const int lane = threadIdx.x % 32;
  const int group = threadIdx.x / GemmPolicy::kWarpgroupThreads;
  const int first_tile = Shape::kIsSlicedK ? 0 : group * Shape::kWarpgroupTiles;
  const int first_output =
      FirstOutput<Shape>() + first_tile * GemmPolicy::kTileOutputs;
  __nv_bfloat162 factors[Shape::kWarpgroupTiles][2];
#pragma unroll
  for (int i = 0; i < 2 * Shape::kWarpgroupTiles; ++i) {
    const int output = first_output + i / 2 * GemmPolicy::kTileOutputs +
                       threadIdx.x / 32 % 4 * 16 + i % 2 * 8 + lane / 4;
    factors[i / 2][i % 2] = Fp8Factor(work.scales[output]);
  }
  Sums<Shape::kRows> sums[Shape::kWarpgroupTiles] = {};
  GridDependencyWait();
  Consumer<Shape>(ring, factors).MultiplyAll(work.num_steps, sums);
  if constexpr (Shape::kIsSlicedK) {
    fp8_gemm::ReduceWarpgroups<Shape>(sums[0],
                                      reinterpret_cast<float*>(ring.slots));
  }
  switch (work.epilogue) {
    case CudaEpilogue::kStore:
      return fp8_gemm::StoreHalves<Shape, false>(work, first_tile, ring.slots,
                                                 sums);
    case CudaEpilogue::kSiluMul:
      return fp8_gemm::StoreHalves<Shape, true>(work, first_tile, ring.slots,
                                                sums);
    default:
#pragma unroll
      for (int t = 0; t < Shape::kWarpgroupTiles; ++t) {
        fp8_gemm::StoreFloats<Shape>(
            work, first_output + t * GemmPolicy::kTileOutputs, sums[t]);
      }
  }
}

template <typename Shape>
__device__ void LoadAndMultiply(const CUtensorMap& w, const CUtensorMap& x,
                                const GemmWork& work) {
  extern __shared__ char memory[];
  __shared__ uint64_t full[Shape::kSlots], empty[Shape::kSlots];
  char* const aligned = memory + (1024 - SharedAddress(memory) % 1024) % 1024;
  const Ring<Shape> ring = {aligned, full, empty};
  LaunchDependents();
  if (threadIdx.x == 0) {
    const int num_warps = (Shape::kIsSlicedK ? 1 : GemmPolicy::kWarpgroups) *
                          GemmPolicy::kWarpgroupThreads / 32;
    for (int i = 0; i < Shape::kSlots; ++i) {
      InitBarrier(&full[i], 1);
      InitBarrier(&empty[i], num_warps);
    }
    FenceBarrierInit();
  }
  __syncthreads();
  if (threadIdx.x < GemmPolicy::kConsumerThreads) {
    if constexpr (Shape::kReallocatesRegisters)
      WarpgroupRegAlloc<Shape::kThreads>();
    return MultiplyAndStore(ring, work);
  }
  if constexpr (Shape::kReallocatesRegisters)
    WarpgroupRegDealloc<Shape::kThreads>();
  if (threadIdx.x > GemmPolicy::kConsumerThreads) return;
  const Producer<Shape> producer(w, x, ring);
  producer.LoadFirstWeights(work.num_steps);
  GridDependencyWait();  // for x
  producer.LoadRest(work.num_steps);
}

#endif

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    Fp8GemmKernel(const __grid_constant__ CUtensorMap w,
                  const __grid_constant__ CUtensorMap x,
                  const __grid_constant__ GemmWork work) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  LoadAndMultiply<Shape>(w, x, work);
#endif
}

// ---- Launching --------------------------------------------------------------

// Returns the rows of the smallest tile that holds `num_rows`.
int TileRows(int num_rows) {
  for (const int rows : {8, 16, 32, 64}) {
    if (num_rows <= rows) return rows;
  }
  return GemmPolicy::kMaxRows;
}

// Calls function(Shape) with the matching instance.
template <typename Function>
absl::Status WithShape(int tile_rows, int tiles, Function function) {
  const auto with_rows = [&]<int kTiles>() {
    switch (tile_rows) {
      case 8:
        return function(Shape<8, kTiles>());
      case 16:
        return function(Shape<16, kTiles>());
      case 32:
        return function(Shape<32, kTiles>());
      case 64:
        return function(Shape<64, kTiles>());
      default:
        return function(Shape<128, kTiles>());
    }
  };
  switch (tiles) {
    case 1:
      return with_rows.template operator()<1>();
    case 2:
      return with_rows.template operator()<2>();
    default:
      return with_rows.template operator()<4>();
  }
}

// Cost model of a division, in units of one step of a tile of 64 outputs:
// reading a row of x for a step, beginning and ending a block, adding a part
// later. Measured on an H100 with 32 to 256 rows, it chooses the fastest
// divisions of 8b's products, or ones within 3% of them.
struct CostPolicy {
  static constexpr double kInputs = 0.3 / GemmPolicy::kMaxRows;
  static constexpr double kBlock = 8;
  static constexpr double kPart = 2;
};

}  // namespace

absl::StatusOr<CudaFp8Gemm> CudaFp8Gemm::Create(const CudaDevice& device) {
  CudaFp8Gemm made;
  if (!HasTileInstructions(Fp8GemmKernel<Shape<128, 4>>, device)) return made;
  const auto set_memory = []<typename Shape>(Shape) {
    return SetMaxDynamicSharedMemory(Fp8GemmKernel<Shape>, Shape::kSharedBytes);
  };
  for (const int tile_rows : {8, 16, 32, 64, 128}) {
    for (const int tiles : {1, 2, 4}) {
      RETURN_IF_ERROR(WithShape(tile_rows, tiles, set_memory));
    }
  }
  made.num_sms_ = device.num_sms;
  ASSIGN_OR_RETURN(made.encode_, GetTensorMapEncoder());
  return made;
}

bool CudaFp8Gemm::CanImplement(const CudaMatrix& w) const {
  return encode_ != nullptr && w.num_rows % GemmPolicy::kTileOutputs == 0 &&
         w.num_cols % GemmPolicy::kInputs == 0;
}

Fp8Division CudaFp8Gemm::Divide(int num_rows, const CudaMatrix& w,
                                bool may_split) const {
  const int tile_rows = TileRows(num_rows);
  const int row_tiles = CeilDiv(num_rows, tile_rows);
  Fp8Division best;
  double least = std::numeric_limits<double>::infinity();
  for (const int parts : {1, 2, 4}) {
    if (parts > 1 && !may_split) break;
    if (w.num_cols % (parts * GemmPolicy::kInputs) != 0) continue;
    for (const int tiles : {4, 2, 1}) {
      const int outputs = tiles * GemmPolicy::kTileOutputs;
      if (w.num_rows % outputs != 0) continue;
      const int blocks = w.num_rows / outputs * parts * row_tiles;
      const int steps = w.num_cols / GemmPolicy::kInputs / parts;
      const double cost =
          CeilDiv(blocks, num_sms_) *
              (steps * (tiles + CostPolicy::kInputs * tile_rows) +
               CostPolicy::kBlock) +
          parts * CostPolicy::kPart;
      if (cost >= least) continue;
      least = cost;
      best = {.tiles = tiles, .parts = parts};
    }
  }
  return best;
}

absl::Status CudaFp8Gemm::Run(const void* x, int num_rows, const CudaMatrix& w,
                              CudaEpilogue epilogue,
                              const Fp8Division& division, void* out,
                              cudaStream_t stream) const {
  const int tile_rows = TileRows(num_rows);
  const int outputs = division.tiles * GemmPolicy::kTileOutputs;
  ASSIGN_OR_RETURN(
      const CUtensorMap w_map,
      MakeTensorMap(encode_, {.type = CU_TENSOR_MAP_DATA_TYPE_UINT64,
                              .element_bytes = 8,
                              .data = w.data,
                              .num_rows = w.num_rows / kFp8BlockOutputs,
                              .num_cols = w.num_cols,
                              .tile_rows = outputs / kFp8BlockOutputs,
                              .tile_cols = GemmPolicy::kInputs,
                              .swizzle = CU_TENSOR_MAP_SWIZZLE_NONE}));
  ASSIGN_OR_RETURN(
      const CUtensorMap x_map,
      MakeTensorMap(encode_, {.type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                              .element_bytes = 2,
                              .data = x,
                              .num_rows = num_rows,
                              .num_cols = w.num_cols,
                              .tile_rows = tile_rows,
                              .tile_cols = GemmPolicy::kSwizzled,
                              .swizzle = CU_TENSOR_MAP_SWIZZLE_128B}));
  const GemmWork work = {
      .num_rows = num_rows,
      .num_outputs = w.num_rows,
      .num_steps = w.num_cols / GemmPolicy::kInputs / division.parts,
      .scales = reinterpret_cast<const __nv_bfloat16*>(w.fp8_scales),
      .out = out,
      .epilogue = epilogue};
  return WithShape(tile_rows, division.tiles, [&]<typename Shape>(Shape) {
    const LaunchConfig config = {
        .grid = dim3(w.num_rows / outputs, division.parts,
                     CeilDiv(num_rows, tile_rows)),
        .block = dim3(Shape::kThreads),
        .shared_bytes = Shape::kSharedBytes};
    return Launch(Fp8GemmKernel<Shape>, config, stream, w_map, x_map, work);
  });
}

}  // namespace espalier
