// Masks are made tile by tile: a block has the texts of 1,024 tokens in
// registers, as byte classes of one constraint, and makes that tile of one mask
// after the other. A lane walks four tokens at a time, so that their lookups
// overlap, and a warp stops as soon as all of its tokens are illegal: in a
// narrow state nearly all are after their first byte.
#include <algorithm>

#include "base/constraint_state.h"
#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/constrain/cuda_token_masks.h"
#include "kernels/constrain/token_masks.h"

namespace espalier {
namespace {

constexpr int kWarpSize = 32;

struct MaskPolicy {
  static constexpr int kThreads = 256;
  // Words of a mask that a warp makes, hence tokens of a lane.
  static constexpr int kWordsPerWarp = 4;
  // Masks divide the blocks of a tile, up to as many as fill the device.
  static constexpr int kBlocksPerMultiprocessor = 4;
};
static_assert(MaskPolicy::kThreads / kWarpSize * MaskPolicy::kWordsPerWarp *
                  kWarpSize ==
              kMaskTileTokens);

constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// A lane's tokens, one of each of the warp's words: the classes of their first
// bytes for a constraint.
class LaneTexts {
 public:
  static constexpr int kTokens = MaskPolicy::kWordsPerWarp;

  // Returns the lane's token of the warp's word `w`.
  __device__ static int TokenAt(int first_token, int w) {
    return first_token + w * kWarpSize +
           static_cast<int>(threadIdx.x) % kWarpSize;
  }
  __device__ int length(int w) const { return lengths_[w]; }  // bytes

  __device__ void Load(const TokenTexts& texts, const uint8_t* classes,
                       int first_token, int vocab_size) {
#pragma unroll
    for (int w = 0; w < kTokens; ++w) {
      const int token = TokenAt(first_token, w);
      lengths_[w] = 0;
      if (token >= vocab_size) continue;
      const int32_t begin = texts.indptr[token];
      lengths_[w] = texts.indptr[token + 1] - begin;
      const auto* const from =
          reinterpret_cast<const uint32_t*>(texts.bytes) + begin / 4;
      uint32_t last = from[0];
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        if (4 * i >= lengths_[w]) break;
        const uint32_t more = from[i + 1];
        const uint32_t bytes = __funnelshift_r(last, more, begin % 4 * 8);
        last = more;
        words_[w][i] = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          words_[w][i] |= uint32_t{classes[bytes >> (8 * j) & 0xFF]} << (8 * j);
        }
      }
    }
  }

  // One warp: walks the tokens from a node of a stack's level, as far as they
  // read bytes without calls, returns and counters. Sets a token's node to -1
  // if it is illegal or has no text, and reads[w] to the number of bytes that
  // led to it.
  __device__ void WalkLevel(const ConstraintTables& tables, int32_t start,
                            int32_t (&nodes)[kTokens],
                            int (&reads)[kTokens]) const {
    bool stops[kTokens];
#pragma unroll
    for (int w = 0; w < kTokens; ++w) {
      nodes[w] = lengths_[w] > 0 ? start : kNoConstraintState;
      reads[w] = 0;
      stops[w] = false;
    }
#pragma unroll
    for (int i = 0; i < 4 * kWords; ++i) {
      bool any = false;
#pragma unroll
      for (int w = 0; w < kTokens; ++w) {
        any |= !stops[w] && Continues(nodes, w, i);
      }
      if (!__any_sync(kAllLanes, any)) return;
#pragma unroll
      for (int w = 0; w < kTokens; ++w) {
        if (stops[w] || !Continues(nodes, w, i)) continue;
        const int byte_class = words_[w][i / 4] >> (i % 4 * 8) & 0xFF;
        const int32_t next =
            tables.stacks
                .next[int64_t{nodes[w]} * tables.num_classes + byte_class];
        stops[w] = next < PushdownTables::kNone;
        if (stops[w]) continue;
        nodes[w] = next;
        reads[w] = i + 1;
      }
    }
  }

