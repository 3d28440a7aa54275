#include "kernels/constrain/cuda_constraint_tables.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/cuda.h"
#include "base/cuda_memory.h"
#include "base/status.h"
#include "kernels/constrain/cuda_token_masks.h"

namespace espalier {
namespace {

// Arrays one after the other in words; a word is not shared by two.
class WordList {
 public:
  // Returns the index of the first word of the array.
  template <typename T>
  size_t Add(const T* array, uint32_t size) {
    const size_t begin = AddZeros(sizeof(T) * size);
    if (size > 0) std::memcpy(&words_[begin], array, sizeof(T) * size);
    return begin;
  }
  size_t AddZeros(size_t num_bytes) {
    const size_t begin = words_.size();
    words_.insert(words_.end(), (num_bytes + 3) / 4, 0);
    return begin;
  }

  absl::StatusOr<DeviceBuffer<int32_t>> Upload(const char* what) const {
    ASSIGN_OR_RETURN(DeviceBuffer<int32_t> buffer,
                     TakeDeviceMemory<int32_t>(what, words_.size()));
    RETURN_IF_CUDA_ERROR(cudaMemcpy(buffer.data(), words_.data(),
                                    words_.size() * sizeof(int32_t),
                                    cudaMemcpyHostToDevice));
    // Streams that do not wait for others read it.
    RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(nullptr));
    return buffer;
  }

 private:
  std::vector<int32_t> words_;
};

// Returns CudaConstraint::max_need.
int32_t MaxNeed(const ConstraintTables& tables) {
  int32_t most = 0;
  for (int32_t state = 0; state < tables.num_states + 2; ++state) {
    if (tables.more[state] != std::numeric_limits<int32_t>::max()) {
      most = std::max(most, tables.more[state]);
    }
  }
  return most + 1;
}

}  // namespace

absl::StatusOr<CudaTokenTexts> CudaTokenTexts::Create(const TokenTexts& texts,
                                                      int vocab_size) {
  WordList words;
  words.Add(texts.indptr, vocab_size + 1);
  words.Add(texts.bytes, texts.indptr[vocab_size]);
  words.AddZeros(kTokenTextPadding);
  CudaTokenTexts copy;
  copy.vocab_size_ = vocab_size;
  ASSIGN_OR_RETURN(copy.words_, words.Upload("texts of tokens"));
  return copy;
}

TokenTexts CudaTokenTexts::texts() const {
  return {words_.data(),
          reinterpret_cast<const uint8_t*>(words_.data() + vocab_size_ + 1)};
}

absl::StatusOr<CudaConstraintTables> CudaConstraintTables::Create(
    const ConstraintTables& tables,
    std::shared_ptr<const CudaTokenTexts> inside,
    std::shared_ptr<const CudaTokenTexts> first) {
  if (tables.has_stacks()) {
    return CreateWithStacks(tables, std::move(inside), std::move(first));
  }
  WordList words;
  const uint32_t n = tables.num_states;
  // First, for their alignment.
  const size_t masks = words.AddZeros((n + 2) * sizeof(unsigned long long));
  const std::vector<int32_t> unknown(n + 2, -1);
  const size_t needs = words.Add(unknown.data(), n + 2);
  const size_t classes = words.Add(tables.classes, 256);
  const size_t next = words.Add(tables.next, n * tables.num_classes);
  const size_t accepts = words.Add(tables.accepts, n);
  const size_t more = words.Add(tables.more, n + 2);
  const size_t end_ids = words.Add(tables.end_ids, tables.num_end_ids);
  CudaConstraintTables copy;
  ASSIGN_OR_RETURN(copy.words_, words.Upload("tables of constraints"));
  int32_t* const base = copy.words_.data();
  CudaConstraint& constraint = copy.constraint_;
  constraint.tables = tables;
  constraint.tables.inside = inside->texts();
  constraint.tables.first = first == nullptr ? TokenTexts() : first->texts();
  constraint.tables.classes = reinterpret_cast<const uint8_t*>(base + classes);
  constraint.tables.next = base + next;
  constraint.tables.accepts = reinterpret_cast<const uint8_t*>(base + accepts);
  constraint.tables.more = base + more;
  constraint.tables.end_ids = base + end_ids;
  constraint.max_need = MaxNeed(tables);
  constraint.needs = base + needs;
  constraint.masks = reinterpret_cast<unsigned long long*>(base + masks);
  copy.inside_ = std::move(inside);
  copy.first_ = std::move(first);
  return copy;
}

absl::StatusOr<CudaConstraintTables> CudaConstraintTables::CreateWithStacks(
    const ConstraintTables& tables,
    std::shared_ptr<const CudaTokenTexts> inside,
    std::shared_ptr<const CudaTokenTexts> first) {
  WordList words;
  const PushdownTables& stacks = tables.stacks;
  const uint32_t num_states = tables.num_states;
  const uint32_t num_nodes = stacks.num_levels * num_states;
  const size_t classes = words.Add(tables.classes, 256);
  const size_t accepts = words.Add(tables.accepts, num_states);
  const size_t end_ids = words.Add(tables.end_ids, tables.num_end_ids);
  const size_t next = words.Add(stacks.next, num_nodes * tables.num_classes);
  const size_t more = words.Add(stacks.more, num_nodes);
  const size_t to_end = words.Add(stacks.to_end, num_nodes);
  const size_t moves = words.Add(stacks.moves, stacks.num_moves);
  const size_t pushed = words.Add(stacks.pushed, stacks.num_pushed);
  const size_t counters =
      words.Add(stacks.counters, stacks.counters == nullptr ? 0 : num_states);
  const size_t limits = words.Add(stacks.limits, stacks.num_limits);
  CudaConstraintTables copy;
  ASSIGN_OR_RETURN(copy.words_, words.Upload("tables of constraints"));
  const int32_t* const base = copy.words_.data();
  ConstraintTables& on_device = copy.constraint_.tables;
  on_device = tables;
  on_device.inside = inside->texts();
  on_device.first = first == nullptr ? TokenTexts() : first->texts();
  on_device.classes = reinterpret_cast<const uint8_t*>(base + classes);
  on_device.accepts = reinterpret_cast<const uint8_t*>(base + accepts);
  on_device.end_ids = base + end_ids;
  on_device.stacks.next = base + next;
  on_device.stacks.more = base + more;
  on_device.stacks.to_end = base + to_end;
  on_device.stacks.moves =
      reinterpret_cast<const PushdownTables::Move*>(base + moves);
  on_device.stacks.pushed = base + pushed;
  if (stacks.counters != nullptr) {
    on_device.stacks.counters =
        reinterpret_cast<const PushdownTables::Counter*>(base + counters);
  }
  on_device.stacks.limits = base + limits;
  on_device.stacks.places = nullptr;
  static std::atomic<uint32_t> num_made = 0;
  copy.constraint_.id = num_made.fetch_add(1, std::memory_order_relaxed);
  copy.inside_ = std::move(inside);
  copy.first_ = std::move(first);
  return copy;
}

}  // namespace espalier
