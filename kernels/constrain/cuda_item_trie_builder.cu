#include <thrust/copy.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/transform_scan.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/cuda.h"
#include "base/status.h"
#include "kernels/constrain/cuda_item_trie_builder.h"

namespace espalier {
namespace {

using Node = ItemTrie::Node;

// Device memory in order of a stream, from a pool that keeps it: so nothing
// waits for the device, which runs steps meanwhile. Also an allocator of
// Thrust.
class StreamMemory {
 public:
  using value_type = char;

  static absl::StatusOr<StreamMemory> Create(cudaStream_t stream) {
    StreamMemory memory(stream);
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    RETURN_IF_CUDA_ERROR(cudaGetDevice(&props.location.id));
    RETURN_IF_CUDA_ERROR(cudaMemPoolCreate(&memory.pool_, &props));
    uint64_t keeps = UINT64_MAX;
    RETURN_IF_CUDA_ERROR(cudaMemPoolSetAttribute(
        memory.pool_, cudaMemPoolAttrReleaseThreshold, &keeps));
    return memory;
  }
  StreamMemory(StreamMemory&& other) noexcept
      : stream_(other.stream_), pool_(std::exchange(other.pool_, nullptr)) {}
  StreamMemory& operator=(StreamMemory&&) = delete;
  ~StreamMemory() {
    if (pool_ != nullptr) cudaMemPoolDestroy(pool_);
  }

  cudaStream_t stream() const { return stream_; }

  // Throws std::bad_alloc.
  char* allocate(size_t num_bytes) {
    void* memory = nullptr;
    const cudaError_t error =
        cudaMallocFromPoolAsync(&memory, num_bytes, pool_, stream_);
    if (error == cudaSuccess) return static_cast<char*>(memory);
    (void)CudaStatus(error, "cudaMallocFromPoolAsync");  // clears it
    throw std::bad_alloc();
  }
  void deallocate(char* memory, size_t /*num_bytes*/) {
    cudaFreeAsync(memory, stream_);
  }

 private:
  explicit StreamMemory(cudaStream_t stream) : stream_(stream) {}

  const cudaStream_t stream_;
  cudaMemPool_t pool_ = nullptr;
};

// An array of such memory, not initialised.
template <typename T>
class Array {
 public:
  Array() = default;
  // Throws std::bad_alloc.
  Array(StreamMemory* memory, size_t size)
      : elements_(reinterpret_cast<T*>(
                      memory->allocate(std::max<size_t>(size, 1) * sizeof(T))),
                  Free{memory->stream()}),
        size_(size) {}

  T* data() const { return elements_.get(); }
  size_t size() const { return size_; }
  size_t size_bytes() const { return size_ * sizeof(T); }

 private:
  struct Free {
    cudaStream_t stream = nullptr;
    void operator()(T* elements) const { cudaFreeAsync(elements, stream); }
  };
  std::unique_ptr<T, Free> elements_;
  size_t size_ = 0;
};

// The items, in any order.
struct Lists {
  const TokenId* tokens;
  const uint32_t* ends;

  __device__ uint32_t Begin(uint32_t item) const {
    return item == 0 ? 0 : ends[item - 1];
  }
  __device__ int32_t Length(uint32_t item) const {
    return static_cast<int32_t>(ends[item] - Begin(item));
  }
};

struct LengthOf {
  Lists lists;
  __device__ int32_t operator()(uint32_t item) const {
    return lists.Length(item);
  }
};

// Tokens, each plus 1, with 0 after the end of an item: keys are ordered as the
// items are.
struct KeyOf {
  Lists lists;
  int begin;  // first token of the item in the key
  int num_tokens;
  int token_bits;

  __device__ uint64_t operator()(uint32_t item) const {
    const TokenId* const tokens = lists.tokens + lists.Begin(item);
    const int length = lists.Length(item);
    uint64_t key = 0;
    for (int i = begin; i < begin + num_tokens; ++i) {
      key = key << token_bits |
            (i < length ? static_cast<uint64_t>(tokens[i]) + 1 : 0);
    }
    return key;
  }
};

// The items in ascending order.
struct Sorted {
  const uint32_t* items;
  const int32_t* lengths;
  const int32_t* common;  // tokens that an item begins with as the one before
  int64_t num_items;

