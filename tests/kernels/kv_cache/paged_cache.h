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

// Random numbers that stay distinct in `dtype`.
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
  // Makes a cache of two layers, in pages of `page_size` tokens.
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

  // Copies the first `num_tokens` slots of a page in all layers.
  void CopyPage(int from, int to, int num_tokens) {
    for (int layer = 0; layer < layout_.num_layers; ++layer) {
      for (int run = 0; run < 2 * layout_.num_kv_heads; ++run) {
        const auto pages = elements_.begin() + layer * layout_.layer_stride() +
                           run * layout_.head_stride();
        std::copy_n(pages + from * layout_.page_stride(),
                    num_tokens * layout_.head_dim,
                    pages + to * layout_.page_stride());
      }
    }
  }

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

// A cache of 40 pages of three heads, and a token for each of its slots, both
// on the device and on the host.
class FilledCache {
 public:
  FilledCache(DType dtype, int head_dim, int page_size)
      : host_(dtype, /*num_kv_heads=*/3, head_dim, page_size,
              /*num_pages=*/40),
        host_tokens_(40 * page_size) {
    Numbers numbers(dtype, 9);
    for (float& x : host_.elements()) x = numbers.Next();
    std::iota(host_tokens_.begin(), host_tokens_.end(), 1000);
    memory_ = Upload(ToBytes(host_.elements(), dtype));
    device_tokens_ = Upload(host_tokens_);
  }

  // Layout of the device's cache.
  CudaKvCache layout() const {
    CudaKvCache layout = host_.layout();
    layout.data = memory_.data();
    return layout;
  }
  CudaPageTokens tokens() const {
    return {device_tokens_.data(), host_.layout().page_size};
  }

  // Copies the first `num_tokens` slots of a page, and their tokens, on the
  // host.
  void CopyOnHost(int from, int to, int num_tokens) {
    const int page_size = host_.layout().page_size;
    host_.CopyPage(from, to, num_tokens);
    std::copy_n(host_tokens_.begin() + from * page_size, num_tokens,
                host_tokens_.begin() + to * page_size);
  }

  void ExpectDeviceIsAsHost() {
    EXPECT_EQ(Download(memory_),
              ToBytes(host_.elements(), host_.layout().dtype));
    EXPECT_EQ(Download(device_tokens_), host_tokens_);
  }

 private:
  Cache host_;
  std::vector<int> host_tokens_;
  DeviceBuffer<std::byte> memory_;
  DeviceBuffer<int> device_tokens_;
};

}  // namespace espalier::testing