  // One warp: walks the tokens from a state of the automaton. Negative: there
  // is no state after the text, or no text.
  __device__ void Walk(const ConstraintTables& tables, const TokenTexts& texts,
                       int first_token, int32_t start,
                       int32_t (&states)[kTokens]) const {
#pragma unroll
    for (int w = 0; w < kTokens; ++w) {
      states[w] = lengths_[w] > 0 ? start : kNoConstraintState;
    }
#pragma unroll
    for (int i = 0; i < 4 * kWords; ++i) {
      bool any = false;
#pragma unroll
      for (int w = 0; w < kTokens; ++w) any |= Continues(states, w, i);
      if (!__any_sync(kAllLanes, any)) return;
      int32_t next[kTokens];
#pragma unroll
      for (int w = 0; w < kTokens; ++w) {
        // A token that has ended loads, too, so that no load depends on a
        // branch.
        const int byte_class = words_[w][i / 4] >> (i % 4 * 8) & 0xFF;
        next[w] = tables.next[Continues(states, w, i)
                                  ? states[w] * tables.num_classes + byte_class
                                  : 0];
      }
#pragma unroll
      for (int w = 0; w < kTokens; ++w) {
        if (Continues(states, w, i)) states[w] = next[w];
      }
    }
#pragma unroll
    for (int w = 0; w < kTokens; ++w) {
      if (!Continues(states, w, 4 * kWords)) continue;
      const uint8_t* const bytes =
          texts.bytes + texts.indptr[TokenAt(first_token, w)];
#pragma unroll 1
      for (int i = 4 * kWords; Continues(states, w, i); ++i) {
        states[w] = tables.next[states[w] * tables.num_classes +
                                tables.classes[bytes[i]]];
      }
    }
  }

 private:
  static constexpr int kWords = 4;

  // True if the token has a byte `i`, and a state before it.
  __device__ bool Continues(const int32_t (&states)[kTokens], int w,
                            int i) const {
    return states[w] >= 0 && i < lengths_[w];
  }

  uint32_t words_[kTokens][kWords];
  int lengths_[kTokens];
};

// A block's tile of the masks, and a warp's words of it.
class MaskTile {
 public:
  static constexpr int kWords = MaskPolicy::kWordsPerWarp;

  __device__ explicit MaskTile(int vocab_size)
      : vocab_size_(vocab_size),
        first_word_(static_cast<int>(blockIdx.x) * (kMaskTileTokens / 32) +
                    static_cast<int>(threadIdx.x) / kWarpSize * kWords) {}

  __device__ int first_token() const { return first_word_ * 32; }
  // A lane's own word is that of its number; most lanes have none.
  __device__ static int Lane() {
    return static_cast<int>(threadIdx.x) % kWarpSize;
  }
  __device__ static bool has_own() { return Lane() < kWords; }
  __device__ int first_own_token() const { return first_token() + Lane() * 32; }
  // A lane's own words.
  struct Own {
    uint32_t legal = 0;
    uint32_t continuing = 0;

    // All lanes: adds the bits of the warp's word `w`.
    __device__ void Add(int w, bool is_legal, bool continues) {
      const uint32_t legal_word = __ballot_sync(kAllLanes, is_legal);
      const uint32_t continuing_word = __ballot_sync(kAllLanes, continues);
      if (Lane() != w) return;
      legal = legal_word;
      continuing = continuing_word;
    }
  };
  __device__ void Write(const CudaTokenMasks& masks, int mask,
                        const Own& own) const {
    if (!has_own()) return;
    const size_t word =
        size_t(mask) * NumMaskWords(vocab_size_) + first_word_ + Lane();
    masks.legal[word] = own.legal;
    masks.continuing[word] = own.continuing;
  }
  // Returns the texts of the tokens of a state, which `tokens()` then has.
  __device__ TokenTexts Load(const ConstraintTables& tables, int32_t state) {
    const TokenTexts texts =
        IsFirstToken(tables, state) ? tables.first : tables.inside;
    if (texts.bytes != loaded_ || tables.classes != loaded_classes_) {
      loaded_ = texts.bytes;
      loaded_classes_ = tables.classes;
      tokens_.Load(texts, tables.classes, first_token(), vocab_size_);
    }
    return texts;
  }
  __device__ const LaneTexts& tokens() const { return tokens_; }