  // True if the item has a node on `level` that the one before has not.
  __device__ bool IsNew(int64_t i, int level) const {
    return common[i] < level && level <= lengths[i];
  }
};

struct IsNewOn {
  Sorted sorted;
  int level;
  __device__ int32_t operator()(int64_t i) const {
    return sorted.IsNew(i, level) ? 1 : 0;
  }
};

constexpr int kThreads = 256;

int NumBlocks(int64_t size) {
  return static_cast<int>((size + kThreads - 1) / kThreads);
}

__device__ int64_t ThreadInGrid() {
  return int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

__global__ void CompareItems(Lists lists, const uint32_t* items,
                             int64_t num_items, int32_t* lengths,
                             int32_t* common) {
  const int64_t i = ThreadInGrid();
  if (i >= num_items) return;
  const int length = lists.Length(items[i]);
  lengths[i] = length;
  int same = 0;
  if (i > 0) {
    const TokenId* const tokens = lists.tokens + lists.Begin(items[i]);
    const TokenId* const before = lists.tokens + lists.Begin(items[i - 1]);
    const int most = min(length, lists.Length(items[i - 1]));
    while (same < most && tokens[same] == before[same]) ++same;
  }
  common[i] = same;
}

// A byte for each node, 0 or 1.
struct NodeBytes {
  uint8_t* inner;
  uint8_t* first;
  uint8_t* ends;
};

struct LevelNodes {
  Node begin;
  // [num_items]  Nodes up to that of the item, if it is so long.
  const int32_t* places;

  __device__ Node Of(int64_t i) const { return begin + places[i] - 1; }
};

// Writes the nodes of one level.
__global__ void WriteLevel(Lists lists, Sorted sorted, int level,
                           LevelNodes above, LevelNodes nodes, TokenId* tokens,
                           NodeBytes bytes, uint8_t* before_last) {
  const int64_t i = ThreadInGrid();
  if (i >= sorted.num_items || !sorted.IsNew(i, level)) return;
  const Node node = nodes.Of(i);
  tokens[node] = lists.tokens[lists.Begin(sorted.items[i]) +
                              static_cast<uint32_t>(level) - 1];
  bytes.ends[node] = sorted.lengths[i] == level ? 1 : 0;
  // The first node of an item that is new has siblings before it, unless the
  // item before ended at its parent.
  const int before = i == 0 ? 0 : sorted.lengths[i - 1];
  const bool is_first =
      sorted.common[i] < level - 1 || before == sorted.common[i];
  bytes.first[node] = is_first ? 1 : 0;
  if (!is_first) return;
  const Node parent = level == 1 ? 0 : above.Of(i);
  bytes.inner[parent] = 1;
  if (level > 1) before_last[tokens[parent]] = 1;
}

// Packs bytes to bits, a word for each thread. `bytes` begins at a multiple of
// 8 bytes, and is 0 up to the end of the last word.
__global__ void PackBits(const uint8_t* bytes, int64_t num_words,
                         uint64_t* words) {
  const int64_t w = ThreadInGrid();
  if (w >= num_words) return;
  const auto* const eights = reinterpret_cast<const uint64_t*>(bytes) + w * 8;
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i) {
    // The lowest bit of each byte, gathered in the highest byte.
    word |= (eights[i] * 0x0102040810204080u >> 56) << (i * 8);
  }
  words[w] = word;
}

struct IsSet {
  __device__ bool operator()(uint8_t byte) const { return byte != 0; }
};

struct AsNumber {
  __device__ int32_t operator()(uint8_t byte) const { return byte; }
};

// Sizes of the families of a level, by the places where they begin.
__global__ void MeasureFamilies(const int32_t* begins, int32_t num_families,
                                int32_t num_nodes, const int32_t* ends_up_to,
                                int32_t* num_children, int32_t* num_ends) {
  const int64_t f = ThreadInGrid();
  if (f >= num_families) return;
  const int32_t begin = begins[f];
  const int32_t end = f + 1 < num_families ? begins[f + 1] : num_nodes;
  num_children[f] = end - begin;
  num_ends[f] = ends_up_to[end - 1] - (begin == 0 ? 0 : ends_up_to[begin - 1]);
}

class Builder {
 public:
  Builder(std::span<const TokenId> tokens, std::span<const uint32_t> ends,
          cudaStream_t stream, StreamMemory* memory)
      : num_tokens_(tokens.size()),
        num_items_(static_cast<int64_t>(ends.size())),
        stream_(stream),
        memory_(*memory),
        host_tokens_(tokens),
        host_ends_(ends) {}

