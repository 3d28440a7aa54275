// A block has 64 rows of x and 64 outputs, a warp 32 and 16 of them. Tiles of
// 64 inputs pass through a ring (cp.async). The ring is filled with weights
// before the previous kernel of the stream has ended.
//
//   x  [rows, inputs]      the m of the instruction: 16 a time
//   w  [outputs, inputs]   its n: 8 a time
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "base/ceil_div.h"
#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/cuda_ptx.cuh"
#include "kernels/matmul/cuda_silu_mul.cuh"
#include "kernels/matmul/cuda_small_gemm.h"

namespace espalier {
namespace {

constexpr int kTile = 64;             // rows, or outputs, of a block
constexpr int kInputs = 64;           // per stage: rows of 128 bytes
constexpr int kPieces = kInputs / 8;  // 16-byte vectors of a row
constexpr int kWarpRows = 32;
constexpr int kWarpOutputs = 16;
constexpr int kThreads = 32 * (kTile / kWarpRows) * (kTile / kWarpOutputs);
// Stages of 16 KiB, 96 KiB a block: two blocks share a Hopper multiprocessor.
constexpr int kStages = 6;
constexpr int kTileBytes = kTile * kInputs * 2;
constexpr int kSharedBytes = kStages * 2 * kTileBytes;

struct SmallGemmArgs {
  const void* x = nullptr;
  const void* w = nullptr;
  void* out = nullptr;
  int num_rows = 0;
  int num_outputs = 0;
  int num_inputs = 0;  // between rows
  int part_inputs = 0;
  CudaEpilogue epilogue = CudaEpilogue::kStore;
};

// Rows are as long as all banks, so the order of their pieces differs between
// eight rows (swizzle).
__device__ __forceinline__ int PlaceOf(int row, int piece) {
  return (row * kPieces + (piece ^ row % 8)) * 16;
}

// Copies 16 bytes, or writes as many zeros.
__device__ __forceinline__ void CpAsyncOrZero(uint32_t to, const void* from,
                                              bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(from), "r"(is_there ? 16 : 0)
               : "memory");
}

// A thread's share of copying the tiles of one matrix: one 16-byte piece of
// each of its rows. Pieces past the end of the matrix become zeros.
template <typename T>
class TileCopies {
 public:
  // Copies rows [first_row, num_rows) of `data`, inputs [begin, end) of
  // `stride`.
  __device__ TileCopies(const void* data, int first_row, int num_rows,
                        int stride, int begin, int end)
      : from_(static_cast<const T*>(data) +
              int64_t{first_row + Row(0)} * stride + begin + Piece() * 8),
        stride_(int64_t{kThreads / kPieces} * stride),
        num_left_(end - begin - Piece() * 8),
        place_(PlaceOf(Row(0), Piece())) {
    static_assert(kThreads % (8 * kPieces) == 0);  // places repeat
#pragma unroll
    for (int i = 0; i < kRows; ++i) is_row_[i] = first_row + Row(i) < num_rows;
  }

  // Copies the next tile to shared memory.
  __device__ __forceinline__ void CopyNext(uint32_t to) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const bool is_there = num_left_ > 0 && is_row_[i];
      CpAsyncOrZero(to + place_ + i * (kThreads / kPieces) * kInputs * 2,
                    from_ + i * stride_, is_there);
    }
    from_ += kInputs;
    num_left_ -= kInputs;
  }

 private:
  static constexpr int kRows = kTile * kPieces / kThreads;
  static __device__ int Piece() { return threadIdx.x % kPieces; }
  static __device__ int Row(int i) {
    return (threadIdx.x + i * kThreads) / kPieces;
  }

  const T* from_;  // the thread's first row
  const int64_t stride_;
  int num_left_;
  const int place_;
  bool is_row_[kRows];
};

// A warp's sums: values[i][j] are of rows 16 i + lane / 4 (and 8 more: the last
// two) and outputs 8 j + 2 (lane % 4) and the next.
struct WarpSums {
  static constexpr int kRowTiles = kWarpRows / 16;
  static constexpr int kOutputTiles = kWarpOutputs / 8;
  static_assert(kOutputTiles == 2);  // one LdMatrixX4
  float values[kRowTiles][kOutputTiles][4] = {};

