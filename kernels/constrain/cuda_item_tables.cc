#include "kernels/constrain/cuda_item_tables.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "base/cuda.h"
#include "base/cuda_memory.h"
#include "base/status.h"

namespace espalier {
namespace {

// Arrays that are copied to one piece of device memory, from where they are:
// those of a catalogue are large.
class ArrayCopies {
 public:
  // `*array`, in host memory, is to be one in device memory.
  template <typename T>
  void Add(const T** array, int64_t size) {
    copies_.push_back({.from = *array,
                       .num_bytes = sizeof(T) * static_cast<size_t>(size),
                       .offset = num_bytes_,
                       .array = array,
                       .set = [](void* to, const uint8_t* copy) {
                         *static_cast<const T**>(to) =
                             reinterpret_cast<const T*>(copy);
                       }});
    // There are 16 bytes behind each.
    num_bytes_ += (copies_.back().num_bytes + 31) / 16 * 16;
  }

  // Returns when the arrays are there.
  absl::StatusOr<DeviceBuffer<uint8_t>> Upload(const char* what) const {
    ASSIGN_OR_RETURN(DeviceBuffer<uint8_t> buffer,
                     TakeDeviceMemory<uint8_t>(what, num_bytes_));
    for (const OneCopy& copy : copies_) {
      uint8_t* const to = buffer.data() + copy.offset;
      copy.set(copy.array, to);
      if (copy.num_bytes == 0) continue;
      RETURN_IF_CUDA_ERROR(
          cudaMemcpy(to, copy.from, copy.num_bytes, cudaMemcpyHostToDevice));
    }
    // Streams that do not wait for others read it.
    RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(nullptr));
    return buffer;
  }

 private:
  struct OneCopy {
    const void* from;
    size_t num_bytes;
    size_t offset;
    void* array;
    void (*set)(void* array, const uint8_t* copy);
  };

  std::vector<OneCopy> copies_;
  size_t num_bytes_ = 0;
};

void AddBits(RankBitsView* bits, ArrayCopies* copies) {
  copies->Add(&bits->words, bits->num_words);
  copies->Add(&bits->counts, bits->num_blocks + 1);
  copies->Add(&bits->places, bits->num_places);
}

}  // namespace

absl::StatusOr<CudaItemTrie> CudaItemTrie::Create(const ItemTrie& trie) {
  CudaItemTrie copy;
  copy.trie_ = trie;
  ArrayCopies copies;
  copies.Add(&copy.trie_.tokens, trie.num_nodes);
  AddBits(&copy.trie_.inner, &copies);
  AddBits(&copy.trie_.first, &copies);
  AddBits(&copy.trie_.ends, &copies);
  copies.Add(&copy.trie_.level_begins, trie.max_length + 2);
  ASSIGN_OR_RETURN(copy.bytes_, copies.Upload("catalogues of items"));
  return copy;
}

absl::StatusOr<CudaItemTables> CudaItemTables::Create(
    const ItemTables& tables, std::shared_ptr<const CudaItemTrie> trie) {
  CudaItemTables copy;
  copy.tables_ = tables;
  copy.tables_.trie = trie->trie();
  ArrayCopies copies;
  copies.Add(&copy.tables_.excluded, tables.num_excluded);
  copies.Add(&copy.tables_.above, tables.num_above);
  copies.Add(&copy.tables_.end_ids, tables.num_end_ids);
  if (tables.has_short_items()) AddBits(&copy.tables_.too_short.bits, &copies);
  ASSIGN_OR_RETURN(copy.bytes_, copies.Upload("excluded items"));
  copy.trie_ = std::move(trie);
  return copy;
}

}  // namespace espalier
