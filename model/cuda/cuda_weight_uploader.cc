#include "model/cuda/cuda_weight_uploader.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/ceil_div.h"
#include "base/load_as_float.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/matmul/fp8.h"
#include "kernels/matmul/fp8_order.h"
#include "model/fp8_rows.h"
#include "model/int8_rows.h"
#include "model/rotary_order.h"
#include "model/transformer_parts.h"

namespace espalier {
namespace {

// Large enough for the bus, small enough to pin.
constexpr size_t kStagingBytes = size_t{16} << 20;

static_assert(kUploadedBlockRows == kFp8BlockOutputs);

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

// Converts rows of a tensor to e4m3 codes, or to their dequantised values.
class Fp8RowConverter {
 public:
  Fp8RowConverter(const TransformerTensor& tensor, const CudaMatrix& matrix,
                  const CudaTensorPlace& place)
      : tensor_(tensor),
        dtype_(matrix.dtype),
        from_run_(place.from_run > 0 ? place.from_run : matrix.num_cols),
        to_run_(place.from_run > 0 ? place.to_run : matrix.num_cols),
        codes_(tensor.num_cols()) {}

  // The row's place in a block of zeros, in the order of fp8_order.h. Returns
  // its scale, a bfloat16.
  absl::StatusOr<uint16_t> WriteCodes(int row, int row_in_block,
                                      std::byte* block) {
    if (row == kNoHeadRow) return uint16_t{0};
    ASSIGN_OR_RETURN(const float scale,
                     ReadFp8Row(tensor_, row, codes_.data()));
    for (size_t i = 0; i < codes_.size(); ++i) {
      block[Fp8Offset(row_in_block, ColumnOf(i))] = std::byte{codes_[i]};
    }
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(scale) >> 16);
  }

  // Writes a dequantised row. REQUIRES: `to` is zero.
  absl::Status WriteNumbers(int row, std::byte* to) {
    if (row == kNoHeadRow) return absl::OkStatus();
    ASSIGN_OR_RETURN(const float scale,
                     ReadFp8Row(tensor_, row, codes_.data()));
    for (size_t i = 0; i < codes_.size(); ++i) {
      const float value = DequantizeFp8(codes_[i], scale);
      if (StoreAs(dtype_, value, to + ColumnOf(i) * NumBytes(dtype_))) continue;
      return InvalidArgument("float16 cannot hold ", value, " of row ", row);
    }
    return absl::OkStatus();
  }

 private:
  int ColumnOf(size_t i) const {
    return static_cast<int>(i / from_run_ * to_run_ + i % from_run_);
  }

  const TransformerTensor& tensor_;
  const DType dtype_;
  const size_t from_run_, to_run_;
  std::vector<uint8_t> codes_;  // [tensor's columns]
};

// Converts rows of a tensor to rows of a matrix.
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
        !tensor_.is_transposed && !tensor_.has_taps) {
      std::memcpy(to, &tensor_.data[first], num_cols_ * from_bytes_);
      return absl::OkStatus();
    }
    const size_t stride =
        from_bytes_ * (tensor_.is_transposed ? tensor_.num_rows : 1);
    const std::byte* from =
        &tensor_.data[tensor_.is_transposed ? row * from_bytes_ : first];
    for (size_t i = 0; i < num_cols_; ++i, from += stride) {
      const size_t at = tensor_.has_taps
                            ? i % kNumTaps * (width_ / kNumTaps) + i / kNumTaps
                            : i / from_run_ * to_run_ + i % from_run_;
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
  const size_t num_cols_;  // the tensor's columns
  const size_t width_;     // the matrix's columns
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
  if (tensor.is_int8()) {
    ASSIGN_OR_RETURN(const std::shared_ptr<ThreadPool> one_thread,
                     ThreadPool::Create(1));
    const std::vector<std::byte> widened = WidenInt8(tensor, *one_thread);
    TransformerTensor dequantised = tensor;
    dequantised.data = widened;
    dequantised.int8_scales = {};
    return Upload(name, dequantised, to, place);
  }
  if (to.fp8_scales != nullptr) {
    return Annotate(UploadCodes(tensor, to, place), name);
  }
  const RowConverter converter(tensor, to, place);
  const bool is_fp8 = tensor.is_fp8() || place.quantises;
  Fp8RowConverter fp8_converter(tensor, to, place);
  const size_t row_bytes = size_t(to.num_cols) * NumBytes(to.dtype);
  return ForStagedRows(
      tensor, place, row_bytes, [&](int row, std::span<const int> sources) {
        for (size_t i = 0; i < sources.size(); ++i) {
          std::byte* const staged = &staging_[i * row_bytes];
          if (is_fp8) std::memset(staged, 0, row_bytes);
          RETURN_IF_ERROR(
              Annotate(is_fp8 ? fp8_converter.WriteNumbers(sources[i], staged)
                              : converter.Run(sources[i], staged),
                       name));
        }
        return Copy(row, static_cast<int>(sources.size()), row_bytes,
                    const_cast<void*>(to.data), place);
      });
}