 private:
  const int vocab_size_;
  const int first_word_;
  LaneTexts tokens_;
  const uint8_t* loaded_ = nullptr;  // the bytes and the classes of tokens_
  const uint8_t* loaded_classes_ = nullptr;
};

// Returns the bits of the end ids that are in a word.
__device__ uint32_t EndBits(const ConstraintTables& tables, int first_token) {
  uint32_t bits = 0;
#pragma unroll 1
  for (int i = 0; i < tables.num_end_ids; ++i) {
    const unsigned bit = tables.end_ids[i] - first_token;
    if (bit < 32) bits |= 1u << bit;
  }
  return bits;
}

__device__ void AddJob(const CudaMaskInputs& in, const CudaMaskJob& job) {
  in.jobs[atomicAdd(&in.cache->num_jobs, 1)] = job;
}

// Returns the index by which arrays [2, num_places] have a beam that feeds a
// position.
__device__ int EntryOf(const CudaMaskInputs& in, int beam, int position) {
  return (position % 2 != 0 ? in.num_places : 0) + beam;
}

// Returns the place of a row of texts with stacks.
__device__ const PushdownPlace* PlaceOf(const CudaMaskInputs& in, int row) {
  const CudaMaskRow place = in.rows[row];
  if (place.beam < 0) {
    return reinterpret_cast<const PushdownPlace*>(in.frames + place.frame);
  }
  return in.places +
         EntryOf(in, place.beam, in.positions[in.logits_tokens[row]]);
}

__device__ void AddPushdownJob(const CudaMaskInputs& in,
                               const CudaPushdownJob& job) {
  in.pushdown_jobs[atomicAdd(&in.cache->num_pushdown_jobs, 1)] = job;
}

// Needs of kept masks are below this.
constexpr int32_t kMaxKeptRoom = 1 << 30;
// Entries of the hash table that a row looks at.
constexpr int kMaxProbes = 16;

// The values that the mask of a place depends on, but for the room.
struct PlaceKey {
  uint32_t constraint;
  int32_t state;
  int32_t count;
  const PushdownPlace* place;

  __device__ uint32_t Hash() const {
    uint32_t hash = 2166136261u;
    const auto add = [&](uint32_t value) {
      hash = (hash ^ value) * 0x9E3779B1u;
      hash ^= hash >> 15;
    };
    add(constraint);
    add(state);
    add(count);
    for (int i = 0; i < place->height; ++i) add(place->frames[i].state);
    return hash;
  }
  __device__ bool Equals(const PlaceKey& other) const {
    if (constraint != other.constraint || state != other.state ||
        count != other.count || place->height != other.place->height) {
      return false;
    }
    for (int i = 0; i < place->height; ++i) {
      if (place->frames[i].state != other.place->frames[i].state) return false;
    }
    return true;
  }
  __device__ bool Equals(const CudaKeptPlace& kept) const {
    if (constraint != kept.constraint || state != kept.state ||
        count != kept.count || place->height != kept.height) {
      return false;
    }
    for (int i = 0; i < place->height; ++i) {
      if (place->frames[i].state != kept.frames[i]) return false;
    }
    return true;
  }
  // All but the entry.
  __device__ void Write(CudaKeptPlace* kept) const {
    kept->need = -1;
    kept->constraint = constraint;
    kept->state = state;
    kept->count = count;
    kept->height = place->height;
    for (int i = 0; i < place->height; ++i) {
      kept->frames[i] = place->frames[i].state;
    }
  }
};

