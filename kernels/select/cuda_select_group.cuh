// Choosing the candidates of a group: the scores that its elements are compared
// by, removal of edited tokens from the maxima, and the candidate of a chosen
// element.
#pragma once

#include "kernels/select/cuda_select_row.cuh"
#include "kernels/select/cuda_select_tiles.cuh"

namespace espalier::cuda_select {

// One warp: returns a row's first edit whose token is not below `token`.
template <typename T>
__device__ int FirstEdit(const RowView<T>& row, int token) {
  const int lane = threadIdx.x % kWarpSize;
  int begin = row.row_edits().begin;
  int end = row.row_edits().end;
  while (begin < end) {
    const int step = (end - begin + kWarpSize - 1) / kWarpSize;
    const int at = begin + lane * step;
    const bool is_below = at < end && row.edit(at).token < token;
    const int num_below = __popc(__ballot_sync(kAllLanes, is_below));
    if (num_below == 0) break;
    end = min(end, begin + num_below * step);
    begin += (num_below - 1) * step + 1;
  }
  return begin;
}

// One warp: returns a bit for each token of a quarter, set if it has an edit.
// Lane w has indices 32 w to 32 w + 31.
template <typename T>
__device__ uint32_t EditedInQuarter(const RowView<T>& row, int quarter) {
  const int lane = threadIdx.x % kWarpSize;
  const int tile = quarter / kQuarters;
  const int end_token = (tile + 1) * kTileSize;
  uint32_t own = 0;
  for (int base = FirstEdit(row, tile * kTileSize);; base += kWarpSize) {
    const int i = base + lane;
    const int token = i < row.row_edits().end ? row.edit(i).token : end_token;
    const bool is_here =
        token < end_token && RowView<T>::QuarterOf(token) == quarter;
    const int index = RowView<T>::IndexIn(token);
#pragma unroll
    for (int word = 0; word < kSubtileSize / 32; ++word) {
      const bool is_in_word = is_here && index / 32 == word;
      const uint32_t bits =
          __reduce_or_sync(kAllLanes, is_in_word ? 1u << index % 32 : 0);
      if (lane == word) own |= bits;
    }
    if (__any_sync(kAllLanes, token >= end_token)) return own;
  }
}

// One warp: returns the best logit of a token of a quarter that has no edit in
// the list and is in the mask.
template <typename T>
__device__ float MaxOfUnedited(const RowView<T>& row, int quarter) {
  const LaneLogits<LogitOf<T>> logits(row, quarter);
  const uint32_t edited = EditedInQuarter(row, quarter);
  float own = MinusInf();
#pragma unroll
  for (int i = 0; i < kPerLane; i += kPerPiece) {  // a piece is in one word
    const int index = RowView<T>::IndexIn(logits.token(i));
    const uint32_t gone =
        __shfl_sync(kAllLanes, edited, index / 32) >> index % 32;
#pragma unroll
    for (int j = 0; j < kPerPiece; ++j) {
      const float x = logits.value(row, i + j);
      if (!(x > own) || (gone >> j & 1) != 0) continue;
      if (!row.IsMasked(logits.token(i + j))) own = x;
    }
  }
  return WarpMax(own);
}

// All threads of a block: removes edited tokens from the maxima of their
// quarters. Quarters whose maximum is an edited token are marked first, so that
// each is read once, however many of its tokens have edits. Has barriers before
// and after.
template <typename T>
__device__ __noinline__ void ExcludeEditedTokens(RowView<T> row) {
  const float mark = __uint_as_float(0x7fffffffu);  // NaN: no maximum is
  const CudaRowEdits& edits = row.row_edits();
  for (int i = edits.begin + threadIdx.x; i < edits.end; i += blockDim.x) {
    const int token = row.edit(i).token;
    float& max = row.maxima()[RowView<T>::QuarterOf(token)];
    if (row.Logit(token) >= max) max = mark;
  }
  __syncthreads();
  const int lane = threadIdx.x % kWarpSize;
  const int num_quarters =
      (row.vocab_size() + kTileSize - 1) / kTileSize * kQuarters;
  for (int base = threadIdx.x - lane; base < num_quarters; base += blockDim.x) {
    const int own = base + lane;
    const bool is_marked = own < num_quarters && isnan(row.maxima()[own]);
    for (unsigned left = __ballot_sync(kAllLanes, is_marked); left != 0;
         left &= left - 1) {
      const int quarter = base + __ffs(left) - 1;
      const float max = MaxOfUnedited(row, quarter);
      if (lane == 0) row.maxima()[quarter] = max;
    }
  }
}

// The order that a group is chosen by.
enum Mode : int {
  kBySum,    // the best sums of all rows together
  kByLogit,  // one living row: the best edited logits
  kExact,    // the best of each row first: exact whatever the scores are
};

// All threads of the block. Without edits, edited logits and sums have the same
// order.
template <typename T>
__device__ Mode ModeOf(const Params& p, const CudaSelectGroup& group) {
  if (group.domain == ScoreDomain::kLogProbs || p.in.row_edits == nullptr) {
    return kBySum;
  }
  int num_alive = 0;
  bool edited = false;
  for (int beam = threadIdx.x; beam < group.num_rows; beam += blockDim.x) {
    const int row = group.first_row + beam;
    if (!(p.in.cum_log_probs[row] > MinusInf())) continue;
    ++num_alive;
    const CudaRowEdits& edits = p.in.row_edits[row];
    edited |= edits.end > edits.begin || (kIsMasked<T> && edits.mask >= 0);
  }
  if (!__syncthreads_or(edited)) return kBySum;
  const bool several = __syncthreads_or(num_alive > 1) ||
                       __syncthreads_count(num_alive == 1) > 1;
  return several ? kExact : kByLogit;
}

// Returns the key of an entry's sum: its own or, in kByLogit, that of the sum
// in its row. 0 if it is no continuation.
template <typename T>
__device__ ScoreKey SumKey(const Entry& entry, const Params& p,
                           const CudaSelectGroup& group, Mode mode) {
  if (mode != kByLogit) return entry.key;
  const RowView<T> row(p, group, entry.beam, /*by_logit=*/true);
  const float sum = row.Sum(row.LogProb(entry.logit));
  if (OrderedBits(sum) == 0) return 0;
  return MakeScoreKey(sum, TokenOf(entry.key));
}

__device__ inline Candidate CandidateOf(ScoreKey key, int beam,
                                        int vocab_size) {
  const uint32_t position = static_cast<uint32_t>(TokenOf(key));
  Candidate candidate;
  candidate.beam = beam;
  candidate.token = position - static_cast<uint32_t>(beam) * vocab_size;
  candidate.cum_log_prob = ScoreOf(key);
  return candidate;
}

__device__ inline int BeamOf(ScoreKey key, int vocab_size) {
  return static_cast<uint32_t>(TokenOf(key)) / vocab_size;
}

}  // namespace espalier::cuda_select
