// TransposeRows: transposes the rows of a stored matrix into the columns of a
// panel (packed_matrix.h), at memory bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace espalier {

// Sixteen bytes as lanes, in the vector extensions of GCC and Clang, which work
// on any processor.
template <typename T>
struct TransposeLanes;
template <>
struct TransposeLanes<uint16_t> {
  using Vector = uint16_t __attribute__((vector_size(16)));
  static Vector Lower(Vector a, Vector b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  }
  static Vector Upper(Vector a, Vector b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  }
};
template <>
struct TransposeLanes<uint32_t> {
  using Vector = uint32_t __attribute__((vector_size(16)));
  static Vector Lower(Vector a, Vector b) {
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
  }
  static Vector Upper(Vector a, Vector b) {
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
  }
};

// Distances in bytes between the two rows of a pair, and between pairs.
struct RowStrides {
  size_t in_pair;
  size_t pair;
};

// Transposes a square of as many rows as a vector has lanes.
template <typename T>
void TransposeSquare(const std::byte* from, RowStrides from_strides, T* to,
                     size_t to_stride) {
  using Lanes = TransposeLanes<T>;
  using Vector = typename Lanes::Vector;
  constexpr int kSize = sizeof(Vector) / sizeof(T);
  Vector rows[kSize];
  for (int i = 0; i < kSize; ++i) {
    const std::byte* const row =
        from + i / 2 * from_strides.pair + i % 2 * from_strides.in_pair;
    std::memcpy(&rows[i], row, sizeof(Vector));
  }
  // Interleaving the upper half of the rows with the lower, as often as the
  // number of rows can be halved, is a transposition.
  for (int half = kSize; half > 1; half /= 2) {
    Vector next[kSize];
    for (int i = 0; i < kSize / 2; ++i) {
      next[2 * i] = Lanes::Lower(rows[i], rows[i + kSize / 2]);
      next[2 * i + 1] = Lanes::Upper(rows[i], rows[i + kSize / 2]);
    }
    std::memcpy(rows, next, sizeof(rows));
  }
  for (int i = 0; i < kSize; ++i) {
    std::memcpy(to + i * to_stride, &rows[i], sizeof(Vector));
  }
}

// to[col * to_stride + row] = element (row, col) of `from`.
//   from  [num_rows, num_cols], rows `from_stride` bytes apart, any alignment
template <typename T>
void TransposeRows(const std::byte* from, size_t from_stride, int num_rows,
                   int num_cols, T* to, size_t to_stride) {
  constexpr int kSize = 16 / sizeof(T);
  const int square_rows = num_rows / kSize * kSize;
  const int square_cols = num_cols / kSize * kSize;
  const auto copy = [&](int row, int col) {
    std::memcpy(&to[col * to_stride + row],
                from + row * from_stride + col * sizeof(T), sizeof(T));
  };
  for (int col = 0; col < square_cols; col += kSize) {
    for (int row = 0; row < square_rows; row += kSize) {
      TransposeSquare(from + row * from_stride + col * sizeof(T),
                      {from_stride, 2 * from_stride},
                      to + col * to_stride + row, to_stride);
    }
    for (int row = square_rows; row < num_rows; ++row) {
      for (int i = 0; i < kSize; ++i) copy(row, col + i);
    }
  }
  for (int col = square_cols; col < num_cols; ++col) {
    for (int row = 0; row < num_rows; ++row) copy(row, col);
  }
}

// Transposes rows whose halves alternate: row i of the first n rows becomes
// lane 2 i, and row n + i lane 2 i + 1.
// REQUIRES: num_rows and num_cols are multiples of the lanes of a vector,
// num_rows of twice as many.
template <typename T>
void TransposeAlternating(const std::byte* from, size_t from_stride,
                          int num_rows, int num_cols, T* to, size_t to_stride) {
  constexpr int kSize = 16 / sizeof(T);
  const RowStrides strides = {from_stride * (num_rows / 2), from_stride};
  for (int col = 0; col < num_cols; col += kSize) {
    for (int lane = 0; lane < num_rows; lane += kSize) {
      TransposeSquare(from + lane / 2 * from_stride + col * sizeof(T), strides,
                      to + col * to_stride + lane, to_stride);
    }
  }
}

}  // namespace espalier
