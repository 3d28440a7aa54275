// What the kernels of selection share: how a row is cut into pieces, what is
// known of a row once it has been read, and what an element's score is.
//
// A row is read as tiles of 1,024 logits, each by one warp, and of a tile
// remain the sum of its exponentials and the maxima of its four quarters. All
// that follows needs only those, and the few quarters whose maximum says that
// they hold a good token. Tiles are fixed pieces of a row and are summed in a
// fixed order, so how a launch spreads them over the device changes no bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cuda_launch.cuh"
#include "kernels/logits/score_key.h"
#include "kernels/select/cuda_select.h"

namespace espalier::cuda_select {

constexpr int kWarpSize = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;
constexpr int kPieceSize = 512;  // 16 logits a lane, loaded at once
constexpr int kTileSize = 1024;
constexpr int kQuarters = 4;  // of a tile, 8 lanes each
constexpr int kQuarterSize = kTileSize / kQuarters;
constexpr int kColumns = 32;  // maxima of a row for a first threshold
// Entries that a wide group has room for, in multiples of m.
constexpr int kEntriesPerCandidate = 4;
// Up to this many candidates one block finishes a group by itself.
constexpr int kMaxNarrow = kMaxNarrowCudaSelect;

__device__ inline float MinusInf() { return -__int_as_float(0x7F800000); }

// A row's softmax, and what its sequence has summed up to.
struct RowStats {
  float max = -__builtin_inff();
  float log_sum = 0;
  float cum = -__builtin_inff();

  // A dead row, or one whose logits are all -inf, offers nothing.
  __device__ bool alive() const;
};

// An element that may be among the best of its group.
struct Entry {
  ScoreKey key;  // of score and position
  float logit;   // raw
  int beam : 31;
  bool edited : 1;
};

// Where the parts of the scratch memory are; tiles = ceil(vocab_size / 1024).
struct Scratch {
  float* maxima;    // [num_rows, tiles, 4]
  float* sums;      // [num_rows, tiles]  of exp(logit - maximum of the tile)
  RowStats* stats;  // [num_rows]
  // Of groups of more than kMaxNarrow candidates:
  float* columns;    // [num_rows, 32]  maxima of sums
  uint32_t* cuts;    // [max_groups]  ordered scores below cannot be chosen
  int* modes;        // [max_groups]
  int* counts;       // [max_groups]  of entries
  bool* gathers;     // [max_groups]  whether entries are still to be gathered
  Entry* entries;    // [4 * max_total_candidates]
  ScoreKey* chosen;  // [max_total_candidates]
};

struct Params {
  CudaSelectInputs in;
  CudaSelectOutputs out;
  Scratch scratch;
  int tiles;
};

__device__ inline bool RowStats::alive() const {
  return cum > MinusInf() && max > MinusInf();
}

// The bits of a score in the order of unsigned numbers, 0 if it is none.
__device__ inline uint32_t Ordered(float score) {
  return score > MinusInf()
             ? static_cast<uint32_t>(MakeScoreKey(score, 0) >> 32)
             : 0;
}

// Whether edits[begin, end) has `token`. Rarely asked, so it need not be where
// it is asked.
__device__ __noinline__ inline bool HasToken(const TokenEdit* edits, int begin,
                                             int end, int token) {
  while (begin < end) {
    const int middle = (begin + end) / 2;
    const int found = edits[middle].token;
    if (found == token) return true;
    if (found < token) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return false;
}

// The logits of one row in memory, and where a quarter's are. T is float, or
// uint16_t for the bits of bfloat16.
template <typename T>
class RowLogits {
 public:
  __device__ RowLogits(const T* logits, int vocab_size)
      : vocab_size_(vocab_size), logits_(logits) {}

  __device__ int vocab_size() const { return vocab_size_; }
  __device__ T Raw(int token) const { return logits_[token]; }
  __device__ static float ToFloat(T raw) {
    if constexpr (sizeof(T) == 4) {
      return raw;
    } else {
      return __uint_as_float(uint32_t{raw} << 16);
    }
  }
  // NaN counts as -inf.
  __device__ static float Clean(T raw) {
    const float x = ToFloat(raw);
    return x == x ? x : MinusInf();
  }
  __device__ float Logit(int token) const { return Clean(Raw(token)); }
  // Whether four consecutive logits of a quarter's tile can be loaded at once,
  // and that.
  __device__ bool LoadsFour(int quarter) const {
    return reinterpret_cast<uintptr_t>(logits_) % sizeof(Four) == 0 &&
           (quarter / kQuarters + 1) * kTileSize <= vocab_size_;
  }
  __device__ void LoadFour(int token, T* to) const {
    const Four four = *reinterpret_cast<const Four*>(logits_ + token);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = four.values[i];
  }
  // kSize of them, all waited for together: token_of(i) may be beyond the row's
  // end, where -inf is.
  template <int kSize, typename TokenOf>
  __device__ void Logits(const TokenOf& token_of,
                         float (&values)[kSize]) const {
    T raw[kSize];
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      raw[i] = Raw(min(token_of(i), vocab_size_ - 1));
    }
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      values[i] = token_of(i) < vocab_size_ ? Clean(raw[i]) : MinusInf();
    }
  }

