#include "model/cuda/cuda_weight_uploader.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/load_as_float.h"
#include "base/status.h"
#include "model/rotary_order.h"

namespace espalier {
namespace {

// Large enough for the bus, small enough to pin.
constexpr size_t kStagingBytes = size_t{16} << 20;

// False if a finite value became infinite in float16.
bool StoreAs(DType dtype, float value, std::byte* to) {
  if (dtype == DType::kFloat32) {
    std::memcpy(to, &value, sizeof(value));
  } else if (dtype == DType::kBFloat16) {
    const __nv_bfloat16 rounded = __float2bfloat16_rn(value);
    std::memcpy(to, &rounded, sizeof(rounded));
  } else {
    const __half rounded = __float2half_rn(value);
    std::memcpy(to, &rounded, sizeof(rounded));
    return std::isfinite(__half2float(rounded)) || !std::isfinite(value);
  }
  return true;
}

// Makes rows of a matrix of rows of a tensor.
class RowConverter {
 public:
  RowConverter(const TransformerTensor& tensor, const CudaMatrix& matrix,
               const CudaTensorPlace& place)
      : tensor_(tensor),
        from_bytes_(NumBytes(tensor.dtype)),
        to_bytes_(NumBytes(matrix.dtype)),
        dtype_(matrix.dtype),
        num_cols_(tensor.data.size() / from_bytes_ / tensor.num_rows),
        width_(matrix.num_cols),
        from_run_(place.from_run > 0 ? place.from_run : width_),
        to_run_(place.from_run > 0 ? place.to_run : width_) {}

  absl::Status Run(int row, std::byte* to) const {
    if (num_cols_ != width_ || from_run_ != to_run_ || row == kNoHeadRow) {
      std::memset(to, 0, width_ * to_bytes_);
    }
    if (row == kNoHeadRow) return absl::OkStatus();
    const size_t first = row * num_cols_ * from_bytes_;
    if (tensor_.dtype == dtype_ && from_run_ == to_run_ &&
        !tensor_.is_transposed) {
      std::memcpy(to, &tensor_.data[first], num_cols_ * from_bytes_);
      return absl::OkStatus();
    }
    const size_t stride =
        from_bytes_ * (tensor_.is_transposed ? tensor_.num_rows : 1);
    const std::byte* from =
        &tensor_.data[tensor_.is_transposed ? row * from_bytes_ : first];
    for (size_t i = 0; i < num_cols_; ++i, from += stride) {
      const size_t at = i / from_run_ * to_run_ + i % from_run_;
      if (ConvertNumber(from, to + at * to_bytes_)) continue;
      return InvalidArgument("float16 cannot hold ",
                             LoadAsFloat(from, tensor_.dtype), " of row ", row);
    }
    return absl::OkStatus();
  }

 private:
  bool ConvertNumber(const std::byte* from, std::byte* to) const {
    if (tensor_.dtype != dtype_) {
      return StoreAs(dtype_, LoadAsFloat(from, tensor_.dtype), to);
    }
    std::memcpy(to, from, to_bytes_);
    return true;
  }

  const TransformerTensor& tensor_;
  const size_t from_bytes_, to_bytes_;
  const DType dtype_;
  const size_t num_cols_;  // of the tensor
  const size_t width_;     // of the matrix
  const size_t from_run_, to_run_;
};

}  // namespace

absl::StatusOr<CudaWeightUploader> CudaWeightUploader::Create(int widest_row) {
  CudaWeightUploader uploader;
  const size_t block_bytes = kUploadedBlockRows * sizeof(float) * widest_row;
  ASSIGN_OR_RETURN(uploader.staging_, PinnedBuffer<std::byte>::Create(std::max(
                                          kStagingBytes, block_bytes)));
  return uploader;
}

absl::Status CudaWeightUploader::Upload(std::string_view name,
                                        const TransformerTensor& tensor,
                                        const CudaMatrix& to,
                                        const CudaTensorPlace& place) {
  const RowConverter converter(tensor, to, place);
  const size_t row_bytes = size_t(to.num_cols) * NumBytes(to.dtype);
  const int most_rows = static_cast<int>(
      staging_.size() / (kUploadedBlockRows * row_bytes) * kUploadedBlockRows);
  const int num_rows = place.sources.empty()
                           ? tensor.num_rows
                           : static_cast<int>(place.sources.size());
  for (int row = 0; row < num_rows; row += most_rows) {
    const int num_staged = std::min(num_rows - row, most_rows);
    for (int i = 0; i < num_staged; ++i) {
      int from = row + i;
      if (!place.sources.empty()) {
        from = place.sources[from];
        if (from != kNoHeadRow) from -= place.first_source;
      }
      RETURN_IF_ERROR(
          Annotate(converter.Run(from, &staging_[i * row_bytes]), name));
    }
    RETURN_IF_ERROR(Copy(row, num_staged, to, place));
  }
  return absl::OkStatus();
}

absl::Status CudaWeightUploader::UploadFloats(std::span<const float> from,
                                              float* to) {
  RETURN_IF_CUDA_ERROR(
      cudaMemcpy(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice));
  return absl::OkStatus();
}

// What is staged, as rows [row, row + num_rows) of a tensor.
// REQUIRES: row % kUploadedBlockRows == 0.
absl::Status CudaWeightUploader::Copy(int row, int num_rows,
                                      const CudaMatrix& matrix,
                                      const CudaTensorPlace& place) {
  const size_t row_bytes = size_t(matrix.num_cols) * NumBytes(matrix.dtype);
  const size_t block_bytes = kUploadedBlockRows * row_bytes;
  const size_t step_bytes = place.row_step * row_bytes;
  const int num_blocks = num_rows / kUploadedBlockRows;
  const size_t rest_bytes = num_rows % kUploadedBlockRows * row_bytes;
  // Weights are written to here and nowhere else.
  std::byte* to = static_cast<std::byte*>(const_cast<void*>(matrix.data)) +
                  place.first_row * row_bytes +
                  row / kUploadedBlockRows * step_bytes;
  RETURN_IF_CUDA_ERROR(cudaMemcpy2D(to, step_bytes, staging_.data(),
                                    block_bytes, block_bytes, num_blocks,
                                    cudaMemcpyHostToDevice));
  RETURN_IF_CUDA_ERROR(cudaMemcpy(to + num_blocks * step_bytes,
                                  &staging_[num_blocks * block_bytes],
                                  rest_bytes, cudaMemcpyHostToDevice));
  return absl::OkStatus();
}

std::vector<float> WidenedNumbers(std::span<const TransformerTensor> vectors,
                                  float addend) {
  std::vector<float> numbers;
  for (const TransformerTensor& vector : vectors) {
    for (int i = 0; i < vector.num_rows; ++i) {
      const std::byte* from = &vector.data[size_t(i) * NumBytes(vector.dtype)];
      numbers.push_back(LoadAsFloat(from, vector.dtype) + addend);
    }
  }
  return numbers;
}

}  // namespace espalier
