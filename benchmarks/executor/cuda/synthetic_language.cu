#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "benchmarks/executor/cuda/synthetic_language.h"

namespace espalier {
namespace {

constexpr int kLanguageThreads = 256;

__global__ void WriteLogits(CudaBatch batch, int vocab_size, float noise,
                            float* logits) {
  LaunchDependents();
  GridDependencyWait();
  const int row = blockIdx.x;
  if (row >= batch.num_logits) return;
  const int t = batch.logits_tokens == nullptr ? row : batch.logits_tokens[row];
  const uint32_t context = ContextHash(batch.tokens[t], batch.positions[t]);
  float* const out = logits + int64_t{row} * vocab_size;
  for (int v = threadIdx.x; v < vocab_size; v += kLanguageThreads) {
    out[v] = kOtherLogit;
  }
  __syncthreads();
  if (threadIdx.x < kNumContinuations) {
    const uint32_t token =
        (context % vocab_size + 977u * threadIdx.x) % vocab_size;
    out[token] = SyntheticLogit(context, threadIdx.x, noise);
  }
}

}  // namespace

absl::Status SyntheticLanguage::Enqueue(const CudaBatch& batch, float* logits,
                                        cudaStream_t stream) {
  RETURN_IF_ERROR(model().Enqueue(batch, logits, stream));
  if (batch.num_logits == 0) return absl::OkStatus();
  return Launch(WriteLogits,
                {.grid = {static_cast<unsigned>(batch.num_logits)},
                 .block = {kLanguageThreads}},
                stream, batch, description().vocab_size, noise_, logits);
}

}  // namespace espalier