// REQUIRES: the place has tokens.
__device__ PlaceKey KeyOf(const CudaMaskInputs& in, int row) {
  const CudaConstraint& constraint = in.constraints[in.rows[row].constraint];
  const PushdownPlace* const place = PlaceOf(in, row);
  return {constraint.id, place->state,
          SimilarCount(constraint.tables.stacks,
                       AutomatonState(constraint.tables, place->state),
                       place->count),
          place};
}

// Makes the mask of a row's place a job that is kept, if there is a place.
//   kept  its entry, which the row has taken
__device__ void KeepPlace(const CudaMaskInputs& in, int row,
                          const PlaceKey& key, int first_cached,
                          CudaKeptPlace* kept) {
  const int place = atomicAdd(&in.cache->num_taken, 1);
  if (place >= in.num_cached_masks) {
    atomicExch(&kept->entry, 0);
    return;
  }
  key.Write(kept);
  atomicAdd(&kept->entry, static_cast<unsigned long long>(place) << 16);
  AddPushdownJob(
      in, {in.rows[row].constraint, kAnyRoom, first_cached + place,
           static_cast<int>(kept - in.kept_places), key.place, key.count});
}

// Returns the kept mask of a row with a stack, if it was made before this step
// and holds with this room; else -1. It becomes a job if it is not there.
//   key  of the row
__device__ int FindKeptPlace(const CudaMaskInputs& in, int row, int32_t room,
                             uint32_t epoch, const PlaceKey& key,
                             int first_cached) {
  const int num_probes = min(in.num_kept_places, kMaxProbes);
  unsigned index = num_probes > 0 ? key.Hash() % in.num_kept_places : 0;
  for (int probe = 0; probe < num_probes; ++probe) {
    CudaKeptPlace* const kept = in.kept_places + index;
    unsigned long long entry =
        *static_cast<volatile unsigned long long*>(&kept->entry);
    if (entry >> 32 != epoch) {
      const unsigned long long mine = static_cast<unsigned long long>(epoch)
                                          << 32 |
                                      static_cast<unsigned>(row + 1);
      const unsigned long long found = atomicCAS(&kept->entry, entry, mine);
      if (found == entry) {
        KeepPlace(in, row, key, first_cached, kept);
        return -1;
      }
      entry = found;
      if (entry >> 32 != epoch) return -1;  // a row that found no place
    }
    // A row that takes the entry in this step may not have written it yet.
    const int owner = static_cast<int>(entry & 0xFFFF) - 1;
    if (owner < 0 && key.Equals(*kept)) {
      return room >= kept->need
                 ? first_cached + static_cast<int>(entry >> 16 & 0xFFFF)
                 : -1;
    }
    if (owner >= 0 && key.Equals(KeyOf(in, owner))) return -1;
    index =
        index + 1 == static_cast<unsigned>(in.num_kept_places) ? 0 : index + 1;
  }
  return -1;
}

// Returns the place of the mask of a row with a stack.
__device__ int FindPushdownMask(const CudaMaskInputs& in, int row, int32_t room,
                                uint32_t epoch, int first_cached) {
  const int constraint = in.rows[row].constraint;
  const PushdownPlace* const place = PlaceOf(in, row);
  if (HasTokens(in.constraints[constraint].tables, place->state) && room >= 1 &&
      room < kMaxKeptRoom) {
    const int kept =
        FindKeptPlace(in, row, room, epoch, KeyOf(in, row), first_cached);
    if (kept >= 0) return kept;
  }
  AddPushdownJob(in, {constraint, room, row, -1, place, place->count});
  return row;
}

__device__ void AddItemJob(const CudaMaskInputs& in, const CudaMaskJob& job) {
  const int before = atomicAdd(&in.cache->num_item_jobs, 1);
  in.jobs[2 * in.num_rows - 1 - before] = job;
}

