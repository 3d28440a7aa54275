#include <algorithm>

#include "kernels/cuda_kernel_support.cuh"
#include "kernels/matmul/cuda_skinny_matmul.cuh"
#include "kernels/matmul/cuda_skinny_matmul.h"

namespace espalier {
namespace {

using stream_matmul::Shared;
using stream_matmul::SkinnyMatMulKernel;
using stream_matmul::Tiling;

// Up to 16 rows; at 32 every block would read as many bytes of x as of w, and
// cuBLASLt is 1.2 times as fast.
constexpr int kMaxRows = 16;

// Tilings, by columns of tiles (8 or 16 rows of x) and tiles that a block has
// at once: as deep a ring as lets two blocks share a multiprocessor, not three.
// With room for more, the blocks of the next kernel that begin early crowd some
// multiprocessors and not others (8b's step: 4.7 ms in place of 3.7).
template <int kColTiles, int kRowTiles>
struct TilingOf;
template <>
struct TilingOf<1, 1> : Tiling<8, 1, 1, 7> {};
template <>
struct TilingOf<1, 2> : Tiling<8, 2, 1, 5> {};
template <>
struct TilingOf<1, 3> : Tiling<8, 3, 1, 3> {};
template <>
struct TilingOf<1, 4> : Tiling<8, 4, 1, 2> {};
template <>
struct TilingOf<2, 1> : Tiling<8, 1, 2, 6> {};
template <>
struct TilingOf<2, 2> : Tiling<8, 2, 2, 3> {};
template <>
struct TilingOf<2, 3> : Tiling<4, 3, 2, 5> {};
template <>
struct TilingOf<2, 4> : Tiling<4, 4, 2, 4> {};
constexpr int kMaxRowTiles = 4;

int DivideUp(int a, int b) { return (a + b - 1) / b; }

// How a product is divided.
struct Division {
  int splits;     // of k, among the blocks of a cluster
  int groups;     // of tiles, among clusters
  int row_tiles;  // that a block has at once
};

// Every multiprocessor gets two blocks and the same number of bytes, or nearly:
// an idle one costs as much as a slow one. Chosen by trying every division in
// the steps of three models with 4, 8 and 16 rows.
// `clusters`: the kernel was compiled with them.
Division Divide(const SkinnyMatMulArgs& args, bool clusters,
                const CudaDevice& device) {
  const int tiles = DivideUp(args.num_outputs, 16);
  const int sms = device.num_sms;
  Division division = {.splits = 1, .groups = 2 * sms, .row_tiles = 1};
  if (clusters && args.num_inputs >= 3072 && tiles <= 3 * sms) {
    // Few tiles, but enough k to pay for a cluster's exchange (about 1 us).
    division = {.splits = 2, .groups = sms, .row_tiles = 1};
  } else if (DivideUp(tiles, sms) == 3) {
    division.groups = sms;  // three tiles; in two blocks it would be four
  }
  division.groups = std::min(division.groups, tiles);
  division.row_tiles = std::min(DivideUp(tiles, division.groups), kMaxRowTiles);
  return division;
}

template <typename T, typename Tiling>
absl::Status Enqueue(const SkinnyMatMulArgs& args, const Division& division,
                     cudaStream_t stream) {
  return Launch(SkinnyMatMulKernel<T, Tiling>,
                {.grid = dim3(division.splits, division.groups),
                 .block = Tiling::kThreads,
                 .shared_bytes = sizeof(Shared<Tiling>),
                 .cluster = division.splits},
                stream, args);
}

template <typename T, int kColTiles>
absl::Status EnqueueDivided(const SkinnyMatMulArgs& args,
                            const Division& division, cudaStream_t stream) {
  switch (division.row_tiles) {
    case 1:
      return Enqueue<T, TilingOf<kColTiles, 1>>(args, division, stream);
    case 2:
      return Enqueue<T, TilingOf<kColTiles, 2>>(args, division, stream);
    case 3:
      return Enqueue<T, TilingOf<kColTiles, 3>>(args, division, stream);
    default:
      return Enqueue<T, TilingOf<kColTiles, 4>>(args, division, stream);
  }
}

template <typename T>
absl::Status EnqueueTyped(const SkinnyMatMulArgs& args,
                          const CudaDevice& device, cudaStream_t stream) {
  // Without them a block's sums would stay in its own memory. All instances are
  // compiled alike.
  const bool clusters =
      HasClusters(SkinnyMatMulKernel<T, TilingOf<1, 1>>, device);
  const Division division = Divide(args, clusters, device);
  return args.num_rows <= 8 ? EnqueueDivided<T, 1>(args, division, stream)
                            : EnqueueDivided<T, 2>(args, division, stream);
}

// The same division of L1 for all, the most shared memory there is: blocks of
// two kernels can meet on a multiprocessor only if they agree on it.
template <typename T, typename Tiling>
absl::Status Prepare() {
  const auto kernel = SkinnyMatMulKernel<T, Tiling>;
  RETURN_IF_ERROR(SetMaxDynamicSharedMemory(kernel, sizeof(Shared<Tiling>)));
  RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(
      kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
      cudaSharedmemCarveoutMaxShared));
  return absl::OkStatus();
}

template <typename T, int kColTiles>
absl::Status PrepareTilings() {
  RETURN_IF_ERROR((Prepare<T, TilingOf<kColTiles, 1>>()));
  RETURN_IF_ERROR((Prepare<T, TilingOf<kColTiles, 2>>()));
  RETURN_IF_ERROR((Prepare<T, TilingOf<kColTiles, 3>>()));
  return Prepare<T, TilingOf<kColTiles, 4>>();
}

// What the largest tiling asks for.
constexpr size_t kMaxSharedBytes = sizeof(Shared<TilingOf<1, 2>>);
static_assert(kMaxSharedBytes >= sizeof(Shared<TilingOf<1, 1>>) &&
              kMaxSharedBytes >= sizeof(Shared<TilingOf<1, 3>>) &&
              kMaxSharedBytes >= sizeof(Shared<TilingOf<1, 4>>) &&
              kMaxSharedBytes >= sizeof(Shared<TilingOf<2, 1>>) &&
              kMaxSharedBytes >= sizeof(Shared<TilingOf<2, 2>>) &&
              kMaxSharedBytes >= sizeof(Shared<TilingOf<2, 3>>) &&
              kMaxSharedBytes >= sizeof(Shared<TilingOf<2, 4>>));

bool HasSharedBytes(const CudaDevice& device) {
  return device.max_shared_bytes >= static_cast<int>(kMaxSharedBytes);
}

}  // namespace

