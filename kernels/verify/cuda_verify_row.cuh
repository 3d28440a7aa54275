// Definitions that the verification kernels share: the verdict on a row, and
// the decisions on a sequence that follow from it (cuda_verify.cu).
#pragma once

#include "kernels/sample/cuda_sample_block.cuh"
#include "kernels/sample/cuda_sample_edits.cuh"
#include "kernels/sample/random.h"
#include "kernels/verify/cuda_verify.h"

namespace espalier::cuda_sample {

// The verdict on one row.
struct RowVerdict {
  // The tokens that its filters keep, if a random number decides acceptance.
  RowCut cut;
  RawRow raw = {};
  // The sampled token if no draft is judged. Else 0, or kNotANumber or kNoToken
  // if no token can be sampled.
  TokenId token = kNoToken;
  float log_prob = 0;  // its, or the drafted token's; raw, nats
  // If a random number decides: the probability of the drafted token, and the
  // total weight of the kept tokens relative to the best.
  double probability = 0;
  double total = 1;
  // The token that replaces a rejected draft, if it is known without reading
  // the row again; else kNotLeader.
  TokenId recovered = kNotLeader;
  float recovered_log_prob = 0;
};

struct VerifyParams {
  CudaVerifyInputs in;
  CudaVerifyOutputs out;
  RowVerdict* verdicts;  // [num_rows]
  Mass* tile_masses;     // [max_sequences, tiles]
  unsigned* arrivals;    // [max_sequences]
  Params sample;         // the rows, as sampling reads them

  // True if a row without filters yields the replacement of a rejected draft by
  // itself: its tiles have one thread each.
  __host__ __device__ bool recovers_alone() const {
    return sample.num_tiles <= LargeBatchPolicy::kThreads;
  }
  // True if a result may need more than the verdicts.
  __host__ __device__ bool needs_recovery() const {
    return in.has_filters || in.has_draft_rows || in.counters == nullptr ||
           !recovers_alone();
  }
};

__device__ inline double NoiseOf(const VerifyParams& p,
                                 const CudaVerifySequence& sequence, int index,
                                 RandomPurpose purpose) {
  const int row = sequence.first_row + index;
  return Uniform({.seed = p.in.params[p.in.row_params[row]].seed,
                  .sample = sequence.sample,
                  .position = sequence.position + static_cast<uint32_t>(index),
                  .purpose = purpose},
                 0);
}

// Returns the draft at a place of a sequence; negative if there is no draft.
__device__ inline TokenId DraftAt(const VerifyParams& p,
                                  const CudaVerifySequence& sequence,
                                  int index) {
  return index < sequence.num_drafts ? p.in.drafts[sequence.first_draft + index]
                                     : kNoToken;
}

// True if a random number decides on the draft at a place.
__device__ inline bool IsByChance(const VerifyParams& p,
                                  const CudaVerifySequence& sequence, int index,
                                  TokenId draft) {
  return draft >= 0 && sequence.mode == VerifyMode::kRejection &&
         p.in.params[p.in.row_params[sequence.first_row + index]].temperature !=
             0.0f;
}

// Returns the weight of a token among those that the filters keep: 1 at the
// best.
__device__ inline float WeightIn(const RowCut& cut, float edited,
                                 TokenId token) {
  if (cut.token < 0 || !(edited > MinusInf())) return 0;
  if (cut.is_greedy) return token == cut.token ? 1.0f : 0.0f;
  const float distance = edited == cut.max ? 0.0f : __fsub_rn(cut.max, edited);
  if (__float_as_uint(distance) > cut.cut) return 0;
  const float exponent = __fmul_rn(distance, cut.scale);
  if (cut.is_typical) {
    const float rank = fabsf(__fsub_rn(exponent, cut.mean));
    if (__float_as_uint(rank) > cut.typical_cut) return 0;
  }
  return Exp2(-exponent);
}

// Judges each row that has been read, and writes results that need only
// verdicts (cuda_verify_judge.cu).
absl::Status JudgeRows(const VerifyParams& p, const CudaDevice& device,
                       cudaStream_t stream);

// Accepts drafts, and samples the tokens that replace rejected ones
// (cuda_verify_recover.cu).
absl::Status AcceptAndRecover(const VerifyParams& p, cudaStream_t stream);

}  // namespace espalier::cuda_sample