  absl::StatusOr<ItemTrieArrays> Build() {
    RETURN_IF_ERROR(Upload());
    RETURN_IF_ERROR(Sort());
    RETURN_IF_ERROR(Compare());
    RETURN_IF_ERROR(NumberNodes());
    RETURN_IF_ERROR(Download());
    return std::move(trie_);
  }

 private:
  template <typename T>
  Array<T> Take(size_t size) const {
    return Array<T>(&memory_, size);
  }
  auto Policy() const { return thrust::cuda::par_nosync(memory_).on(stream_); }
  Lists lists() const { return {tokens_.data(), ends_.data()}; }
  Sorted sorted() const {
    return {items_.data(), lengths_.data(), common_.data(), num_items_};
  }

  absl::Status Upload() {
    tokens_ = Take<TokenId>(num_tokens_);
    ends_ = Take<uint32_t>(num_items_);
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(tokens_.data(), host_tokens_.data(),
                                         host_tokens_.size_bytes(),
                                         cudaMemcpyHostToDevice, stream_));
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(ends_.data(), host_ends_.data(),
                                         host_ends_.size_bytes(),
                                         cudaMemcpyHostToDevice, stream_));
    return absl::OkStatus();
  }

  absl::Status Sort() {
    const thrust::counting_iterator<uint32_t> all(0);
    max_length_ = thrust::transform_reduce(Policy(), all, all + num_items_,
                                           LengthOf{lists()}, 0,
                                           thrust::maximum<int32_t>());
    if (max_length_ > kMaxCudaItemTokens) {
      return absl::OutOfRangeError("items are too long to be sorted here");
    }
    max_token_ =
        thrust::reduce(Policy(), tokens_.data(), tokens_.data() + num_tokens_,
                       TokenId{-1}, thrust::maximum<TokenId>());
    items_ = Take<uint32_t>(num_items_);
    const auto keys = Take<uint64_t>(num_items_);
    thrust::sequence(Policy(), items_.data(), items_.data() + num_items_);
    const int token_bits =
        std::max(1, static_cast<int>(
                        std::bit_width(static_cast<uint64_t>(max_token_) + 1)));
    const int most = std::min(64 / token_bits, std::max(1, max_length_));
    // A stable sort by the last tokens first.
    for (int begin = (max_length_ - 1) / most * most; begin >= 0;
         begin -= most) {
      thrust::transform(Policy(), items_.data(), items_.data() + num_items_,
                        keys.data(), KeyOf{lists(), begin, most, token_bits});
      thrust::stable_sort_by_key(Policy(), keys.data(),
                                 keys.data() + num_items_, items_.data());
    }
    return absl::OkStatus();
  }

  absl::Status Compare() {
    lengths_ = Take<int32_t>(num_items_);
    common_ = Take<int32_t>(num_items_);
    CompareItems<<<NumBlocks(num_items_), kThreads, 0, stream_>>>(
        lists(), items_.data(), num_items_, lengths_.data(), common_.data());
    RETURN_IF_CUDA_ERROR(cudaGetLastError());
    return absl::OkStatus();
  }