// Returns the place of the kept mask of a state, which becomes a job if it is
// not there; -1 if there is no place.
//   entry   CudaConstraint::masks of the state
//   before  what was there
__device__ int FindKept(const CudaMaskInputs& in, int constraint, int32_t state,
                        uint32_t epoch, unsigned long long* entry,
                        unsigned long long before, int first_cached) {
  const auto place_of = [&](unsigned long long value) {
    return first_cached + static_cast<int>(value & 0xFFFFFFFFu);
  };
  if (before >> 32 == epoch) return place_of(before);
  const int place = atomicAdd(&in.cache->num_taken, 1);
  if (place >= in.num_cached_masks) return -1;
  const unsigned long long mine = static_cast<unsigned long long>(epoch) << 32 |
                                  static_cast<unsigned>(place);
  const unsigned long long found = atomicCAS(entry, before, mine);
  if (found != before) return place_of(found);  // another row's
  AddJob(in, {constraint, state, kAnyRoom, place_of(mine)});
  return place_of(mine);
}

// Returns the state of a beam, and writes it if there are no stacks. Reads of a
// token depend on each other, one or two for each byte.
__device__ int32_t StateOf(const CudaMaskInputs& in,
                           const ConstraintTables& tables, int beam, int parent,
                           int position) {
  int32_t& state = in.states[EntryOf(in, beam, position)];
  if (tables.has_stacks()) return state;
  state = parent < 0 ? kNoConstraintState
                     : AdvanceState(
                           tables, in.states[EntryOf(in, parent, position + 1)],
                           in.tokens[beam]);
  return state;
}

// Returns the place of the mask of a row.
__device__ int FindMask(const CudaMaskInputs& in, int row, int first_cached) {
  // A step waits for the slowest row, and a row for its longest chain of loads:
  // those that do not depend on one another come first.
  const CudaMaskRow place = in.rows[row];
  const uint32_t epoch = in.cache->epoch;
  const int token = in.logits_tokens == nullptr ? 0 : in.logits_tokens[row];
  const int parent = place.beam < 0 ? -1 : in.parents[place.beam];
  const CudaConstraint& constraint = in.constraints[place.constraint];
  int32_t* const needs = constraint.needs;
  unsigned long long* const masks = constraint.masks;
  const int32_t max_need = constraint.max_need;
  int32_t state = place.state;
  int32_t room = place.room;
  if (place.beam >= 0) {
    const int position = in.positions[token];
    state = StateOf(in, constraint.tables, place.beam, parent, position);
    room -= position;
    if (state < 0) return row;  // no beam
  }
  if (constraint.tables.has_items()) {
    AddItemJob(in, {place.constraint, state, room, row});
    return row;
  }
  if (constraint.tables.has_stacks()) {
    return FindPushdownMask(in, row, room, epoch, first_cached);
  }
  if (HasTokens(constraint.tables, state) && room >= 1) {
    const int32_t need = *static_cast<volatile int32_t*>(needs + state);
    const unsigned long long before =
        *static_cast<volatile unsigned long long*>(masks + state);
    const bool is_near = room < max_need && room < need;
    const bool may_be_near = room < max_need && need < 0;
    if (!is_near) {
      const int kept = FindKept(in, place.constraint, state, epoch,
                                masks + state, before, first_cached);
      if (kept >= 0 && !may_be_near) return kept;
    }
  }
  AddJob(in, {place.constraint, state, room, row});
  return row;
}

constexpr int kFindThreads = 128;

