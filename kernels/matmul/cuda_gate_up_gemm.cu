// A block has 128 or 256 outputs, gate and up projections in alternating blocks
// of eight, and all rows. One thread copies tiles of weights and of x to shared
// memory, through a ring (TMA). Two consumer warpgroups multiply them (wgmma),
// each with its half of the weights, and keep the sums in registers. The first
// weights are requested before the previous kernel has ended.
//
//   w  [outputs, inputs]   the m of the instruction: 64 a time
//   x  [rows, inputs]      its n: 32, 64, 128 or 160; past num_rows they are
//                          zero
//
// Reading 235 MB of weights in these tiles takes 57 us, reading them in one
// piece 53.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/cuda_ptx.cuh"
#include "kernels/matmul/cuda_gate_up_gemm.h"
#include "kernels/matmul/cuda_silu_mul.cuh"
#include "kernels/matmul/cuda_tensor_map.h"
#include "kernels/matmul/cuda_tile_instructions.cuh"

namespace espalier {
namespace {

struct TilePolicy {
  static constexpr int kMaxRows = 160;
  // Inputs of a tile: two swizzle spans, each one TMA copy of a row. Half as
  // many take 10 % longer, twice as many are as fast.
  static constexpr int kSwizzled = 64;
  static constexpr int kSwizzledBytes = 2 * kSwizzled;
  static constexpr int kInputs = 2 * kSwizzled;
  // The warpgroups that multiply are the consumers.
  static constexpr int kWarpgroupThreads = 128;
  static constexpr int kWarpgroups = 2;
  static constexpr int kTileOutputs = 64;
  //   num_tiles  of a warpgroup, 1 or 2. Blocks with fewer outputs read x more
  //              often, and L2 is too slow for that with 128 rows.
  static constexpr int Outputs(int num_tiles) {
    return kWarpgroups * num_tiles * kTileOutputs;
  }
  static constexpr int kConsumerThreads = kWarpgroups * kWarpgroupThreads;
  // Tiles in shared memory: for each kInputs the weights of both warpgroups,
  // and x.
  static constexpr int kUnits = kWarpgroups + 1;
  // Two for each unit of a step. A slot always has the same readers, which
  // therefore see each of its phases. More slots were not faster.
  static constexpr int kSlots = 2 * kUnits;
};

// A tile of kTileRows rows, of a warpgroup's weights or of x.
template <int kTileRows>
struct Tile {
  static constexpr int kHalfBytes = kTileRows * TilePolicy::kSwizzledBytes;
  alignas(1024) char halves[2][kHalfBytes];  // halves of the inputs
};

// True if a consumer's sums need more registers than an even division among the
// threads gives. Then a whole warpgroup loads, with one active thread, as
// consumers can only take over registers of a whole warpgroup (setmaxnreg).
template <int kRows, int kTiles>
constexpr bool kReallocatesRegisters = (kRows * kTiles) > 256;
template <int kRows, int kTiles>
constexpr int kGatedThreads = TilePolicy::kConsumerThreads +
                              (kReallocatesRegisters<kRows, kTiles> ? 128 : 32);

// The tiles of one step of kInputs.
template <int kRows, int kTiles>
struct StepTiles {
  Tile<kTiles * TilePolicy::kTileOutputs> w[TilePolicy::kWarpgroups];
  Tile<kRows> x;
};

// Bytes of two steps. Dynamic shared memory is aligned to 16 bytes, the tiles
// to 1024.
template <int kRows, int kTiles>
constexpr size_t kSharedBytes = TilePolicy::kSlots / TilePolicy::kUnits *
                                    sizeof(StepTiles<kRows, kTiles>) +
                                1024 - 16;

struct TileProduct {
  int num_rows = 0;
  int num_outputs = 0;  // gates and ups
  int num_steps = 0;    // steps of kInputs
  void* out = nullptr;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// ---- The ring ---------------------------------------------------------------

// Unit kUnits * step + g is warpgroup g's weights of a step. The last unit of a
// step is x. Consecutive units have consecutive slots.
template <int kRows, int kTiles>
struct Ring {
  StepTiles<kRows, kTiles>* steps;  // [kSlots / kUnits]
  uint64_t* full;                   // [kSlots]  one arrival, and the bytes
  uint64_t* empty;                  // [kSlots]  per reading warpgroup

