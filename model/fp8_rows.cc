#include "model/fp8_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/allocating_loop.h"
#include "base/check.h"
#include "base/load_as_float.h"
#include "base/status.h"
#include "kernels/matmul/fp8.h"

namespace espalier {
namespace {

constexpr float kScaleLimit = 256;

float ScaleOf(const Fp8Scales& scales, int row) {
  const size_t bytes = NumBytes(scales.dtype);
  const size_t at = scales.data.size() > bytes ? row * bytes : 0;
  return RoundToBFloat16(LoadAsFloat(&scales.data[at], scales.dtype));
}

absl::StatusOr<float> CopyRow(const TransformerTensor& tensor, int row,
                              uint8_t* codes) {
  const size_t num_cols = tensor.num_cols();
  std::memcpy(codes, &tensor.data[row * num_cols], num_cols);
  const uint8_t* const nan = std::find_if(codes, codes + num_cols, IsFp8Nan);
  if (nan != codes + num_cols) {
    return InvalidArgument("tensor ", tensor.name, ": row ", row,
                           " has a NaN in column ", nan - codes, ", the code ",
                           int{*nan});
  }
  return ScaleOf(tensor.fp8_scales, row);
}

std::vector<float> WidenRow(const TransformerTensor& tensor, int row) {
  const size_t bytes = NumBytes(tensor.dtype);
  std::vector<float> numbers(tensor.num_cols());
  const size_t stride = tensor.is_transposed ? tensor.num_rows : 1;
  const size_t first = tensor.is_transposed ? row : row * numbers.size();
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] =
        LoadAsFloat(&tensor.data[(first + i * stride) * bytes], tensor.dtype);
  }
  return numbers;
}

// That of a row whose scale is too large, or no number.
absl::Status TooLarge(const TransformerTensor& tensor, int row,
                      const std::vector<float>& numbers) {
  const auto first = std::ranges::find_if(numbers, [](float number) {
    return !(Fp8Scale({&number, 1}) < kScaleLimit);
  });
  CHECK(first != numbers.end());
  return InvalidArgument("tensor ", tensor.name, ": row ", row,
                         " has a number that e4m3 cannot hold in column ",
                         first - numbers.begin(), ": it must be finite and ",
                         "less than ", kScaleLimit * kMaxFp8,
                         " in magnitude, got ", *first);
}

}  // namespace

absl::Status CheckFp8Scales(const Fp8Scales& scales) {
  const size_t bytes = NumBytes(scales.dtype);
  for (size_t at = 0; at < scales.data.size(); at += bytes) {
    const float scale = LoadAsFloat(&scales.data[at], scales.dtype);
    if (scale >= 0 && RoundToBFloat16(scale) < kScaleLimit) continue;
    return InvalidArgument("scale ", at / bytes, " must be in [0, ",
                           kScaleLimit, "), got ", scale);
  }
  return absl::OkStatus();
}

absl::StatusOr<float> ReadFp8Row(const TransformerTensor& tensor, int row,
                                 uint8_t* codes) {
  if (tensor.is_fp8()) return CopyRow(tensor, row, codes);
  const std::vector<float> numbers = WidenRow(tensor, row);
  const float scale = Fp8Scale(numbers);
  if (!(scale < kScaleLimit)) return TooLarge(tensor, row, numbers);
  QuantizeFp8(numbers, scale, codes);
  return scale;
}

absl::StatusOr<std::vector<uint16_t>> WidenFp8(const TransformerTensor& tensor,
                                               ThreadPool& pool) {
  const size_t num_cols = tensor.num_cols();
  std::vector<uint16_t> widened(tensor.num_rows * num_cols);
  std::vector<absl::Status> errors(tensor.num_rows);
  AllocatingLoop(pool, tensor.num_rows, [&](int row) {
    std::vector<uint8_t> codes(num_cols);
    const absl::StatusOr<float> scale = ReadFp8Row(tensor, row, codes.data());
    if (!scale.ok()) {
      errors[row] = scale.status();
      return;
    }
    uint16_t* const to = &widened[row * num_cols];
    for (size_t i = 0; i < num_cols; ++i) {
      const float value = DequantizeFp8(codes[i], *scale);
      to[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
    }
  });
  for (const absl::Status& error : errors) RETURN_IF_ERROR(error);
  return widened;
}

}  // namespace espalier
