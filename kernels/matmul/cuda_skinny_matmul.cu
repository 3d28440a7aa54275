#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "kernels/cuda_kernel_support.cuh"
#include "kernels/matmul/cuda_skinny_launch.cuh"
#include "kernels/matmul/cuda_skinny_matmul.cuh"
#include "kernels/matmul/cuda_skinny_matmul.h"

namespace espalier {
namespace {

using skinny_matmul::SkinnyMatMulKernel;
using skinny_matmul::Tiling;

// Tilings, by columns of tiles (eight rows of x each) and tiles of a block. Up
// to 16 rows: the deepest ring with which two blocks share a multiprocessor,
// but not three. With room for more, the blocks of the next kernel that begin
// early crowd some multiprocessors and not others (8b's step: 4.7 ms instead of
// 3.7).
constexpr int kNarrowColTiles = 2;
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
// With more rows a multiprocessor has one block, because each block reads all
// of x from L2: at 40 rows and two tiles nearly as many bytes as of w. A ring
// that leaves room for a block of the next kernel is slower for large matrices
// (8b's step with 32 rows: 6.6 ms instead of 6.0). Deeper rings and more warps
// are no faster.
template <int kColTiles>
struct TilingOf<kColTiles, 1>
    : Tiling<8, 1, kColTiles, kColTiles == 3 ? 6 : 5, true> {};
template <int kColTiles>
struct TilingOf<kColTiles, 2> : Tiling<8, 2, kColTiles, 4, true> {};
template <int kColTiles>
struct TilingOf<kColTiles, 3>
    : Tiling<8, 3, kColTiles, kColTiles == 3 ? 4 : 3, true> {};

// True if two blocks cannot share a multiprocessor, which has 228 KiB and
// reserves 1 KiB for each.
template <int kColTiles>
constexpr bool kIsAlone =
    sizeof(skinny_matmul::Shared<TilingOf<kColTiles, 1>>) > 113 * 1024 &&
    sizeof(skinny_matmul::Shared<TilingOf<kColTiles, 2>>) > 113 * 1024 &&
    sizeof(skinny_matmul::Shared<TilingOf<kColTiles, 3>>) > 113 * 1024;
static_assert(kIsAlone<3> && kIsAlone<4> && kIsAlone<5> && kIsAlone<6>);

constexpr int kMaxNarrowRowTiles = 4;
constexpr int kMaxWideRowTiles = 3;

template <typename T>
struct Family {
  using Args = SkinnyMatMulArgs;
  static constexpr int kMaxColTiles = 6;
  static constexpr int MaxRowTiles(int col_tiles) {
    return col_tiles <= kNarrowColTiles ? kMaxNarrowRowTiles : kMaxWideRowTiles;
  }
  template <int kColTiles, int kRowTiles>
  using TilingOf = espalier::TilingOf<kColTiles, kRowTiles>;
  template <typename Tiling>
  static auto Kernel() {
    return SkinnyMatMulKernel<T, Tiling>;
  }
};

// Divides a product of more than 16 rows: one block for every multiprocessor,
// or fewer blocks of several tiles, because every block reads all of x. Chosen
// by trying every division of 24, 32 and 40 rows for the products of eight
// models.
SkinnyDivision DivideWide(const SkinnyMatMulArgs& args, bool clusters,
                          const CudaDevice& device) {
  const int tiles = CeilDiv(args.num_outputs, 16);
  const int sms = device.num_sms;
  SkinnyDivision division = {.splits = 1, .row_tiles = CeilDiv(tiles, sms)};
  if (clusters && 2 * tiles <= sms && args.num_inputs >= 3072) {
    division = {.splits = 2, .row_tiles = 1};
  } else if (clusters && tiles <= sms && args.num_inputs >= 4096) {
    division = {.splits = 2, .row_tiles = 2};
  }
  // A block computes all its outputs in one pass (Tiling::kIsSinglePass).
  CHECK_LE(division.row_tiles, kMaxWideRowTiles);
  division.groups = CeilDiv(tiles, division.row_tiles);
  return division;
}

// Divides a product of up to 16 rows: every multiprocessor gets two blocks and
// nearly the same number of bytes, as an idle one costs as much as a slow one.
// Chosen by trying every division in the steps of three models with 4, 8 and 16
// rows.
SkinnyDivision DivideNarrow(const SkinnyMatMulArgs& args, bool clusters,
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
      std::min(CeilDiv(tiles, division.groups), kMaxNarrowRowTiles);
  return division;
}

// `clusters`: the kernel was compiled with clusters.
SkinnyDivision Divide(const SkinnyMatMulArgs& args, bool clusters,
                      const CudaDevice& device) {
  return skinny_matmul::ColTiles(args.num_rows) <= kNarrowColTiles
             ? DivideNarrow(args, clusters, device)
             : DivideWide(args, clusters, device);
}

// True if the kernels were compiled with clusters and programmatic dependent
// launch, which come together. All instances are compiled alike.
template <typename T>
bool BeginsEarly(const CudaDevice& device) {
  return HasClusters(SkinnyMatMulKernel<T, TilingOf<1, 1>>, device);
}

template <typename T>
absl::Status EnqueueTyped(const SkinnyMatMulArgs& args,
                          const CudaDevice& device, cudaStream_t stream) {
  // Without clusters a block's sums would stay in its own memory.
  const bool clusters = BeginsEarly<T>(device);
  return skinny_matmul::Enqueue<Family<T>>(args, Divide(args, clusters, device),
                                           stream);
}

// Any element type: the tilings of all types are the same.
using AnyFamily = Family<__nv_bfloat16>;

// Returns the tiles of outputs of a block, if every multiprocessor has one.
int RowTiles(const CudaMatrix& w, const CudaDevice& device) {
  return CeilDiv(CeilDiv(w.num_rows, 16), device.num_sms);
}

// True if L2 delivers w, and x as often as the blocks read it, soon enough.
// Blocks of `row_tiles` tiles read num_rows / (16 row_tiles) bytes of x for
// each byte of w.
bool L2IsFastEnough(int num_rows, int row_tiles, const CudaMatrix& w,
                    const CudaDevice& device, const CudaMatMulTuning& tuning) {
  if (int64_t{2} * w.num_rows * w.num_cols < tuning.small_bytes) return true;
  const double reads =
      1 + skinny_matmul::ColTiles(num_rows) / (2.0 * row_tiles);
  return reads * device.memory_bytes_per_second <=
         (row_tiles == 1 ? tuning.max_l2_to_memory_time_of_one_tile
                         : tuning.max_l2_to_memory_time) *
             tuning.l2_bytes_per_second;
}

}  // namespace

bool CanRunSkinnyMatMul(int num_rows, const CudaMatrix& w,
                        const CudaDevice& device) {
  const int col_tiles = skinny_matmul::ColTiles(num_rows);
  if (col_tiles > AnyFamily::kMaxColTiles || w.dtype == DType::kFloat32 ||
      !skinny_matmul::HasSharedBytes<AnyFamily>(col_tiles, device)) {
    return false;
  }
  return col_tiles <= kNarrowColTiles ||
         (RowTiles(w, device) <= kMaxWideRowTiles &&
          BeginsEarly<__nv_bfloat16>(device));
}

// More than 40 rows need 4096 inputs and more than one tile. With two tiles and
// 2048 to 4095 inputs 24 rows are faster, while 32 and 40 take up to 8 % longer
// (qkv of 1b and 1.7b, the output projection of 3b). Measured on an H100. With
// faster memory, L2 becomes the limit sooner.
bool SkinnyMatMulIsProfitable(int num_rows, const CudaMatrix& w,
                              const CudaDevice& device,
                              const CudaMatMulTuning& tuning) {
  if (skinny_matmul::ColTiles(num_rows) <= kNarrowColTiles) return true;
  const int row_tiles = RowTiles(w, device);
  int max_rows = 40;
  if (row_tiles > 1 && w.num_cols >= 4096) {
    max_rows = 48;
  } else if (row_tiles == 2 && w.num_cols >= 2048) {
    max_rows = 24;
  }
  return num_rows <= max_rows &&
         L2IsFastEnough(num_rows, row_tiles, w, device, tuning);
}

absl::Status PrepareSkinnyMatMul(const CudaDevice& device) {
  RETURN_IF_ERROR(skinny_matmul::Prepare<Family<__nv_bfloat16>>(device));
  return skinny_matmul::Prepare<Family<__half>>(device);
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