// A thread for each row.
__global__ void __launch_bounds__(kFindThreads)
    AdvancePlaces(const CudaMaskInputs in) {
  LaunchDependents();
  GridDependencyWait();
  const int row = static_cast<int>(blockIdx.x) * kFindThreads +
                  static_cast<int>(threadIdx.x);
  if (row >= in.num_rows) return;
  const int constraint = in.rows[row].constraint;
  const int beam = in.rows[row].beam;
  if (constraint < 0 || beam < 0) return;
  const ConstraintTables& tables = in.constraints[constraint].tables;
  if (!tables.has_stacks()) return;
  const int position = in.positions[in.logits_tokens[row]];
  const int parent = in.parents[beam];
  const int entry = EntryOf(in, beam, position);
  if (parent < 0) {
    in.states[entry] = in.places[entry].state = kNoConstraintState;
    return;
  }
  const PushdownPlace& from = in.places[EntryOf(in, parent, position + 1)];
  PushdownWalk walk =
      WalkFrom(tables, from.state, from.count, from.frames, from.height);
  const int32_t state = ReadToken(tables, from.state, in.tokens[beam], &walk);
  in.states[entry] = state;
  WritePlace(tables, state, walk, &in.places[entry]);
}

__global__ void __launch_bounds__(kFindThreads)
    FindMasks(const CudaMaskInputs in, int first_cached, int* found,
              int* also_found, int stride) {
  LaunchDependents();
  GridDependencyWait();
  const int row = static_cast<int>(blockIdx.x) * kFindThreads +
                  static_cast<int>(threadIdx.x);
  if (row >= in.num_rows || in.rows[row].constraint < 0) return;
  const int mask = FindMask(in, row, first_cached);
  found[row * stride] = mask;
  if (also_found != nullptr) also_found[row * stride] = mask;
}

// One warp: raises the need of a kept mask to that of its legal tokens.
//   most  tokens that may be needed after a token of the lane
__device__ void NoteNeed(int32_t most, int32_t* need) {
  const int32_t of_warp = __reduce_max_sync(kAllLanes, most) + 1;
  if (threadIdx.x % kWarpSize == 0) atomicMax(need, of_warp);
}

__global__ __launch_bounds__(
    MaskPolicy::kThreads,
    MaskPolicy::
        kBlocksPerMultiprocessor) void MakeTokenMasks(const CudaMaskInputs in,
                                                      const CudaTokenMasks
                                                          masks) {
  LaunchDependents();
  GridDependencyWait();
  const int num_jobs = in.cache->num_jobs;
  MaskTile tile(in.vocab_size);
  for (int j = blockIdx.y; j < num_jobs; j += gridDim.y) {
    const CudaMaskJob job = in.jobs[j];
    const CudaConstraint constraint = in.constraints[job.constraint];
    const ConstraintTables& tables = constraint.tables;
    if (!HasTokens(tables, job.state) || job.room < 1) {
      tile.Write(masks, job.mask, {});
      continue;
    }
    const TokenTexts texts = tile.Load(tables, job.state);
    int32_t after[MaskTile::kWords];
    tile.tokens().Walk(tables, texts, tile.first_token(),
                       AutomatonState(tables, job.state), after);
    const bool drops_spaces = job.state == tables.num_states;
    MaskTile::Own own;
    int32_t most = 0;  // that texts may need after its legal tokens
#pragma unroll
    for (int w = 0; w < MaskTile::kWords; ++w) {
      if (drops_spaces && tile.tokens().length(w) == 0) {
        const int token = LaneTexts::TokenAt(tile.first_token(), w);
        if (token < in.vocab_size && IsDroppedSpace(tables, token)) {
          after[w] = tables.num_states + 1;
        }
      }
      const int32_t more = after[w] >= 0 ? tables.more[after[w]] : INT32_MAX;
      const bool continues = more <= job.room - 1;
      const bool is_legal =
          continues || (after[w] >= 0 && AcceptsText(tables, after[w]));
      if (continues) most = max(most, more);
      own.Add(w, is_legal, continues);
    }
    if (tile.has_own() && AcceptsText(tables, job.state)) {
      own.legal |= EndBits(tables, tile.first_own_token());
    }
    tile.Write(masks, job.mask, own);
    if (job.room == kAnyRoom) NoteNeed(most, constraint.needs + job.state);
  }
}