  __device__ static bool IsX(int unit) {
    return unit % TilePolicy::kUnits == TilePolicy::kWarpgroups;
  }
  __device__ static int SlotOf(int unit) { return unit % TilePolicy::kSlots; }
  // Returns the barrier phase of a unit in its slot.
  __device__ static uint32_t PhaseOf(int unit) {
    return unit / TilePolicy::kSlots & 1;
  }
  __device__ void AwaitFull(int unit) const {
    WaitParity(&full[SlotOf(unit)], PhaseOf(unit));
  }
  // Returns the given half of the inputs in a unit's slot.
  __device__ char* Half(int unit, int half) const {
    const int slot = SlotOf(unit);
    StepTiles<kRows, kTiles>& step = steps[slot / TilePolicy::kUnits];
    return IsX(slot) ? step.x.halves[half]
                     : step.w[slot % TilePolicy::kUnits].halves[half];
  }
};

// The producer is one thread.
template <int kRows, int kTiles>
class Producer {
 public:
  __device__ Producer(const CUtensorMap& w, const CUtensorMap& x,
                      const Ring<kRows, kTiles>& ring)
      : w_(w), x_(x), ring_(ring) {}

  __device__ void LoadAll(int num_steps) const {
    const int num_units = num_steps * TilePolicy::kUnits;
    const int num_first = min(TilePolicy::kSlots, num_units);
    for (int unit = 0; unit < num_first; ++unit) {
      if (!ring_.IsX(unit)) Load(unit);
    }
    GridDependencyWait();  // for x
    for (int unit = 0; unit < num_first; ++unit) {
      if (ring_.IsX(unit)) Load(unit);
    }
    for (int unit = num_first; unit < num_units; ++unit) {
      const int before = unit - TilePolicy::kSlots;
      WaitParity(&ring_.empty[ring_.SlotOf(before)], ring_.PhaseOf(before));
      Load(unit);
    }
  }

 private:
  __device__ void Load(int unit) const {
    const int group = unit % TilePolicy::kUnits;
    const bool is_x = ring_.IsX(unit);
    const CUtensorMap& from = is_x ? x_ : w_;
    constexpr int kGroupOutputs = kTiles * TilePolicy::kTileOutputs;
    const int row =
        is_x ? 0
             : (blockIdx.x * TilePolicy::kWarpgroups + group) * kGroupOutputs;
    const int input = unit / TilePolicy::kUnits * TilePolicy::kInputs;
    uint64_t* const full = &ring_.full[ring_.SlotOf(unit)];
    ArriveAndExpectTx(
        full, 2 * TilePolicy::kSwizzledBytes * (is_x ? kRows : kGroupOutputs));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      TmaLoad2d(from, input + half * TilePolicy::kSwizzled, row,
                ring_.Half(unit, half), full);
    }
  }

