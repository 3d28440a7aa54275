// CowArray: an array that is cheap to copy: copies share its chunks, and a
// chunk is copied when one of those that share it writes to it (copy-on-write).
//
// A copy costs a pointer for every kChunkSize elements; a write into a shared
// chunk copies so many elements once. Copies belong to one strand: whether a
// chunk is shared is not asked across threads.
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

  // The element, to be written to before anything else is done here.
  // REQUIRES: i < size().
  T& Mutable(size_t i) {
    std::shared_ptr<Chunk>& chunk = chunks_[i / kChunkSize];
    if (chunk.use_count() > 1) chunk = std::make_shared<Chunk>(*chunk);
    return (*chunk)[i % kChunkSize];
  }

  void PushBack(const T& value) {
    const T copy = value;  // which may be of this array
    if (size_ == chunks_.size() * kChunkSize) {
      chunks_.push_back(std::make_shared<Chunk>());
    }
    Mutable(size_++) = copy;
  }

  // `size` times `value`, in the memory of a chunk until it is written to.
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