  absl::Status NumberNodes() {
    const size_t most_nodes = num_tokens_ + 1;
    const size_t num_bytes = ItemTrieArrays::NumWords(most_nodes) * 64;
    node_tokens_ = Take<TokenId>(most_nodes);
    for (Array<uint8_t>* bytes : {&inner_, &first_, &are_ends_}) {
      *bytes = Take<uint8_t>(num_bytes);
      RETURN_IF_CUDA_ERROR(
          cudaMemsetAsync(bytes->data(), 0, num_bytes, stream_));
    }
    RETURN_IF_CUDA_ERROR(cudaMemsetAsync(node_tokens_.data(), 0,
                                         sizeof(TokenId), stream_));  // root
    before_last_ = Take<uint8_t>(max_token_ + 1);
    RETURN_IF_CUDA_ERROR(
        cudaMemsetAsync(before_last_.data(), 0, before_last_.size(), stream_));
    auto above = Take<int32_t>(num_items_);
    auto places = Take<int32_t>(num_items_);
    trie_.levels.push_back({.num_nodes = 1});
    Node above_begin = 0;
    num_nodes_ = 1;
    for (int level = 1; level <= max_length_; ++level) {
      const thrust::counting_iterator<int64_t> all(0);
      thrust::transform_inclusive_scan(Policy(), all, all + num_items_,
                                       places.data(), IsNewOn{sorted(), level},
                                       thrust::plus<int32_t>());
      Node num_nodes = 0;
      RETURN_IF_CUDA_ERROR(
          cudaMemcpyAsync(&num_nodes, places.data() + num_items_ - 1,
                          sizeof(num_nodes), cudaMemcpyDeviceToHost, stream_));
      WriteLevel<<<NumBlocks(num_items_), kThreads, 0, stream_>>>(
          lists(), sorted(), level, {above_begin, above.data()},
          {num_nodes_, places.data()}, node_tokens_.data(),
          {inner_.data(), first_.data(), are_ends_.data()},
          before_last_.data());
      RETURN_IF_CUDA_ERROR(cudaGetLastError());
      RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_));
      RETURN_IF_ERROR(CountFamilies(num_nodes));
      above_begin = num_nodes_;
      num_nodes_ += num_nodes;
      std::swap(above, places);
    }
    return absl::OkStatus();
  }

  // Appends the level of the next `num_nodes` nodes.
  absl::Status CountFamilies(Node num_nodes) {
    const uint8_t* const first = first_.data() + num_nodes_;
    const uint8_t* const ends = are_ends_.data() + num_nodes_;
    // A family has a node at least.
    const auto begins = Take<int32_t>(num_nodes);
    const thrust::counting_iterator<int32_t> all(0);
    const auto num_families =
        static_cast<int32_t>(thrust::copy_if(Policy(), all, all + num_nodes,
                                             first, begins.data(), IsSet()) -
                             begins.data());
    const auto ends_up_to = Take<int32_t>(num_nodes);
    thrust::inclusive_scan(
        Policy(), thrust::make_transform_iterator(ends, AsNumber()),
        thrust::make_transform_iterator(ends + num_nodes, AsNumber()),
        ends_up_to.data());
    const auto num_children = Take<int32_t>(num_families);
    const auto num_ends = Take<int32_t>(num_families);
    MeasureFamilies<<<NumBlocks(num_families), kThreads, 0, stream_>>>(
        begins.data(), num_families, num_nodes, ends_up_to.data(),
        num_children.data(), num_ends.data());
    RETURN_IF_CUDA_ERROR(cudaGetLastError());
    ItemTrieArrays::Level& level = trie_.levels.emplace_back();
    level.num_nodes = num_nodes;
    RETURN_IF_ERROR(Count(num_children, &level.num_children));
    return Count(num_ends, &level.num_ends);
  }

  // Sorts the numbers, and counts how often each comes.
  absl::Status Count(const Array<int32_t>& numbers,
                     ItemTrieArrays::Numbers* counts) {
    int32_t* const begin = numbers.data();
    int32_t* const end = begin + numbers.size();
    thrust::sort(Policy(), begin, end, thrust::greater<int32_t>());
    const auto different = Take<int32_t>(numbers.size());
    const auto times = Take<int32_t>(numbers.size());
    const auto num_different =
        thrust::reduce_by_key(Policy(), begin, end,
                              thrust::constant_iterator<int32_t>(1),
                              different.data(), times.data())
            .first -
        different.data();
    std::vector<int32_t> host_different(num_different);
    std::vector<int32_t> host_times(num_different);
    RETURN_IF_ERROR(Copy(different, &host_different));
    RETURN_IF_ERROR(Copy(times, &host_times));
    RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_));
    for (size_t i = 0; i < host_times.size(); ++i) {
      if (host_different[i] == 0) continue;
      counts->emplace_back(host_different[i], host_times[i]);
    }
    return absl::OkStatus();
  }

  // As many elements as `to` has.
  template <typename T>
  absl::Status Copy(const Array<T>& from, std::vector<T>* to) const {
    if (to->empty()) return absl::OkStatus();
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(to->data(), from.data(),
                                         to->size() * sizeof(T),
                                         cudaMemcpyDeviceToHost, stream_));
    return absl::OkStatus();
  }

  absl::Status Download() {
    const size_t num_words = ItemTrieArrays::NumWords(num_nodes_);
    const auto words = Take<uint64_t>(num_words);
    for (const auto& [bytes, bits] :
         {std::pair(&inner_, &trie_.inner), std::pair(&first_, &trie_.first),
          std::pair(&are_ends_, &trie_.ends)}) {
      PackBits<<<NumBlocks(num_words), kThreads, 0, stream_>>>(
          bytes->data(), static_cast<int64_t>(num_words), words.data());
      RETURN_IF_CUDA_ERROR(cudaGetLastError());
      bits->resize(num_words);
      RETURN_IF_ERROR(Copy(words, bits));
    }
    trie_.tokens.resize(num_nodes_);
    RETURN_IF_ERROR(Copy(node_tokens_, &trie_.tokens));
    std::vector<uint8_t> before_last(before_last_.size());
    RETURN_IF_ERROR(Copy(before_last_, &before_last));
    RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_));
    trie_.before_last.assign(before_last.begin(), before_last.end());
    return absl::OkStatus();
  }

  const size_t num_tokens_;
  const int64_t num_items_;
  const cudaStream_t stream_;
  StreamMemory& memory_;
  const std::span<const TokenId> host_tokens_;
  const std::span<const uint32_t> host_ends_;
  int32_t max_length_ = 0;
  TokenId max_token_ = -1;
  Array<TokenId> tokens_;
  Array<uint32_t> ends_;
  Array<uint32_t> items_;   // [num_items]  ascending
  Array<int32_t> lengths_;  // [num_items]  of these
  Array<int32_t> common_;   // [num_items]
  Node num_nodes_ = 0;      // so far
  Array<TokenId> node_tokens_;
  Array<uint8_t> inner_;
  Array<uint8_t> first_;
  Array<uint8_t> are_ends_;
  Array<uint8_t> before_last_;
  ItemTrieArrays trie_;
};

}  // namespace

absl::StatusOr<ItemTrieArrays> CudaBuildItemTrie(
    std::span<const TokenId> tokens, std::span<const uint32_t> ends,
    cudaStream_t stream) {
  if (tokens.empty()) {
    return ItemTrieArrays{.tokens = {0},
                          .inner = {0},
                          .first = {0},
                          .ends = {0},
                          .levels = {{.num_nodes = 1}}};
  }
  try {
    ASSIGN_OR_RETURN(StreamMemory memory, StreamMemory::Create(stream));
    return Builder(tokens, ends, stream, &memory).Build();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "sorting a catalogue of items: no device memory");
  } catch (const std::exception& error) {  // from Thrust
    return absl::InternalError(error.what());
  }
}

}  // namespace espalier
