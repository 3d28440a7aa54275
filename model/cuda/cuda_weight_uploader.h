// CudaWeightUploader: copies tensors of a checkpoint to device memory,
// converted to another dtype and to the row and column layout of the forward
// pass.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "base/cuda_pinned_memory.h"
#include "kernels/cuda_matrix.h"
#include "model/transformer_tensors.h"

namespace espalier {

// Rows are uploaded in blocks of this size, the block size in which rows of
// gate and up alternate (CudaEpilogue::kSiluMul).
inline constexpr int kUploadedBlockRows = 8;

// The place of a tensor in a matrix. The tensor's block b of eight rows begins
// at the matrix's row first_row + b * row_step.
struct CudaTensorPlace {
  int first_row = 0;
  int row_step = kUploadedBlockRows;
  // Source row of each placed row, plus first_source; kNoHeadRow
  // (model/rotary_order.h) is a row of zeros. Empty: all rows in order.
  std::span<const int> sources = {};
  int first_source = 0;
  // Each run of from_run source columns is padded with zeros to to_run columns.
  // 0: columns are not padded.
  int from_run = 0;
  int to_run = 0;
  // Quantises weights to e4m3. If the matrix has no codes, it gets their
  // dequantised values.
  bool quantises = false;
};

class CudaWeightUploader {
 public:
  // `widest_row` is the largest number of columns of any matrix.
  // Errors: kResourceExhausted, naming the bytes, if memory runs out.
  static absl::StatusOr<CudaWeightUploader> Create(int widest_row);

  // Writes the tensor's rows to `to`, rounded to nearest even, and zeros to the
  // padding columns. An e4m3 matrix gets the tensor's codes, or quantised
  // weights if it has none. An int8 matrix is dequantised.
  // Errors: kInvalidArgument naming `name` and the value if a finite weight
  // overflows float16; as ReadFp8Row (model/fp8_rows.h).
  absl::Status Upload(std::string_view name, const TransformerTensor& tensor,
                      const CudaMatrix& to, const CudaTensorPlace& place = {});

  absl::Status UploadFloats(std::span<const float> from, float* to);

 private:
  absl::Status UploadCodes(const TransformerTensor& tensor,
                           const CudaMatrix& to, const CudaTensorPlace& place);
  template <typename Stage>
  absl::Status ForStagedRows(const TransformerTensor& tensor,
                             const CudaTensorPlace& place, size_t row_bytes,
                             const Stage& stage);
  // Copies the staged rows to rows [row, row + num_rows) of a tensor's place in
  // `matrix`. This is the only function that writes weights to the device.
  // REQUIRES: row % kUploadedBlockRows == 0.
  absl::Status Copy(int row, int num_rows, size_t row_bytes, void* matrix,
                    const CudaTensorPlace& place);

  PinnedBuffer<std::byte> staging_;
};

// Concatenates the vectors as float32 and adds `addend` to each element.
std::vector<float> WidenedNumbers(std::span<const TransformerTensor> vectors,
                                  float addend = 0);

}  // namespace espalier