bool SkinnyMatMulIsProfitable(int num_rows, const CudaMatrix& w,
                              const CudaDevice& device) {
  return num_rows <= kMaxRows && w.dtype != DType::kFloat32 &&
         HasSharedBytes(device);
}

absl::Status PrepareSkinnyMatMul(const CudaDevice& device) {
  if (!HasSharedBytes(device)) return absl::OkStatus();
  RETURN_IF_ERROR((PrepareTilings<__nv_bfloat16, 1>()));
  RETURN_IF_ERROR((PrepareTilings<__nv_bfloat16, 2>()));
  RETURN_IF_ERROR((PrepareTilings<__half, 1>()));
  return PrepareTilings<__half, 2>();
}

absl::Status SkinnyMatMul(const void* x, int num_rows, const CudaMatrix& w,
                          CudaEpilogue epilogue, void* out,
                          const CudaDevice& device, cudaStream_t stream) {
  const SkinnyMatMulArgs args = {.x = x,
                                 .w = w.data,
                                 .out = out,
                                 .num_rows = num_rows,
                                 .num_outputs = w.num_rows,
                                 .num_inputs = w.num_cols,
                                 .epilogue = epilogue};
  return w.dtype == DType::kBFloat16
             ? EnqueueTyped<__nv_bfloat16>(args, device, stream)
             : EnqueueTyped<__half>(args, device, stream);
}

}  // namespace espalier
