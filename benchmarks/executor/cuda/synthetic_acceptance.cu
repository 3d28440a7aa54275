#include <cstdint>

#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "benchmarks/executor/cuda/synthetic_acceptance.h"
#include "benchmarks/executor/cuda/synthetic_language.h"

namespace espalier {
namespace {

constexpr int kSyntheticThreads = 128;

__global__ void MakeCertain(CudaBatch batch, int vocab_size, float agreement,
                            float* logits) {
  LaunchDependents();
  GridDependencyWait();
  const int row = blockIdx.x * kSyntheticThreads + threadIdx.x;
  if (row >= batch.num_logits) return;
  const int t = batch.logits_tokens == nullptr ? row : batch.logits_tokens[row];
  const uint32_t hash =
      MixBits(MixBits(batch.tokens[t]) ^ (batch.positions[t] + 1));
  const float uniform = (MixBits(hash + 0x9E3779B9u) >> 8) * 0x1p-24f;
  const uint32_t token = hash % vocab_size;
  const uint32_t other = (token + 1) % vocab_size;
  logits[int64_t{row} * vocab_size + (uniform < agreement ? token : other)] =
      1e4f;
}

}  // namespace

absl::Status SyntheticModel::Enqueue(const CudaBatch& batch, float* logits,
                                     cudaStream_t stream) {
  RETURN_IF_ERROR(model().Enqueue(batch, logits, stream));
  if (batch.num_logits == 0) return absl::OkStatus();
  const unsigned blocks =
      (batch.num_logits + kSyntheticThreads - 1) / kSyntheticThreads;
  return Launch(MakeCertain, {.grid = {blocks}, .block = {kSyntheticThreads}},
                stream, batch, description().vocab_size,
                static_cast<float>(agreement_), logits);
}

}  // namespace espalier
