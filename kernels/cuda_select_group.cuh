// How a group is chosen: by what its elements are compared, how edited tokens
// are kept out of the maxima, and what a chosen element says of itself.
#pragma once

#include "kernels/cuda_select_row.cuh"
#include "kernels/cuda_select_tiles.cuh"

namespace espalier::cuda_select {

// All threads of a block: takes edited tokens out of the maxima of their
// quarters. Where one is the maximum, a warp looks for the best of the others.
// Barriers before and after.
template <typename T>
__device__ __noinline__ void LeaveEditedOut(RowView<T> row) {
  const CudaRowEdits& edits = row.row_edits();
  const int lane = threadIdx.x % kWarpSize;
  for (int base = edits.begin + threadIdx.x - lane; base < edits.end;
       base += blockDim.x) {
    int quarter = 0;
    bool is_max = false;
    if (base + lane < edits.end) {
      const int token = row.edit(base + lane).token;
      quarter = row.QuarterOf(token);
      is_max = row.Logit(token) >= row.maxima()[quarter];
    }
    for (unsigned left = __ballot_sync(kAllLanes, is_max); left != 0;
         left &= left - 1) {
      const int found = __shfl_sync(kAllLanes, quarter, __ffs(left) - 1);
      const LaneLogits<T> logits(row, found);
      float max;
      // The best of all, unless that one is edited, and so on.
      for (unsigned gone = 0;;) {
        float own = MinusInf();
        int at = 0;
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) {
          const float x = logits.value(row, i);
          if (x > own && (gone >> i & 1) == 0) {
            own = x;
            at = i;
          }
        }
        max = MaxOverWarp(own);
        if (max == MinusInf()) break;
        const int leader = __ffs(__ballot_sync(kAllLanes, own == max)) - 1;
        const bool edited = lane == leader && row.IsEdited(logits.token(at));
        if (edited) gone |= 1u << at;
        if (!__any_sync(kAllLanes, edited)) break;
      }
      if (lane == 0) row.maxima()[found] = max;
    }
  }
}

// How a group is chosen.
enum Mode : int {
  kBySum,     // the best sums of all rows together
  kByLogit,   // one living row: the best edited logits
  kRowByRow,  // the best of each row first: exact whatever the scores are
};

// All threads of the block. Without edits the order of edited logits is that
// of sums.
__device__ inline Mode ModeOf(const Params& p, const CudaSelectGroup& group) {
  if (group.domain == ScoreDomain::kLogProbs || p.in.row_edits == nullptr) {
    return kBySum;
  }
  int num_alive = 0;
  bool edited = false;
  for (int beam = threadIdx.x; beam < group.num_rows; beam += blockDim.x) {
    const int row = group.first_row + beam;
    if (!(p.in.cum_log_probs[row] > MinusInf())) continue;
    ++num_alive;
    edited |= p.in.row_edits[row].end > p.in.row_edits[row].begin;
  }
  if (!__syncthreads_or(edited)) return kBySum;
  const bool several = __syncthreads_or(num_alive > 1) ||
                       __syncthreads_count(num_alive == 1) > 1;
  return several ? kRowByRow : kByLogit;
}

// What a chosen entry adds up to: itself, or in kByLogit the sum of its row.
// 0 if that is no continuation.
template <typename T>
__device__ ScoreKey SumKey(const Entry& entry, const Params& p,
                           const CudaSelectGroup& group, Mode mode) {
  if (mode != kByLogit) return entry.key;
  const RowView<T> row(p, group, entry.beam, /*by_logit=*/true);
  const float sum = row.Sum(row.LogProb(entry.logit));
  if (Ordered(sum) == 0) return 0;
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