  // Which quarter a token is in: those that the same 8 lanes read, 16 bytes a
  // lane and load.
  __device__ static int QuarterOf(int token) {
    return token / kTileSize * kQuarters + (token >> kRunBits) % kQuarters;
  }
  // The i-th token of a quarter's part of the tile's first piece; in the second
  // one are the tokens kPieceSize further.
  __device__ static int TokenIn(int quarter, int i) {
    const int run = i >> kRunBits;
    return quarter / kQuarters * kTileSize +
           ((run * kQuarters + quarter % kQuarters) << kRunBits) +
           (i & ((1 << kRunBits) - 1));
  }
  // Of a token among all of its quarter, in their order.
  __device__ static int IndexIn(int token) {
    const int run = token % kTileSize >> kRunBits;
    return run / kQuarters << kRunBits | (token & ((1 << kRunBits) - 1));
  }

 private:
  struct alignas(4 * sizeof(T)) Four {
    T values[4];
  };

  // Log of the length of a quarter's runs of consecutive tokens.
  static constexpr int kRunBits = sizeof(T) == 4 ? 5 : 6;

  int vocab_size_;
  const T* logits_;
};

// One row, as the steps after the reading see it.
template <typename T>
class RowView : public RowLogits<T> {
 public:
  // `by_logit`: scores are edited logits, else sums of log-probabilities.
  __device__ RowView(const Params& p, const CudaSelectGroup& group, int beam,
                     bool by_logit)
      : RowView(p, group, beam, by_logit,
                p.scratch.stats[group.first_row + beam]) {}
  __device__ RowView(const Params& p, const CudaSelectGroup& group, int beam,
                     bool by_logit, const RowStats& stats)
      : RowView(p, group, beam, by_logit, stats,
                p.in.row_edits != nullptr
                    ? p.in.row_edits[group.first_row + beam]
                    : CudaRowEdits{}) {}
  __device__ RowView(const Params& p, const CudaSelectGroup& group, int beam,
                     bool by_logit, const RowStats& stats,
                     const CudaRowEdits& row_edits)
      : RowLogits<T>(static_cast<const T*>(p.in.logits) +
                         size_t(group.first_row + beam) * p.in.vocab_size,
                     p.in.vocab_size),
        by_logit_(by_logit),
        domain_(group.domain),
        beam_(beam),
        position_(static_cast<uint32_t>(beam) * p.in.vocab_size),
        stats_(stats),
        row_edits_(row_edits),
        edits_(p.in.edits),
        maxima_(p.scratch.maxima +
                size_t(group.first_row + beam) * p.tiles * kQuarters) {}

  __device__ bool alive() const { return stats_.alive(); }
  __device__ bool has_edits() const {
    return row_edits_.end > row_edits_.begin;
  }
  // Whether it offers its edited tokens alone.
  __device__ bool only_edited() const { return row_edits_.only_edited; }
  __device__ const CudaRowEdits& row_edits() const { return row_edits_; }
  __device__ const TokenEdit& edit(int i) const { return edits_[i]; }
  __device__ float max() const { return stats_.max; }
  __device__ int beam() const { return beam_; }
  __device__ ScoreDomain domain() const { return domain_; }
  __device__ float* maxima() const { return maxima_; }

  // Equal infinities differ by nothing (select.h).
  __device__ float LogProb(float logit) const {
    const float difference =
        logit == stats_.max ? 0.0f : __fsub_rn(logit, stats_.max);
    return __fsub_rn(difference, stats_.log_sum);
  }
  __device__ float Sum(float log_prob) const {
    return __fadd_rn(stats_.cum, log_prob);
  }
  __device__ float Edited(float score, const TokenEdit& edit) const {
    return EditedScore(score, edit, row_edits_.repetition_penalty);
  }

