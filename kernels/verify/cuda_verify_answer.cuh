// The end of a draft, from the verdicts on its rows, and the result of its
// sequence (cuda_verify.cu).
#pragma once

#include "kernels/verify/cuda_verify_row.cuh"

namespace espalier::cuda_sample {

// The end of a sequence's draft.
struct DraftEnd {
  int num_accepted = 0;
  bool recovers = false;
};

// One warp.
__device__ inline DraftEnd FindEnd(const VerifyParams& p,
                                   const CudaVerifySequence& sequence) {
#pragma unroll 1
  for (int first = 0;; first += kWarpSize) {
    const int index = first + Lane();
    bool ends = false;
    bool recovers = false;
    if (index <= sequence.num_drafts) {
      const RowVerdict& own = p.verdicts[sequence.first_row + index];
      const TokenId draft = DraftAt(p, sequence, index);
      if (!IsByChance(p, sequence, index, draft)) {
        ends = draft < 0 || own.token != draft;
      } else if (own.token < 0) {
        ends = true;
      } else {
        const double q =
            sequence.first_draft_row < 0
                ? 1.0
                : p.verdicts[sequence.first_draft_row + index].probability;
        const double u = NoiseOf(p, sequence, index, RandomPurpose::kAccept);
        ends = recovers = !(q > 0 && own.probability >= u * q);
      }
    }
    const unsigned lanes = __ballot_sync(kAllLanes, ends);
    if (lanes == 0) continue;  // the last target row always ends it
    const int end = __ffs(lanes) - 1;
    return {first + end, __shfl_sync(kAllLanes, recovers ? 1 : 0, end) != 0};
  }
}

// One block: writes the tokens of a sequence, the last one with its
// log-probability.
__device__ inline void Answer(const VerifyParams& p, int sequence_idx,
                              const CudaVerifySequence& sequence,
                              int num_accepted, TokenId token, float log_prob) {
  for (int i = threadIdx.x; i <= sequence.num_drafts;
       i += static_cast<int>(blockDim.x)) {
    const bool accepted = i < num_accepted;
    const bool is_last = i == num_accepted;
    const TokenId own = accepted  ? DraftAt(p, sequence, i)
                        : is_last ? token
                                  : kNoToken;
    const float own_log_prob = accepted
                                   ? p.verdicts[sequence.first_row + i].log_prob
                               : is_last ? log_prob
                                         : 0.0f;
    const int place = sequence.first_token + i;
    if (p.out.candidates != nullptr) {
      p.out.candidates[place] = {
          i <= num_accepted ? sequence.first_beam + i : -1, own,
          own < 0 ? MinusInf() : own_log_prob};
      continue;
    }
    p.out.tokens[place] = own;
    p.out.log_probs[place] = own_log_prob;
  }
  if (threadIdx.x == 0 && p.out.candidates == nullptr) {
    p.out.num_accepted[sequence_idx] = num_accepted;
  }
}

// Writes the result of a sequence whose last token is in a verdict.
__device__ inline void AnswerAtEnd(const VerifyParams& p, int sequence_idx,
                                   const CudaVerifySequence& sequence,
                                   const DraftEnd& end) {
  const RowVerdict& last = p.verdicts[sequence.first_row + end.num_accepted];
  if (end.recovers) {
    return Answer(p, sequence_idx, sequence, end.num_accepted, last.recovered,
                  last.recovered_log_prob);
  }
  Answer(p, sequence_idx, sequence, end.num_accepted, last.token,
         last.token >= 0 ? last.log_prob : 0.0f);
}

}  // namespace espalier::cuda_sample
