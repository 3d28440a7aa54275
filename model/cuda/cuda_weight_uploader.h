// CudaWeightUploader: brings tensors of a checkpoint to device memory, in
// another dtype, with rows and columns where the forward pass wants them.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/cuda.h"
#include "kernels/cuda_matrix.h"
#include "model/transformer_tensors.h"

namespace espalier {

// Rows are uploaded in blocks of as many: those of gate and up that lie
// together (CudaEpilogue::kSiluMul).
inline constexpr int kUploadedBlockRows = 8;

// Where a tensor goes in a matrix. Block b of eight of its rows begins at row
// first_row + b * row_step.
struct CudaTensorPlace {
  int first_row = 0;
  int row_step = kUploadedBlockRows;
  // Rows of the tensor that rows of the matrix come from, plus first_source;
  // kNoHeadRow (model/rotary_order.h) is zeros. Empty: all as they are.
  std::span<const int> sources = {};
  int first_source = 0;
  // Runs of from_run columns begin at multiples of to_run; the columns after
  // them are zero. 0: columns as they are.
  int from_run = 0;
  int to_run = 0;
  // Numbers become those that e4m3 codes made of them stand for, also where the
  // matrix has no codes.
  bool quantises = false;
};

class CudaWeightUploader {
 public:
  // `widest_row` numbers are the most that a row of a matrix has.
  // Errors: kResourceExhausted, naming the bytes, if memory runs out.
  static absl::StatusOr<CudaWeightUploader> Create(int widest_row);

  // Writes the tensor's rows to `to`, rounded to nearest even, with zeros
  // after their columns. A matrix of e4m3 codes gets those that are stored, or
  // quantised ones.
  // Errors: kInvalidArgument naming `name` and the value if one that is finite
  // has no finite place in float16; as ReadFp8Row (model/fp8_rows.h).
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
  // What is staged, as rows [row, row + num_rows) of a tensor, of so many bytes
  // each, in a matrix that begins at `matrix`: weights are written to here and
  // nowhere else. REQUIRES: row % kUploadedBlockRows == 0.
  absl::Status Copy(int row, int num_rows, size_t row_bytes, void* matrix,
                    const CudaTensorPlace& place);

  PinnedBuffer<std::byte> staging_;
};

// The numbers of vectors, one after the other, each plus `addend`.
std::vector<float> WidenedNumbers(std::span<const TransformerTensor> vectors,
                                  float addend = 0);

}  // namespace espalier