  const CUtensorMap& w_;
  const CUtensorMap& x_;
  const Ring<kRows, kTiles>& ring_;
};

// ---- Multiplying ------------------------------------------------------------

// A warpgroup with its outputs and all inputs.
template <typename T, int kRows, int kTiles>
__device__ void MultiplyAll(int num_steps, const Ring<kRows, kTiles>& ring,
                            Sums<kRows> (&sums)[kTiles]) {
  const int group = threadIdx.x / TilePolicy::kWarpgroupThreads;
#pragma unroll
  for (Sums<kRows>& tile : sums) {
#pragma unroll
    for (float& value : tile.values) value = 0;
  }
  for (int step = 0; step < num_steps; ++step) {
    const int w_unit = step * TilePolicy::kUnits + group;
    const int x_unit = step * TilePolicy::kUnits + TilePolicy::kWarpgroups;
    ring.AwaitFull(w_unit);
    ring.AwaitFull(x_unit);
    WgmmaFence();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint64_t w = TileDescriptor(ring.Half(w_unit, half));
      const uint64_t x = TileDescriptor(ring.Half(x_unit, half));
#pragma unroll
      for (int k = 0; k < TilePolicy::kSwizzled / kWgmmaK; ++k) {
        // In units of 16 bytes.
        constexpr int kStride = kWgmmaK * 2 / 16;
        constexpr int kTileStride =
            TilePolicy::kTileOutputs * TilePolicy::kSwizzledBytes / 16;
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          WgmmaSS<T>(w + t * kTileStride + k * kStride, x + k * kStride,
                     sums[t]);
        }
      }
    }
    WgmmaCommitGroup();
    // The other warpgroup multiplies meanwhile.
    WgmmaWaitGroup();
    if (threadIdx.x % TilePolicy::kWarpgroupThreads == 0) {
      Arrive(&ring.empty[ring.SlotOf(w_unit)]);
      Arrive(&ring.empty[ring.SlotOf(x_unit)]);
    }
  }
}

// ---- What becomes of the sums -----------------------------------------------

__device__ __forceinline__ uint32_t Pair(float low, float high, __half) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}
__device__ __forceinline__ uint32_t Pair(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

// Returns the shared-memory offset of eight outputs of a row of kEights. A row
// spans all banks once or twice, so that offsets are XOR-swizzled by row to
// avoid bank conflicts.
template <int kEights>
__device__ __forceinline__ int StagedPlace(int row, int eight) {
  return (row * kEights + (eight ^ row % 8)) * 16;
}

// Waits at the named barrier of the consumers.
__device__ __forceinline__ void SyncConsumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(TilePolicy::kConsumerThreads)
               : "memory");
}

// Computes silu(gate) * up: a thread has both, eight outputs apart. The tiles
// have been read, so the results are staged in their place and stored in whole
// cache lines.
template <typename T, int kRows, int kTiles>
__device__ void StoreGated(const TileProduct& product,
                           const Sums<kRows> (&sums)[kTiles], char* staged) {
  constexpr int kBlockOutputs = TilePolicy::Outputs(kTiles) / 2;
  constexpr int kEights = kBlockOutputs / 8;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32 % 4;
  const int group = threadIdx.x / TilePolicy::kWarpgroupThreads;
  SyncConsumers();
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int eight = (group * kTiles + t) * 4 + warp;
    const float(&d)[kRows / 2] = sums[t].values;
#pragma unroll
    for (int j = 0; j < kRows / 8; j += 4) {
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (j + i);
        pairs[i] =
            Pair(SiluMul(d[at], d[at + 2]), SiluMul(d[at + 1], d[at + 3]), T());
      }
      StMatrixX4Trans(pairs,
                      staged + StagedPlace<kEights>(8 * j + lane, eight));
    }
  }
  SyncConsumers();
  const int64_t width = product.num_outputs / 2;
  T* const out = static_cast<T*>(product.out) + blockIdx.x * kBlockOutputs;
  for (int i = threadIdx.x; i < product.num_rows * kEights;
       i += TilePolicy::kConsumerThreads) {
    const int row = i / kEights, eight = i % kEights;
    *reinterpret_cast<uint4*>(out + row * width + eight * 8) =
        *reinterpret_cast<const uint4*>(staged +
                                        StagedPlace<kEights>(row, eight));
  }
}