  // What an element without an edit is chosen by; rises with the logit.
  __device__ float Score(float logit) const {
    return by_logit_ ? logit : Sum(LogProb(logit));
  }
  // Not above the lowest logit whose score is `score` or more: what rounding
  // may do is taken off. Above -inf. Spares the scores of nearly all that are
  // not wanted.
  __device__ float Floor(float score) const {
    constexpr float kLowest = -3.40282347e38f;
    if (by_logit_) return fmaxf(score, kLowest);
    const float magnitude = fabsf(score) + fabsf(stats_.cum) +
                            fabsf(stats_.log_sum) + fabsf(stats_.max);
    const float logit = score - stats_.cum + stats_.log_sum + stats_.max;
    return fmaxf(logit - 0x1p-20f * magnitude, kLowest);  // NaN: the lowest
  }
  // The score of an element that is edited, but not banned.
  __device__ float Score(float logit, const TokenEdit& edit) const {
    return by_logit_ ? Edited(logit, edit) : Sum(Edited(LogProb(logit), edit));
  }
  __device__ ScoreKey Key(float score, int token) const {
    return MakeScoreKey(score, static_cast<TokenId>(position_ + token));
  }

  __device__ bool IsEdited(int token) const {
    return HasToken(edits_, row_edits_.begin, row_edits_.end, token);
  }

 private:
  bool by_logit_;
  ScoreDomain domain_;
  int beam_;
  uint32_t position_;  // of token 0 in the group
  RowStats stats_;
  CudaRowEdits row_edits_;
  const TokenEdit* edits_;
  float* maxima_;
};

// A lane's logits of a quarter, of both pieces of the tile, as loaded: nothing
// is made of them until all are on their way.
constexpr int kPerLane = kQuarterSize / kWarpSize;
constexpr int kPerPiece = kPerLane / 2;
static_assert(kTileSize == 2 * kPieceSize);

template <typename T>
__device__ int LaneToken(int quarter, int i) {
  const int lane = threadIdx.x % kWarpSize;
  return RowLogits<T>::TokenIn(quarter, lane * kPerPiece) + i % kPerPiece +
         i / kPerPiece * kPieceSize;
}

template <typename T>
struct LaneLogits {
  int first;  // token
  alignas(16) T raw[kPerLane];

  LaneLogits() = default;
  __device__ LaneLogits(const RowLogits<T>& row, int quarter)
      : first(LaneToken<T>(quarter, 0)) {
    if (row.LoadsFour(quarter)) {
#pragma unroll
      for (int i = 0; i < kPerLane; i += kPerPiece) {
        row.LoadFour(token(i), raw + i);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        raw[i] = row.Raw(min(token(i), row.vocab_size() - 1));
      }
    }
  }

  __device__ int token(int i) const {
    return first + i % kPerPiece + i / kPerPiece * kPieceSize;
  }
  // May be NaN; -inf beyond the row's end.
  __device__ float value(const RowLogits<T>& row, int i) const {
    return token(i) < row.vocab_size() ? RowLogits<T>::ToFloat(raw[i])
                                       : MinusInf();
  }
};

// Offers token `token` if its score is not below `cut` and it has no edit.
template <typename T, typename Append>
__device__ void Offer(const RowView<T>& row, int token, float logit, float cut,
                      const Append& append) {
  const float score = row.Score(logit);
  if (!(score > MinusInf() && score >= cut)) return;
  if (row.has_edits() && row.IsEdited(token)) return;
  append(Entry{row.Key(score, token), logit, row.beam(), false});
}

// A threshold as scores are compared with it; 0 lets all pass that are any.
__device__ inline float CutScore(uint32_t cut) {
  return cut == 0 ? MinusInf() : ScoreOf(ScoreKey{cut} << 32);
}

// Of `num_threads` threads this is `thread`: calls visit(token, logit, score)
// for the row's edited tokens that have a score.
template <typename T, typename Visit>
__device__ void ForEachEdited(const RowView<T>& row, int thread,
                              int num_threads, const Visit& visit) {
#pragma unroll 1
  for (int e = row.row_edits().begin + thread; e < row.row_edits().end;
       e += num_threads) {
    const TokenEdit edit = row.edit(e);
    if (edit.banned) continue;
    const float logit = row.Logit(edit.token);
    const float score = row.Score(logit, edit);
    if (score > MinusInf()) visit(edit.token, logit, score);
  }
}

// The same threads: offers those whose score is not below `cut`.
template <typename T, typename Append>
__device__ void GatherEdited(const RowView<T>& row, float cut, int thread,
                             int num_threads, const Append& append) {
  ForEachEdited(row, thread, num_threads,
                [&](int token, float logit, float score) {
                  if (score < cut) return;
                  append(Entry{row.Key(score, token), logit, row.beam(), true});
                });
}

}  // namespace espalier::cuda_select