// After a token: the fewest tokens, at least one, to where a text may end,
// INT32_MAX if none lead there, and whether it may end at once.
struct Ends {
  int32_t more = INT32_MAX;
  bool accepts = false;
};

// Reads the rest of a token, from byte `begin` on.
__device__ __noinline__ Ends EndsAfter(const ConstraintTables& tables,
                                       const uint8_t* bytes, int begin, int end,
                                       int32_t state, int32_t count,
                                       const PushdownFrame* frames,
                                       int height) {
  PushdownWalk walk = WalkFrom(tables, state, count, frames, height);
#pragma unroll 1
  for (int i = begin; i < end; ++i) {
    if (!walk.Read(tables.classes[bytes[i]])) return {};
  }
  return {walk.min_more(), walk.accepts()};
}

// One warp: sets how texts end after the lane's tokens.
__device__ void FindEnds(const LaneTexts& lane_texts,
                         const ConstraintTables& tables,
                         const TokenTexts& texts, int first_token,
                         int32_t place_state, int32_t count, int height,
                         const PushdownFrame* frames, int vocab_size,
                         Ends (&ends)[LaneTexts::kTokens]) {
  constexpr int kTokens = LaneTexts::kTokens;
  const int32_t state = AutomatonState(tables, place_state);
  const int32_t start = NodeOf(tables.stacks, tables.num_states, height, state);
  const int32_t first_node = start - state;
  const PushdownFrame top = height > 0 ? frames[height - 1] : PushdownFrame();
  int32_t nodes[kTokens];
  int reads[kTokens];
  lane_texts.WalkLevel(tables, start, nodes, reads);
  const bool drops_spaces = place_state == tables.num_states;
#pragma unroll
  for (int w = 0; w < kTokens; ++w) {
    ends[w] = {};
    const int token = LaneTexts::TokenAt(first_token, w);
    if (drops_spaces && lane_texts.length(w) == 0 && token < vocab_size &&
        IsDroppedSpace(tables, token)) {
      ends[w] = {tables.stacks.more_after_space, tables.accepts[0] != 0};
    }
    if (nodes[w] < 0) continue;
    const int32_t at = nodes[w] - first_node;
    if (reads[w] == lane_texts.length(w)) {
      const bool may_end = tables.accepts[at] != 0;
      ends[w] = {MoreAbove(tables.stacks, may_end, nodes[w], top),
                 may_end && top.accepts != 0};
    } else {
      // A counter's bytes are none of the walk above.
      ends[w] = EndsAfter(tables, texts.bytes + texts.indptr[token], reads[w],
                          lane_texts.length(w), at, reads[w] == 0 ? count : 0,
                          frames, height);
    }
  }
}

__global__ __launch_bounds__(
    MaskPolicy::kThreads,
    MaskPolicy::
        kBlocksPerMultiprocessor) void MakePushdownMasks(const CudaMaskInputs
                                                             in,
                                                         const CudaTokenMasks
                                                             masks) {
  __shared__ PushdownFrame frames[PushdownPlace::kMaxDepth];
  LaunchDependents();
  GridDependencyWait();
  const int num_jobs = in.cache->num_pushdown_jobs;
  MaskTile tile(in.vocab_size);
  for (int j = blockIdx.y; j < num_jobs; j += gridDim.y) {
    const CudaPushdownJob job = in.pushdown_jobs[j];
    const ConstraintTables& tables = in.constraints[job.constraint].tables;
    const int32_t state = job.place->state;
    const int height = job.place->height;
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < height) {
      frames[threadIdx.x] = job.place->frames[threadIdx.x];
    }
    __syncthreads();
    if (!HasTokens(tables, state) || job.room < 1) {
      tile.Write(masks, job.mask, {});
      continue;
    }
    const TokenTexts texts = tile.Load(tables, state);
    Ends ends[MaskTile::kWords];
    FindEnds(tile.tokens(), tables, texts, tile.first_token(), state, job.count,
             height, frames, in.vocab_size, ends);
    MaskTile::Own own;
    int32_t most = 0;
#pragma unroll
    for (int w = 0; w < MaskTile::kWords; ++w) {
      const bool continues = ends[w].more < job.room;
      if (continues) most = max(most, ends[w].more);
      own.Add(w, continues || ends[w].accepts, continues);
    }
    const bool may_end = AcceptsText(tables, state) &&
                         (height == 0 || frames[height - 1].accepts != 0);
    if (tile.has_own() && may_end) {
      own.legal |= EndBits(tables, tile.first_own_token());
    }
    tile.Write(masks, job.mask, own);
    if (job.kept < 0) continue;
    CudaKeptPlace& kept = in.kept_places[job.kept];
    NoteNeed(most, &kept.need);
    // From now on no row takes it.
    if (blockIdx.x == 0 && threadIdx.x == 0) kept.entry &= ~0xFFFFull;
  }
}

