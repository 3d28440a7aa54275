// Bound by latency: a few thousand words, and their transfer to the host.
#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/resident/cuda_step_logprobs.h"

namespace espalier {
namespace {

// One block per group; a group of 64 beams has 128 candidates.
constexpr int kAskThreads = 128;

__global__ void __launch_bounds__(kAskThreads)
    AskOfCandidates(CudaStepLogprobs log_probs, const Candidate* candidates,
                    int vocab_size) {
  LaunchDependents();
  GridDependencyWait();
  const int group_idx = blockIdx.x;
  if (group_idx >= log_probs.counts->num_asking_groups) return;
  const CudaLogprobGroup group = log_probs.asking_groups[group_idx];
  for (int i = threadIdx.x; i < group.num_candidates; i += kAskThreads) {
    // Places without a candidate have stale contents.
    const Candidate candidate = candidates[group.first_candidate + i];
    const int row = min(max(candidate.beam, 0), group.num_rows - 1);
    const int token = min(max(candidate.token, 0), vocab_size - 1);
    log_probs.asked[group.first_asked + i] = {group.first_row + row, token};
  }
}

// Enough to send a report of thousands of words to the host at once.
constexpr int kReportThreads = 256;
constexpr int kReportBlocks = 16;

template <typename T>
__device__ void CopyOut(const T* from, int count, T* to) {
  for (int i = blockIdx.x * kReportThreads + threadIdx.x; i < count;
       i += kReportBlocks * kReportThreads) {
    to[i] = from[i];
  }
}

__global__ void __launch_bounds__(kReportThreads)
    ReportLogProbs(CudaStepLogprobs log_probs, const CudaStepClock* clock,
                   CudaLogprobRing reports) {
  LaunchDependents();
  GridDependencyWait();
  const CudaLogprobCounts counts = *log_probs.counts;
  const int64_t report = (clock->num_steps - 1) % reports.num_reports;
  CopyOut(log_probs.scores, counts.num_logprob_queries,
          reports.scores + report * reports.max_asked);
  CopyOut(log_probs.best, counts.num_best,
          reports.best + report * reports.max_best);
  CopyOut(log_probs.num_found, counts.num_best_groups,
          reports.num_found + report * reports.max_logits_rows);
}

}  // namespace

absl::Status CudaGatherLogprobQueries(const CudaStepLogprobs& log_probs,
                                      const Candidate* candidates,
                                      int vocab_size, int max_groups,
                                      cudaStream_t stream) {
  return Launch(
      AskOfCandidates,
      {.grid = {static_cast<unsigned>(max_groups)}, .block = {kAskThreads}},
      stream, log_probs, candidates, vocab_size);
}

absl::Status CudaReportLogprobs(const CudaStepLogprobs& log_probs,
                                const CudaStepClock* clock,
                                const CudaLogprobRing& reports,
                                cudaStream_t stream) {
  return Launch(ReportLogProbs,
                {.grid = {kReportBlocks}, .block = {kReportThreads}}, stream,
                log_probs, clock, reports);
}

}  // namespace espalier