template <typename T, int kRows, int kTiles>
__device__ void MultiplyAndStore(const CUtensorMap& w, const CUtensorMap& x,
                                 const TileProduct& product) {
  extern __shared__ char memory[];
  __shared__ uint64_t full[TilePolicy::kSlots], empty[TilePolicy::kSlots];
  char* const aligned = memory + (1024 - SharedAddress(memory) % 1024) % 1024;
  const Ring<kRows, kTiles> ring = {
      reinterpret_cast<StepTiles<kRows, kTiles>*>(aligned), full, empty};
  LaunchDependents();
  if (threadIdx.x == 0) {
    for (int i = 0; i < TilePolicy::kSlots; ++i) {
      InitBarrier(&full[i], 1);
      InitBarrier(&empty[i], ring.IsX(i) ? TilePolicy::kWarpgroups : 1);
    }
    FenceBarrierInit();
  }
  __syncthreads();
  if (threadIdx.x >= TilePolicy::kConsumerThreads) {
    if constexpr (kReallocatesRegisters<kRows, kTiles>) {
      WarpgroupRegDealloc<kGatedThreads<kRows, kTiles>>();
    }
    if (threadIdx.x == TilePolicy::kConsumerThreads) {
      Producer(w, x, ring).LoadAll(product.num_steps);
    }
    return;
  }
  if constexpr (kReallocatesRegisters<kRows, kTiles>) {
    WarpgroupRegAlloc<kGatedThreads<kRows, kTiles>>();
  }
  GridDependencyWait();
  Sums<kRows> sums[kTiles];
  MultiplyAll<T>(product.num_steps, ring, sums);
  StoreGated<T>(product, sums, aligned);
}

#endif

template <typename T, int kRows, int kTiles>
__global__ void __launch_bounds__((kGatedThreads<kRows, kTiles>), 1)
    MultiplyGated(const __grid_constant__ CUtensorMap w,
                  const __grid_constant__ CUtensorMap x,
                  const __grid_constant__ TileProduct product) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  MultiplyAndStore<T, kRows, kTiles>(w, x, product);
#endif
}

// ---- Launching --------------------------------------------------------------

// Describes a row-major [num_rows, num_cols] of 16-bit numbers, copied in
// halves of tiles of `tile_rows`.
TiledMatrix MatrixOf(DType dtype, const void* data, int num_rows, int num_cols,
                     int tile_rows) {
  return {.type = dtype == DType::kBFloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                            : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
          .data = data,
          .num_rows = num_rows,
          .num_cols = num_cols,
          .tile_rows = tile_rows,
          .tile_cols = TilePolicy::kSwizzled};
}

// Rows of the tiles. Finer steps would gain nothing: up to 128 rows a product
// is bound by reading the weights.
constexpr int kRowsOfTiles[] = {32, 64, 128, 160};

// Returns the rows of the smallest tile that holds `num_rows`.
int TileRows(int num_rows) {
  return *std::ranges::lower_bound(kRowsOfTiles, num_rows);
}

// A kernel as a value.
template <typename T, int kRows, int kTiles>
struct Kernel {
  static constexpr auto kFunction = MultiplyGated<T, kRows, kTiles>;
  static constexpr int kThreads = espalier::kGatedThreads<kRows, kTiles>;
  static constexpr size_t kSharedBytes = espalier::kSharedBytes<kRows, kTiles>;
};

// Calls function(Kernel) with the matching instance.
template <typename Function>
absl::Status WithKernel(DType dtype, int tile_rows, int num_tiles,
                        Function function) {
  const auto with_rows = [&]<typename T, int kTiles>() {
    switch (tile_rows) {
      case 32:
        return function(Kernel<T, 32, kTiles>());
      case 64:
        return function(Kernel<T, 64, kTiles>());
      case 128:
        return function(Kernel<T, 128, kTiles>());
      default:
        return function(Kernel<T, 160, kTiles>());
    }
  };
  const auto with_type = [&]<typename T>() {
    return num_tiles == 1 ? with_rows.template operator()<T, 1>()
                          : with_rows.template operator()<T, 2>();
  };
  return dtype == DType::kBFloat16
             ? with_type.template operator()<__nv_bfloat16>()
             : with_type.template operator()<__half>();
}

