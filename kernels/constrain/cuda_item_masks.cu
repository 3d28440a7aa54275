// A warp makes a mask: it clears the words, finds the children of the state,
// and reads their tokens, which are adjacent and ascending, four by a lane. So
// the bits of a lane are mostly in one word or two, and are set at once. Where
// there are few masks, several warps share one, each with some of its tiles.
//
// Most of the time is that of reads that depend on each other, some ten from a
// job to its tokens: the words and counts of rank and select.
#include <algorithm>

#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/constrain/cuda_item_masks.h"
#include "kernels/constrain/token_masks.h"

namespace espalier {
namespace {

constexpr int kWarpSize = 32;
constexpr int kTileWords = kMaskTileTokens / 32;

struct ItemMaskPolicy {
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / kWarpSize;
  // Enough warps for 5,000 masks on 132 multiprocessors.
  static constexpr int kBlocksPerMultiprocessor = 5;
  // Reads of four tokens that a lane has under way.
  static constexpr int kReads = 4;
};

__device__ int Lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }

// The part of masks that a warp makes: words [begin_word, end_word).
struct MaskPart {
  CudaTokenMasks masks = {};  // the first words are those of the job
  int begin_word = 0;
  int end_word = 0;
  int num_words = 0;  // that the whole mask has

  __device__ void Clear() const {
    for (int w = begin_word + Lane() * 4; w < end_word; w += kWarpSize * 4) {
      *reinterpret_cast<uint4*>(masks.legal + w) = {};
      *reinterpret_cast<uint4*>(masks.continuing + w) = {};
    }
  }
  // Returns the nodes of an ascending range whose tokens are in this part.
  __device__ ItemTrie::Range Within(const ItemTrie& trie,
                                    ItemTrie::Range children) const {
    const TokenId* const tokens = trie.tokens + children.begin;
    ItemTrie::Range within = children;
    if (begin_word > 0) {
      within.begin +=
          ItemTrie::UpperBound(tokens, children.size(), begin_word * 32 - 1);
    }
    if (end_word < num_words) {
      within.end =
          children.begin +
          ItemTrie::UpperBound(tokens, children.size(), end_word * 32 - 1);
    }
    return within;
  }
  __device__ bool Has(TokenId token) const {
    return token / 32 >= begin_word && token / 32 < end_word;
  }
};

// Bits of ascending tokens, set word by word.
class AscendingBits {
 public:
  __device__ explicit AscendingBits(uint32_t* mask) : mask_(mask) {}

  __device__ void Add(TokenId token) {
    if (token / 32 != word_) {
      Set();
      word_ = token / 32;
      bits_ = 0;
    }
    bits_ |= 1u << (token % 32);
  }
  __device__ void Set() const {
    if (bits_ != 0) atomicOr(mask_ + word_, bits_);
  }

 private:
  uint32_t* mask_;
  int word_ = -1;
  uint32_t bits_ = 0;
};

// One warp: sets the bits of adjacent nodes, all of which are legal. Those that
// have children continue.
__device__ void SetBits(const ItemTrie& trie, ItemTrie::Range nodes,
                        const CudaTokenMasks& masks) {
  constexpr int kReads = ItemMaskPolicy::kReads;
  constexpr int kStride = kWarpSize * 4;
  // From a multiple of four on: the first ones may be those of others.
  const int before = nodes.begin % 4;
  const int end = before + nodes.size();
  const TokenId* const tokens = trie.tokens + nodes.begin - before;
  for (int first = Lane() * 4; first < end; first += kReads * kStride) {
    int4 read[kReads];
#pragma unroll
    for (int r = 0; r < kReads; ++r) {
      const int at = first + r * kStride;
      if (at < end) read[r] = *reinterpret_cast<const int4*>(tokens + at);
    }
#pragma unroll
    for (int r = 0; r < kReads; ++r) {
      const int at = first + r * kStride;
      const TokenId four[] = {read[r].x, read[r].y, read[r].z, read[r].w};
      AscendingBits legal(masks.legal);
      AscendingBits continuing(masks.continuing);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (at + i < before || at + i >= end) continue;
        legal.Add(four[i]);
        if (trie.has_children(nodes.begin - before + at + i)) {
          continuing.Add(four[i]);
        }
      }
      legal.Set();
      continuing.Set();
    }
  }
}

