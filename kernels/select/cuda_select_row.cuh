// Definitions that the selection kernels share: statistics of a row, and the
// score of an element. Rows are read as in kernels/logits/cuda_row_logits.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cuda_launch.cuh"
#include "kernels/constrain/cuda_masked_rows.cuh"
#include "kernels/logits/cuda_row_logits.cuh"
#include "kernels/logits/score_key.h"
#include "kernels/select/cuda_select.h"

namespace espalier::cuda_select {

using cuda_logits::kAllLanes;
using cuda_logits::kPerLane;
using cuda_logits::kPerPiece;
using cuda_logits::kQuarters;
using cuda_logits::kSubtileSize;
using cuda_logits::kTileSize;
using cuda_logits::kWarpLoadSize;
using cuda_logits::kWarpSize;
using cuda_logits::LaneLogits;
using cuda_logits::LaneToken;
using cuda_logits::MinusInf;
using cuda_logits::RowLogits;

constexpr int kColumns = 32;  // maxima of a row for a first threshold
// Capacity for entries of a wide group, in multiples of m.
constexpr int kEntriesPerCandidate = 4;
// Up to this many candidates one block finishes a group by itself.
constexpr int kMaxNarrow = kMaxNarrowCudaSelect;

// A row's softmax, and the sum of its sequence so far.
struct RowStats {
  float max = -__builtin_inff();
  float log_sum = 0;
  float cum = -__builtin_inff();

  // False for a dead row, or one whose logits are all -inf.
  __device__ bool alive() const;
};

// An element that may be among the best of its group.
struct Entry {
  ScoreKey key;  // score and position
  float logit;   // raw
  int beam : 31;
  bool edited : 1;
};

// The arrays of the scratch memory; tiles = ceil(vocab_size / 1024).
struct Scratch {
  float* maxima;    // [num_rows, tiles, 4]  of tokens that no mask bans
  float* sums;      // [num_rows, tiles]  of exp(logit - maximum of the tile)
  float* tops;      // [num_rows, tiles]  these maxima, of rows with a mask
  RowStats* stats;  // [num_rows]
  // For groups of more than kMaxNarrow candidates:
  float* columns;    // [num_rows, 32]  maxima of sums
  uint32_t* cuts;    // [max_groups]  ordered scores below cannot be chosen
  int* modes;        // [max_groups]
  int* counts;       // [max_groups]  entries
  bool* gathers;     // [max_groups]  entries are still to be gathered
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

// Returns the bits of a score in the order of unsigned numbers, 0 for -inf and
// NaN.
__device__ inline uint32_t OrderedBits(float score) {
  return score > MinusInf()
             ? static_cast<uint32_t>(MakeScoreKey(score, 0) >> 32)
             : 0;
}

// True if edits[begin, end) has `token`. Rare, so it is not inlined.
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

// One row, for the steps after reading. T: LogitOf<T>, or Masked of that.
template <typename T>
class RowView : public RowLogits<LogitOf<T>>, public RowMask<kIsMasked<T>> {
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
      : RowLogits<LogitOf<T>>(
            static_cast<const LogitOf<T>*>(p.in.logits) +
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
                size_t(group.first_row + beam) * p.tiles * kQuarters) {
    this->SetMask(p.in.masks, row_edits.mask, p.in.vocab_size);
  }

  __device__ bool alive() const { return stats_.alive(); }
  __device__ bool has_edits() const {
    return row_edits_.end > row_edits_.begin;
  }
  // True if only tokens in the list are candidates.
  __device__ bool is_allow_list() const { return row_edits_.is_allow_list; }
  __device__ const CudaRowEdits& row_edits() const { return row_edits_; }
  __device__ const TokenEdit& edit(int i) const { return edits_[i]; }
  __device__ float max() const { return stats_.max; }
  __device__ int beam() const { return beam_; }
  __device__ ScoreDomain domain() const { return domain_; }
  __device__ float* maxima() const { return maxima_; }

  // The difference of equal infinities is 0 (select.h).
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

  // Returns the score of an unedited element; it rises with the logit. A mask
  // edits by an empty edit, which makes 0 of -0.
  __device__ float Score(float logit) const {
    if (by_logit_) return this->has_mask() ? __fadd_rn(logit, 0.0f) : logit;
    return Sum(LogProb(logit));
  }
  // Returns a lower bound, above -inf, of the logits whose score is `score` or
  // more, with a margin for rounding. Most logits need no score then.
  __device__ float Floor(float score) const {
    constexpr float kLowest = -3.40282347e38f;
    if (by_logit_) return fmaxf(score, kLowest);
    const float magnitude = fabsf(score) + fabsf(stats_.cum) +
                            fabsf(stats_.log_sum) + fabsf(stats_.max);
    const float logit = score - stats_.cum + stats_.log_sum + stats_.max;
    return fmaxf(logit - 0x1p-20f * magnitude, kLowest);  // NaN: the lowest
  }
  // Returns the score of an element with an edit that is no ban.
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
  uint32_t position_;  // position of token 0 in the group
  RowStats stats_;
  CudaRowEdits row_edits_;
  const TokenEdit* edits_;
  float* maxima_;
};

// Appends token `token` if its score is at least `cut` and it has no edit in
// the list.
template <typename T, typename Append>
__device__ void AppendIfAbove(const RowView<T>& row, int token, float logit,
                              float cut, const Append& append) {
  const float score = row.Score(logit);
  if (!(score > MinusInf() && score >= cut)) return;
  if (row.has_edits() && row.IsEdited(token)) return;
  if (row.IsMasked(token)) return;
  append(Entry{row.Key(score, token), logit, row.beam(), row.has_mask()});
}

// Converts a threshold to a score; 0 becomes -inf.
__device__ inline float CutScore(uint32_t cut) {
  return cut == 0 ? MinusInf() : ScoreOf(ScoreKey{cut} << 32);
}

// Calls visit(token, logit, score) for the row's edited tokens that have a
// score. The work is divided among `num_threads` threads.
template <typename T, typename Visit>
__device__ void ForEachEdited(const RowView<T>& row, int thread,
                              int num_threads, const Visit& visit) {
#pragma unroll 1
  for (int e = row.row_edits().begin + thread; e < row.row_edits().end;
       e += num_threads) {
    const TokenEdit edit = row.edit(e);
    if (edit.banned || row.IsMasked(edit.token)) continue;
    const float logit = row.Logit(edit.token);
    const float score = row.Score(logit, edit);
    if (score > MinusInf()) visit(edit.token, logit, score);
  }
}

// Appends edited tokens whose score is at least `cut`, with the same threads.
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
