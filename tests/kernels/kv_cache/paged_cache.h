// A key/value cache of random numbers for tests on a device, with a host image
// in float32, and what moves arrays to the device and back.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "base/cuda.h"
#include "base/load_as_float.h"
#include "kernels/kv_cache/cuda_kv_cache.h"
#include "tests/device_arrays.h"

namespace espalier::testing {

inline uint32_t ToBits(float x, DType dtype) {
  if (dtype == DType::kFloat16) {
    return std::bit_cast<uint16_t>(static_cast<_Float16>(x));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (dtype == DType::kFloat32) return bits;
  if (std::isnan(x)) return 0x7FFF;
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

inline std::vector<std::byte> ToBytes(const std::vector<float>& x,
                                      DType dtype) {
  const size_t size = NumBytes(dtype);
  std::vector<std::byte> bytes(x.size() * size);
  for (size_t i = 0; i < x.size(); ++i) {
    const uint32_t bits = ToBits(x[i], dtype);
    std::memcpy(&bytes[i * size], &bits, size);
  }
  return bytes;
}

// Random numbers that `dtype` can tell apart.
class Numbers {
 public:
  Numbers(DType dtype, int seed) : dtype_(dtype), random_(seed) {}
  float Next() {
    const uint32_t bits = ToBits(normal_(random_), dtype_);
    return LoadAsFloat(reinterpret_cast<const std::byte*>(&bits), dtype_);
  }

 private:
  const DType dtype_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
};

// Keys and values in pages in a random order; what no sequence owns is NaN.
class Cache {
 public:
  // Of two layers, in pages of `page_size` tokens.
  Cache(DType dtype, int num_kv_heads, int head_dim, int page_size,
        int num_pages)
      : layout_{.dtype = dtype,
                .num_layers = 2,
                .num_pages = num_pages,
                .page_size = page_size,
                .num_kv_heads = num_kv_heads,
                .head_dim = head_dim},
        numbers_(dtype, 7),
        free_(num_pages) {
    elements_.assign(layout_.num_layers * layout_.layer_stride(), NAN);
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), std::mt19937(3));
  }

  // Makes `table` hold positions up to `num_positions`.
  void Extend(std::vector<int>& table, int num_positions, int filled = 0) {
    while (static_cast<int>(table.size()) * layout_.page_size < num_positions) {
      table.push_back(free_.back());
      free_.pop_back();
    }
    for (int p = filled; p < num_positions; ++p) {
      for (int h = 0; h < layout_.num_kv_heads; ++h) {
        for (int i = 0; i < 2 * layout_.head_dim; ++i) {
          elements_[At(table, p, h, i / layout_.head_dim) +
                    i % layout_.head_dim] = numbers_.Next();
        }
      }
    }
  }

  // Keys (0) or values (1) of a head at positions below `count`.
  std::vector<float> Gather(const std::vector<int>& table, int count, int head,
                            int which) const {
    std::vector<float> result;
    for (int p = 0; p < count; ++p) {
      const auto at = elements_.begin() + At(table, p, head, which);
      result.insert(result.end(), at, at + layout_.head_dim);
    }
    return result;
  }

  // One number of a key (0) or value (1).
  float& At(const std::vector<int>& table, int position, int head, int which,
            int dim) {
    return elements_[At(table, position, head, which) + dim];
  }

  const CudaKvCache& layout() const { return layout_; }
  std::vector<float>& elements() { return elements_; }

  static constexpr int kLayer = 1;

 private:
  int64_t At(const std::vector<int>& table, int position, int head,
             int which) const {
    return kLayer * layout_.layer_stride() +
           table[position / layout_.page_size] * layout_.page_stride() +
           which * layout_.values_offset() + head * layout_.head_stride() +
           position % layout_.page_size * layout_.head_dim;
  }

  CudaKvCache layout_;
  Numbers numbers_;
  std::vector<int> free_;
  std::vector<float> elements_;
};

}  // namespace espalier::testing
