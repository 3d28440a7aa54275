// One block a draw: from what is known of a row's tiles to its token
// (cuda_sample.cu).
#include "kernels/cuda_sample_draw.cuh"
#include "kernels/random.h"

namespace espalier::cuda_sample {
namespace {

template <typename T, typename Policy>
__global__ __launch_bounds__(
    Policy::kThreads,
    Policy::kMinBlocks) void DrawRows(const __grid_constant__ Params p) {
  LetNextStart();
  const int num_draws = *p.in.num_draws;
  const bool exists = static_cast<int>(blockIdx.x) < num_draws;
  CudaDraw draw;
  SamplingParams params;
  float cum = MinusInf();
  int row_params = -1;
  if (exists) {
    draw = p.in.draws[blockIdx.x];
    cum = p.in.cum_log_probs[draw.row];
    row_params = p.in.row_params[draw.row];
  }
  const bool alive = row_params >= 0 && cum > MinusInf();
  if (alive) params = p.in.params[row_params];
  const double uniform = Uniform({.seed = params.seed,
                                  .sample = draw.sample,
                                  .position = draw.position,
                                  .purpose = RandomPurpose::kDraw},
                                 0);
  Clear<Policy>(p.in.vocab_size);
  WaitForPrevious();
  if (!exists) return;
  Candidate candidate = {draw.beam, kNoToken, MinusInf()};
  if (alive) {
    Sampler<T, Policy> sampler(p, draw);
    candidate.token = sampler.Draw(params, uniform);
    if (candidate.token == kNotMine) return;
    if (candidate.token >= 0) {
      candidate.cum_log_prob = __fadd_rn(cum, sampler.LogProb(candidate.token));
    }
  } else if (threadIdx.x != 0) {
    return;
  }
  p.candidates[draw.candidate] = candidate;
}

// What the filters leave of each float32 row.
__global__ __launch_bounds__(
    ManyDraws::kThreads,
    ManyDraws::kMinBlocks) void CutRows(const __grid_constant__ Params p,
                                        RowCut* cuts) {
  LetNextStart();
  const CudaDraw draw = {.row = static_cast<int>(blockIdx.x)};
  const float cum = p.in.cum_log_probs[draw.row];
  const int row_params = p.in.row_params[draw.row];
  using RowSampler = Sampler<float, ManyDraws>;
  Clear<ManyDraws>(p.in.vocab_size);
  WaitForPrevious();
  RowCut cut;
  cut.token = kNoToken;
  if (row_params >= 0 && cum > MinusInf()) {
    RowSampler sampler(p, draw);
    cut = sampler.Cut(p.in.params[row_params]);
  }
  if (threadIdx.x == 0) cuts[draw.row] = cut;
}

template <typename T, typename Policy>
absl::Status LaunchDraw(const Params& p, cudaStream_t stream) {
  return Launch(DrawRows<T, Policy>,
                {.grid = dim3(p.in.max_draws), .block = dim3(Policy::kThreads)},
                stream, p);
}

template <typename T>
absl::Status LaunchDraw(const Params& p, const CudaDevice& device,
                        cudaStream_t stream) {
  const bool few = p.in.max_draws <= device.num_sms;
  return few ? LaunchDraw<T, FewDraws>(p, stream)
             : LaunchDraw<T, ManyDraws>(p, stream);
}

}  // namespace

absl::Status FindRowCuts(const Params& p, RowCut* cuts, cudaStream_t stream) {
  return Launch(
      CutRows,
      {.grid = dim3(p.in.num_rows), .block = dim3(ManyDraws::kThreads)}, stream,
      p, cuts);
}

absl::Status DrawTokens(const Params& p, const CudaDevice& device,
                        cudaStream_t stream) {
  return p.in.dtype == DType::kFloat32
             ? LaunchDraw<float>(p, device, stream)
             : LaunchDraw<uint16_t>(p, device, stream);
}

}  // namespace espalier::cuda_sample