  // Adds the products of one stage for the warp's rows of both tiles. All loads
  // are issued before the first multiplication.
  template <typename T>
  __device__ __forceinline__ void Add(uint32_t x, uint32_t w, int first_row,
                                      int first_output) {
    constexpr int kSteps = kPieces / 2;
    const int lane = threadIdx.x % 32;
    const int row = first_row + lane % 16;
    const int output = first_output + lane / 16 * 8 + lane % 8;
    uint32_t rows[kSteps][kRowTiles][4];
    uint32_t outputs[kSteps][4];
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      LdMatrixX4(outputs[k], w + PlaceOf(output, 2 * k + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        LdMatrixX4(rows[k][i], x + PlaceOf(row + 16 * i, 2 * k + lane / 16));
      }
    }
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        MmaM16N8K16<T>(values[i][0], rows[k][i], outputs[k][0], outputs[k][1]);
        MmaM16N8K16<T>(values[i][1], rows[k][i], outputs[k][2], outputs[k][3]);
      }
    }
  }

  // Calls function(row, output, two sums) for all pairs, from (row, output) on.
  template <typename Function>
  __device__ __forceinline__ void ForEachPair(int row, int output,
                                              Function function) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int j = 0; j < kOutputTiles; ++j) {
          function(row + 16 * i + 8 * half, output + 8 * j,
                   values[i][j] + 2 * half);
        }
      }
    }
  }
};

// Stores two neighbours, or, in rows of an odd width, each one that exists.
template <bool kPairs, typename T>
__device__ __forceinline__ void StoreTwo(T* to, bool both, T first, T second) {
  if constexpr (kPairs) {
    struct alignas(2 * sizeof(T)) Two {
      T values[2];
    };
    *reinterpret_cast<Two*>(to) = {first, second};
  } else {
    to[0] = first;
    if (both) to[1] = second;
  }
}

// Stores a warp's sums, whose first is that of (row, output).
template <typename T, bool kPairs>
__device__ void StoreSums(const SmallGemmArgs& args, int row, int output,
                          WarpSums& sums) {
  const int width = args.num_outputs;
  const auto is_there = [&](int r, int o) {
    return r < args.num_rows && o < width;
  };
  if (args.epilogue == CudaEpilogue::kSiluMul) {
    T* const out = static_cast<T*>(args.out);
    float gates[2];
    // Eight gates, then their eight ups: a thread has both.
    sums.ForEachPair(row, output, [&](int r, int o, const float* pair) {
      if (o / 8 % 2 == 0) {
        gates[0] = pair[0];
        gates[1] = pair[1];
      } else if (is_there(r, o)) {
        StoreTwo<true>(out + int64_t{r} * (width / 2) + o / 16 * 8 + o % 8,
                       true, T(SiluMul(gates[0], pair[0])),
                       T(SiluMul(gates[1], pair[1])));
      }
    });
    return;
  }
  if (args.epilogue == CudaEpilogue::kStore) {
    T* const out = static_cast<T*>(args.out);
    sums.ForEachPair(row, output, [&](int r, int o, const float* pair) {
      if (!is_there(r, o)) return;
      StoreTwo<kPairs>(out + int64_t{r} * width + o, o + 1 < width, T(pair[0]),
                       T(pair[1]));
    });
    return;
  }
  float* const out = static_cast<float*>(args.out) +
                     blockIdx.z * (int64_t{args.num_rows} * width);
  if (args.epilogue == CudaEpilogue::kAddFloat) {
    // Loads all before the first is stored; otherwise each load would wait for
    // the last store.
    sums.ForEachPair(row, output, [&](int r, int o, float* pair) {
      const float* const before = out + int64_t{r} * width + o;
      float2 two = {0, 0};
      if constexpr (kPairs) {
        if (is_there(r, o)) two = *reinterpret_cast<const float2*>(before);
      } else {
        if (is_there(r, o)) two.x = before[0];
        if (is_there(r, o + 1)) two.y = before[1];
      }
      pair[0] += two.x;
      pair[1] += two.y;
    });
  }
  sums.ForEachPair(row, output, [&](int r, int o, const float* pair) {
    if (!is_there(r, o)) return;
    StoreTwo<kPairs>(out + int64_t{r} * width + o, o + 1 < width, pair[0],
                     pair[1]);
  });
}

