// CowArray: an array of copy-on-write chunks. Copies share chunks; a shared
// chunk is copied when one of its owners writes to it.
//
// A copy costs one pointer per kChunkSize elements; the first write into a
// shared chunk copies kChunkSize elements.
//
// Thread safety: all copies belong to one strand, since the test for sharing is
// not synchronised.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace espalier {

template <typename T>
class CowArray {
 public:
  static constexpr size_t kChunkSize = 256;

  size_t size() const { return size_; }

  // REQUIRES: i < size().
  const T& operator[](size_t i) const {
    return (*chunks_[i / kChunkSize])[i % kChunkSize];
  }

  // Returns a reference for writing, valid until the next call of any method.
  // REQUIRES: i < size().
  T& Mutable(size_t i) {
    std::shared_ptr<Chunk>& chunk = chunks_[i / kChunkSize];
    if (chunk.use_count() > 1) chunk = std::make_shared<Chunk>(*chunk);
    return (*chunk)[i % kChunkSize];
  }

  void PushBack(const T& value) {
    const T copy = value;  // `value` may be in this array
    if (size_ == chunks_.size() * kChunkSize) {
      chunks_.push_back(std::make_shared<Chunk>());
    }
    Mutable(size_++) = copy;
  }

  // Sets `size` elements to `value`. They share one chunk until written to.
  void Assign(size_t size, const T& value) {
    const auto chunk = std::make_shared<Chunk>();
    chunk->fill(value);
    chunks_.assign((size + kChunkSize - 1) / kChunkSize, chunk);
    size_ = size;
  }

 private:
  using Chunk = std::array<T, kChunkSize>;

  std::vector<std::shared_ptr<Chunk>> chunks_;
  size_t size_ = 0;
};

}  // namespace espalier
