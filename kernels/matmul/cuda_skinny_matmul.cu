#include <algorithm>

#include "base/ceil_div.h"
#include "kernels/cuda_kernel_support.cuh"
#include "kernels/matmul/cuda_skinny_launch.cuh"
#include "kernels/matmul/cuda_skinny_matmul.cuh"
#include "kernels/matmul/cuda_skinny_matmul.h"

namespace espalier {
namespace {

using skinny_matmul::SkinnyMatMulKernel;
using skinny_matmul::Tiling;

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

template <typename T>
struct Family {
  using Args = SkinnyMatMulArgs;
  template <int kColTiles, int kRowTiles>
  using TilingOf = espalier::TilingOf<kColTiles, kRowTiles>;
  template <typename Tiling>
  static auto Kernel() {
    return SkinnyMatMulKernel<T, Tiling>;
  }
};

// Every multiprocessor gets two blocks and the same number of bytes, or nearly:
// an idle one costs as much as a slow one. Chosen by trying every division in
// the steps of three models with 4, 8 and 16 rows.
// `clusters`: the kernel was compiled with them.
SkinnyDivision Divide(const SkinnyMatMulArgs& args, bool clusters,
                      const CudaDevice& device) {
  const int tiles = CeilDiv(args.num_outputs, 16);
  const int sms = device.num_sms;
  SkinnyDivision division = {.splits = 1, .groups = 2 * sms, .row_tiles = 1};
  if (clusters && args.num_inputs >= 3072 && tiles <= 3 * sms) {
    // Few tiles, but enough k to pay for a cluster's exchange (about 1 us).
    division = {.splits = 2, .groups = sms, .row_tiles = 1};
  } else if (CeilDiv(tiles, sms) == 3) {
    division.groups = sms;  // three tiles; in two blocks it would be four
  }
  division.groups = std::min(division.groups, tiles);
  division.row_tiles =
      std::min(CeilDiv(tiles, division.groups), skinny_matmul::kMaxRowTiles);
  return division;
}

template <typename T>
absl::Status EnqueueTyped(const SkinnyMatMulArgs& args,
                          const CudaDevice& device, cudaStream_t stream) {
  // Without them a block's sums would stay in its own memory. All instances are
  // compiled alike.
  const bool clusters =
      HasClusters(SkinnyMatMulKernel<T, TilingOf<1, 1>>, device);
  return skinny_matmul::Enqueue<Family<T>>(args, Divide(args, clusters, device),
                                           stream);
}

// Of all types: their tilings are the same.
bool HasSharedBytes(const CudaDevice& device) {
  return skinny_matmul::HasSharedBytes<Family<__nv_bfloat16>>(device);
}

}  // namespace

bool SkinnyMatMulIsProfitable(int num_rows, const CudaMatrix& w,
                              const CudaDevice& device) {
  return num_rows <= skinny_matmul::kMaxRows && w.dtype != DType::kFloat32 &&
         HasSharedBytes(device);
}

absl::Status PrepareSkinnyMatMul(const CudaDevice& device) {
  if (!HasSharedBytes(device)) return absl::OkStatus();
  RETURN_IF_ERROR(skinny_matmul::Prepare<Family<__nv_bfloat16>>());
  return skinny_matmul::Prepare<Family<__half>>();
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