absl::Status CudaWeightUploader::UploadCodes(const TransformerTensor& tensor,
                                             const CudaMatrix& to,
                                             const CudaTensorPlace& place) {
  Fp8RowConverter converter(tensor, to, place);
  const size_t row_bytes = to.num_cols;
  const size_t block_bytes = kUploadedBlockRows * row_bytes;
  std::vector<uint16_t> scales;
  return ForStagedRows(
      tensor, place, row_bytes, [&](int row, std::span<const int> sources) {
        // Whole blocks: their rows are not one after the other.
        const int num_blocks =
            CeilDiv(static_cast<int>(sources.size()), kUploadedBlockRows);
        const int num_rows = num_blocks * kUploadedBlockRows;
        std::memset(staging_.data(), 0, num_blocks * block_bytes);
        scales.assign(num_rows, 0);
        for (size_t i = 0; i < sources.size(); ++i) {
          ASSIGN_OR_RETURN(
              scales[i],
              converter.WriteCodes(
                  sources[i], static_cast<int>(i % kUploadedBlockRows),
                  &staging_[i / kUploadedBlockRows * block_bytes]));
        }
        RETURN_IF_ERROR(
            Copy(row, num_rows, row_bytes, const_cast<void*>(to.data), place));
        std::memcpy(staging_.data(), scales.data(), 2 * scales.size());
        return Copy(row, num_rows, /*row_bytes=*/2,
                    const_cast<uint16_t*>(to.fp8_scales), place);
      });
}

// Calls stage(row, sources) for runs of the tensor's rows that fit the staging
// memory: from the row `row` on, whole blocks but for the last, each the
// tensor's row that `sources` says.
template <typename Stage>
absl::Status CudaWeightUploader::ForStagedRows(const TransformerTensor& tensor,
                                               const CudaTensorPlace& place,
                                               size_t row_bytes,
                                               const Stage& stage) {
  const int most_rows = static_cast<int>(
      staging_.size() / (kUploadedBlockRows * row_bytes) * kUploadedBlockRows);
  const int num_rows = place.sources.empty()
                           ? tensor.num_rows
                           : static_cast<int>(place.sources.size());
  std::vector<int> sources;
  for (int row = 0; row < num_rows; row += most_rows) {
    sources.clear();
    for (int i = row; i < std::min(num_rows, row + most_rows); ++i) {
      int source = i;
      if (!place.sources.empty()) {
        source = place.sources[i];
        if (source != kNoHeadRow) source -= place.first_source;
      }
      sources.push_back(source);
    }
    RETURN_IF_ERROR(stage(row, std::span<const int>(sources)));
  }
  return absl::OkStatus();
}

absl::Status CudaWeightUploader::UploadFloats(std::span<const float> from,
                                              float* to) {
  RETURN_IF_CUDA_ERROR(
      cudaMemcpy(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice));
  return absl::OkStatus();
}

absl::Status CudaWeightUploader::Copy(int row, int num_rows, size_t row_bytes,
                                      void* matrix,
                                      const CudaTensorPlace& place) {
  const size_t block_bytes = kUploadedBlockRows * row_bytes;
  const size_t step_bytes = place.row_step * row_bytes;
  const int num_blocks = num_rows / kUploadedBlockRows;
  const size_t rest_bytes = num_rows % kUploadedBlockRows * row_bytes;
  std::byte* const to = static_cast<std::byte*>(matrix) +
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