// One warp: sets the bits of those of a state's children `nodes` that may come,
// and of the end ids if these may. A call, as code for this inline takes
// registers of the states that need none of it.
__device__ __noinline__ void SetLegalBits(const ItemTables& tables,
                                          int32_t state, int32_t level,
                                          int32_t room, ItemTrie::Range nodes,
                                          MaskPart part) {
  const bool is_free = tables.IsFree(state, level, room);
  const bool fits_all = tables.FitsAll(level, room);
  for (ItemTrie::Node node = nodes.begin + Lane(); node < nodes.end;
       node += kWarpSize) {
    if (!is_free && !tables.IsLegalChild(node, level + 1, room - 1, fits_all)) {
      continue;
    }
    const TokenId token = tables.trie.tokens[node];
    const uint32_t bit = 1u << (token % 32);
    atomicOr(part.masks.legal + token / 32, bit);
    if (!tables.Ends(node, room - 1)) {
      atomicOr(part.masks.continuing + token / 32, bit);
    }
  }
  if (!tables.AllowsEndId(state, level) || tables.Ends(state, room)) return;
  for (int32_t i = Lane(); i < tables.num_end_ids; i += kWarpSize) {
    const TokenId id = tables.end_ids[i];
    if (part.Has(id)) atomicOr(part.masks.legal + id / 32, 1u << (id % 32));
  }
}

// One warp: makes its part of the masks of a state.
__device__ void MakeMask(const ItemTables& tables, int32_t state, int32_t room,
                         const MaskPart& part) {
  part.Clear();
  if (!tables.IsNode(state) || room < 1) return;
  const ItemTrie& trie = tables.trie;
  const ItemTrie::Range children = trie.Children(state);
  if (children.empty()) return;
  const int32_t level = trie.LevelOf(state);
  const ItemTrie::Range within = part.Within(trie, children);
  // Bits are set by other lanes than those that clear the words.
  __syncwarp();
  const bool may_end = tables.num_end_ids > 0 && trie.ends[state];
  if (tables.IsFree(state, level, room) && !may_end) {
    SetBits(trie, within, part.masks);
  } else {
    SetLegalBits(tables, state, level, room, within, part);
  }
}

__global__ __launch_bounds__(
    ItemMaskPolicy::kThreads,
    ItemMaskPolicy::
        kBlocksPerMultiprocessor) void MakeItemMasks(const CudaMaskInputs in,
                                                     const CudaTokenMasks
                                                         masks) {
  LaunchDependents();
  GridDependencyWait();
  const int num_jobs = in.cache->num_item_jobs;
  if (num_jobs == 0) return;
  const int num_words = NumMaskWords(in.vocab_size);
  const int num_tiles = num_words / kTileWords;
  const int num_warps = static_cast<int>(gridDim.x) * ItemMaskPolicy::kWarps;
  const int max_parts = min(max(num_warps / num_jobs, 1), num_tiles);
  const int part_tiles = (num_tiles + max_parts - 1) / max_parts;
  const int num_parts = (num_tiles + part_tiles - 1) / part_tiles;
  const int part_words = part_tiles * kTileWords;
  const int warp = static_cast<int>(blockIdx.x) * ItemMaskPolicy::kWarps +
                   static_cast<int>(threadIdx.x) / kWarpSize;
  for (int i = warp; i < num_jobs * num_parts; i += num_warps) {
    const CudaMaskJob job = in.jobs[2 * in.num_rows - 1 - i / num_parts];
    const int begin_word = static_cast<int>(i % num_parts) * part_words;
    MakeMask(in.constraints[job.constraint].tables.items, job.state, job.room,
             {.masks = {masks.legal + size_t(job.mask) * num_words,
                        masks.continuing + size_t(job.mask) * num_words},
              .begin_word = begin_word,
              .end_word = min(begin_word + part_words, num_words),
              .num_words = num_words});
  }
}

}  // namespace

absl::Status CudaMakeItemMasks(const CudaMaskInputs& inputs,
                               const CudaTokenMasks& masks,
                               const CudaDevice& device, cudaStream_t stream) {
  if (inputs.vocab_size < 1 || inputs.num_rows < 1) {
    return InvalidArgument("cannot make masks of ", inputs.num_rows,
                           " rows of ", inputs.vocab_size, " tokens");
  }
  const int num_tiles = NumMaskWords(inputs.vocab_size) / kTileWords;
  const int64_t most_warps = int64_t{inputs.num_rows} * num_tiles;
  const int64_t blocks = std::min<int64_t>(
      (most_warps + ItemMaskPolicy::kWarps - 1) / ItemMaskPolicy::kWarps,
      ItemMaskPolicy::kBlocksPerMultiprocessor * device.num_sms);
  return Launch(MakeItemMasks,
                {.grid = dim3(static_cast<unsigned>(blocks)),
                 .block = dim3(ItemMaskPolicy::kThreads),
                 .dependency = GridDependency::kWritesEarlyRead},
                stream, inputs, masks);
}

}  // namespace espalier
