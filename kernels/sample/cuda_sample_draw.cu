// One block or cluster per draw: samples the token from the statistics of a
// row's tiles (cuda_sample.cu).
#include "kernels/cuda_kernel_support.cuh"
#include "kernels/sample/cuda_sample_draw.cuh"

namespace espalier::cuda_sample {
namespace {

template <typename T, typename Policy>
__global__ __launch_bounds__(
    Policy::kThreads,
    Policy::kMinBlocks) void DrawRows(const __grid_constant__ Params p) {
  LaunchDependents();
  const DrawTask task(p, static_cast<int>(blockIdx.x) / NumBlocks<Policy>());
  Clear<Policy>(p.in.vocab_size);
  GridDependencyWait();
  if (!task.exists) return;
  if (!task.alive) return task.AnswerDead<Policy>(p);
  Sampler<T, Policy> sampler(p, task.draw, TilesOf(p, task.draw.row));
  const Drawn drawn = sampler.Draw(task);
  if (drawn.token != kNotLeader) task.Answer(p, drawn);
}

// Writes the cut of each float32 row: the tokens that its filters keep.
__global__ __launch_bounds__(
    LargeBatchPolicy::kThreads,
    LargeBatchPolicy::kMinBlocks) void CutRows(const __grid_constant__ Params p,
                                               RowCut* cuts) {
  LaunchDependents();
  const CudaDraw draw = {.row = static_cast<int>(blockIdx.x)};
  const float cum = p.in.cum_log_probs[draw.row];
  const int row_params = p.in.row_params[draw.row];
  using RowSampler = Sampler<float, LargeBatchPolicy>;
  Clear<LargeBatchPolicy>(p.in.vocab_size);
  GridDependencyWait();
  RowCut cut;
  cut.token = kNoToken;
  if (row_params >= 0 && cum > MinusInf()) {
    RowSampler sampler(p, draw, TilesOf(p, draw.row));
    cut = sampler.Cut(RowOptions(p.in.params[row_params]));
  }
  if (threadIdx.x == 0) cuts[draw.row] = cut;
}

LaunchConfig ShapeOfFew(const Params& p, int num_blocks) {
  return {.grid = dim3(p.in.max_draws * num_blocks),
          .block = dim3(SmallBatchPolicy::kThreads),
          .cluster = num_blocks,
          .dependency = GridDependency::kReadsEarly};
}

// Blocks of a draw: they divide a search over a row, and all but the first exit
// if one is enough. Clusters of more than two that take over half of the device
// would wait for each other, since not all fit side by side. Rows of more tiles
// than a block has threads, half a million tokens, are too rare to support.
template <typename T>
int NumBlocksOfFew(const Params& p, const CudaDevice& device) {
  const int max_draws = p.in.max_draws;
  if (!HasClusters(DrawRows<T, SmallBatchPolicy>, device) ||
      p.num_tiles > SmallBatchPolicy::kThreads) {
    return 1;
  }
  int num_blocks = kMaxCluster;
  while (num_blocks > 2 && max_draws * num_blocks > device.num_sms / 2) {
    num_blocks /= 2;
  }
  if (max_draws * num_blocks > device.num_sms) return 1;
  // Not every device supports clusters of 16 blocks.
  while (num_blocks > 1 && MaxActiveClusters(DrawRows<T, SmallBatchPolicy>,
                                             ShapeOfFew(p, num_blocks)) == 0) {
    num_blocks /= 2;
  }
  return num_blocks;
}

template <typename T>
absl::Status LaunchDraw(const Params& p, const CudaDevice& device,
                        cudaStream_t stream) {
  if (p.in.max_draws <= device.num_sms) {
    return Launch(DrawRows<T, SmallBatchPolicy>,
                  ShapeOfFew(p, NumBlocksOfFew<T>(p, device)), stream, p);
  }
  return Launch(DrawRows<T, LargeBatchPolicy>,
                {.grid = dim3(p.in.max_draws),
                 .block = dim3(LargeBatchPolicy::kThreads),
                 .dependency = GridDependency::kReadsEarly},
                stream, p);
}

}  // namespace

absl::Status FindRowCuts(const Params& p, RowCut* cuts, cudaStream_t stream) {
  return Launch(CutRows,
                {.grid = dim3(p.in.num_rows),
                 .block = dim3(LargeBatchPolicy::kThreads),
                 .dependency = GridDependency::kReadsEarly},
                stream, p, cuts);
}

absl::Status DrawTokens(const Params& p, const CudaDevice& device,
                        cudaStream_t stream) {
  return ByRowType(
      p.in, [&]<typename T>() { return LaunchDraw<T>(p, device, stream); });
}

}  // namespace espalier::cuda_sample