// The skinny kernel has fewer rows. It does not support more for such matrices,
// whose outputs fill the device.
constexpr int kMinRows = 17;

// Blocks on fewer than two thirds of the multiprocessors leave much of the
// memory bandwidth unused.
bool FillsDevice(int num_blocks, int num_sms) {
  return num_blocks * 3 >= num_sms * 2;
}

// Returns the tiles of a warpgroup: two if their blocks still fill the device.
int NumTiles(const CudaMatrix& w, int num_sms) {
  const bool two_fill =
      w.num_rows % TilePolicy::Outputs(2) == 0 &&
      FillsDevice(w.num_rows / TilePolicy::Outputs(2), num_sms);
  return two_fill ? 2 : 1;
}

}  // namespace

absl::StatusOr<CudaGateUpGemm> CudaGateUpGemm::Create(
    const CudaDevice& device) {
  CudaGateUpGemm made;
  if (!HasTileInstructions(MultiplyGated<__half, 128, 2>, device)) return made;
  const auto set_memory = [](auto kernel) {
    return SetMaxDynamicSharedMemory(kernel.kFunction, kernel.kSharedBytes);
  };
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const int tile_rows : kRowsOfTiles) {
      for (const int num_tiles : {1, 2}) {
        RETURN_IF_ERROR(WithKernel(dtype, tile_rows, num_tiles, set_memory));
      }
    }
  }
  made.num_sms_ = device.num_sms;
  ASSIGN_OR_RETURN(made.encode_, GetTensorMapEncoder());
  return made;
}

bool CudaGateUpGemm::CanImplement(int num_rows, const CudaMatrix& w) const {
  return encode_ != nullptr && w.dtype != DType::kFloat32 &&
         num_rows <= TilePolicy::kMaxRows &&
         w.num_rows % TilePolicy::Outputs(1) == 0 &&
         w.num_cols % TilePolicy::kInputs == 0;
}

bool CudaGateUpGemm::IsProfitable(int num_rows, const CudaMatrix& w) const {
  const int num_tiles = NumTiles(w, num_sms_);
  const int num_blocks = w.num_rows / TilePolicy::Outputs(num_tiles);
  // With one tile a warpgroup, a second wave of a few blocks takes as long as a
  // full one.
  const bool fits_one_wave = num_tiles == 2 || num_blocks <= num_sms_;
  return num_rows >= kMinRows && FillsDevice(num_blocks, num_sms_) &&
         fits_one_wave && CanImplement(num_rows, w);
}

absl::Status CudaGateUpGemm::Run(const void* x, int num_rows,
                                 const CudaMatrix& w, void* out,
                                 cudaStream_t stream) const {
  const int tile_rows = TileRows(num_rows);
  const int num_tiles = NumTiles(w, num_sms_);
  ASSIGN_OR_RETURN(
      const CUtensorMap w_map,
      MakeTensorMap(encode_, MatrixOf(w.dtype, w.data, w.num_rows, w.num_cols,
                                      num_tiles * TilePolicy::kTileOutputs)));
  ASSIGN_OR_RETURN(const CUtensorMap x_map,
                   MakeTensorMap(encode_, MatrixOf(w.dtype, x, num_rows,
                                                   w.num_cols, tile_rows)));
  const TileProduct product = {.num_rows = num_rows,
                               .num_outputs = w.num_rows,
                               .num_steps = w.num_cols / TilePolicy::kInputs,
                               .out = out};
  const auto num_blocks = static_cast<unsigned>(product.num_outputs /
                                                TilePolicy::Outputs(num_tiles));
  return WithKernel(w.dtype, tile_rows, num_tiles, [&](auto kernel) {
    const LaunchConfig shape = {.grid = num_blocks,
                                .block = kernel.kThreads,
                                .shared_bytes = kernel.kSharedBytes};
    return Launch(kernel.kFunction, shape, stream, w_map, x_map, product);
  });
}

}  // namespace espalier