__global__ void MaskBarrier() {
  GridDependencyWait();
  LaunchDependents();
}

absl::Status CheckSizes(const CudaMaskInputs& inputs) {
  if (inputs.vocab_size >= 1 && inputs.num_rows >= 1) return absl::OkStatus();
  return InvalidArgument("cannot make masks of ", inputs.num_rows, " rows of ",
                         inputs.vocab_size, " tokens");
}

LaunchConfig ThreadEach(int num_rows) {
  const unsigned blocks = (num_rows + kFindThreads - 1) / kFindThreads;
  return {.grid = dim3(blocks),
          .block = dim3(kFindThreads),
          .dependency = GridDependency::kWritesEarlyRead};
}

template <typename Kernel>
absl::Status LaunchTiles(Kernel kernel, const CudaMaskInputs& inputs,
                         int max_jobs, const CudaTokenMasks& masks,
                         const CudaDevice& device, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckSizes(inputs));
  const int num_tiles =
      (inputs.vocab_size + kMaskTileTokens - 1) / kMaskTileTokens;
  const int blocks = std::clamp(
      MaskPolicy::kBlocksPerMultiprocessor * device.num_sms / num_tiles, 1,
      max_jobs);
  return Launch(kernel,
                {.grid = dim3(num_tiles, static_cast<unsigned>(blocks)),
                 .block = dim3(MaskPolicy::kThreads),
                 .dependency = GridDependency::kWritesEarlyRead},
                stream, inputs, masks);
}

}  // namespace

absl::Status CudaAdvancePlaces(const CudaMaskInputs& inputs,
                               cudaStream_t stream) {
  RETURN_IF_ERROR(CheckSizes(inputs));
  return Launch(AdvancePlaces, ThreadEach(inputs.num_rows), stream, inputs);
}

absl::Status CudaFindMasks(const CudaMaskInputs& inputs, int first_cached,
                           int* found, int* also_found, int stride,
                           cudaStream_t stream) {
  RETURN_IF_ERROR(CheckSizes(inputs));
  return Launch(FindMasks, ThreadEach(inputs.num_rows), stream, inputs,
                first_cached, found, also_found, stride);
}

absl::Status CudaMakeTokenMasks(const CudaMaskInputs& inputs,
                                const CudaTokenMasks& masks,
                                const CudaDevice& device, cudaStream_t stream) {
  return LaunchTiles(MakeTokenMasks, inputs, 2 * inputs.num_rows, masks, device,
                     stream);
}

absl::Status CudaEndMasks(cudaStream_t stream) {
  return Launch(MaskBarrier, {.dependency = GridDependency::kBarrier}, stream);
}

absl::Status CudaMakePushdownMasks(const CudaMaskInputs& inputs,
                                   const CudaTokenMasks& masks,
                                   const CudaDevice& device,
                                   cudaStream_t stream) {
  return LaunchTiles(MakePushdownMasks, inputs, 2 * inputs.num_rows, masks,
                     device, stream);
}

}  // namespace espalier