// Grid: tiles of rows, of outputs, parts. Blocks side by side share weights.
template <typename T>
__global__ void __launch_bounds__(kThreads, 2)
    MultiplySmall(const __grid_constant__ SmallGemmArgs args) {
  extern __shared__ uint4 memory[];
  LaunchDependents();
  const int first_row = blockIdx.x * kTile;
  const int first_output = blockIdx.y * kTile;
  const int begin = blockIdx.z * args.part_inputs;
  const int end = begin + args.part_inputs;
  TileCopies<T> x(args.x, first_row, args.num_rows, args.num_inputs, begin,
                  end);
  TileCopies<T> w(args.w, first_output, args.num_outputs, args.num_inputs,
                  begin, end);
  const uint32_t ring = SharedAddress(memory);
  const auto x_tile = [&](int slot) { return ring + slot * 2 * kTileBytes; };
  const auto w_tile = [&](int slot) { return x_tile(slot) + kTileBytes; };
  const auto next_slot = [](int slot) {
    return slot + 1 == kStages ? 0 : slot + 1;
  };
  constexpr int kAhead = kStages - 1;
#pragma unroll
  for (int slot = 0; slot < kAhead; ++slot) w.CopyNext(w_tile(slot));
  GridDependencyWait();  // for x
#pragma unroll
  for (int slot = 0; slot < kAhead; ++slot) {
    x.CopyNext(x_tile(slot));
    CpAsyncCommitGroup();
  }

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  constexpr int kWarpColumns = kTile / kWarpOutputs;
  const int row = warp / kWarpColumns * kWarpRows;
  const int output = warp % kWarpColumns * kWarpOutputs;
  WarpSums sums;
  int slot = 0, free_slot = kAhead;
  for (int i = 0; i < args.part_inputs; i += kInputs) {
    CpAsyncWaitGroup<kAhead - 1>();
    __syncthreads();  // the stage is copied, the previous one read
    w.CopyNext(w_tile(free_slot));
    x.CopyNext(x_tile(free_slot));
    CpAsyncCommitGroup();
    sums.Add<T>(x_tile(slot), w_tile(slot), row, output);
    slot = next_slot(slot);
    free_slot = next_slot(free_slot);
  }
  CpAsyncWaitGroup<0>();
  const int to_row = first_row + row + lane / 4;
  const int to_output = first_output + output + lane % 4 * 2;
  if (args.num_outputs % 2 == 0) {
    StoreSums<T, true>(args, to_row, to_output, sums);
  } else {
    StoreSums<T, false>(args, to_row, to_output, sums);
  }
}

// Calls function(kernel) for a 16-bit type.
template <typename Function>
absl::Status WithKernel(DType dtype, Function function) {
  return dtype == DType::kBFloat16 ? function(MultiplySmall<__nv_bfloat16>)
                                   : function(MultiplySmall<__half>);
}

absl::Status Enqueue(const SmallGemmArgs& args, DType dtype, int num_parts,
                     cudaStream_t stream) {
  const LaunchConfig shape = {
      .grid = dim3(CeilDiv(args.num_rows, kTile),
                   CeilDiv(args.num_outputs, kTile), num_parts),
      .block = kThreads,
      .shared_bytes = kSharedBytes};
  return WithKernel(
      dtype, [&](auto kernel) { return Launch(kernel, shape, stream, args); });
}

SmallGemmArgs ArgsOf(const void* x, int num_rows, const CudaMatrix& w,
                     int num_parts, CudaEpilogue epilogue, void* out) {
  return {.x = x,
          .w = w.data,
          .out = out,
          .num_rows = num_rows,
          .num_outputs = w.num_rows,
          .num_inputs = w.num_cols,
          .part_inputs = w.num_cols / num_parts,
          .epilogue = epilogue};
}

}  // namespace

bool CanRunSmallGemm(const CudaDevice& device) {
  return device.compute_capability >= 80 &&
         device.max_shared_bytes >= kSharedBytes;
}

absl::Status PrepareSmallGemm(const CudaDevice& device) {
  if (!CanRunSmallGemm(device)) return absl::OkStatus();
  const auto prepare = [](auto kernel) {
    return SetMaxDynamicSharedMemory(kernel, kSharedBytes);
  };
  RETURN_IF_ERROR(WithKernel(DType::kBFloat16, prepare));
  return WithKernel(DType::kFloat16, prepare);
}

absl::Status SmallGemm(const void* x, int num_rows, const CudaMatrix& w,
                       CudaEpilogue epilogue, void* out, cudaStream_t stream) {
  return Enqueue(ArgsOf(x, num_rows, w, 1, epilogue, out), w.dtype, 1, stream);
}

absl::Status SmallGemmParts(const void* x, int num_rows, const CudaMatrix& w,
                            int num_parts, float* out, cudaStream_t stream) {
  return Enqueue(
      ArgsOf(x, num_rows, w, num_parts, CudaEpilogue::kStoreFloat, out),
      w.dtype, num_parts, stream);
}

}  // namespace espalier
