// Scores of cross-attention themselves, on the device: AttentionScores
// (kernels/attention/attention_scores.h) of some heads and consecutive queries.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/attention/cuda_attention.h"
#include "kernels/kv_cache/cuda_kv_cache.h"

namespace espalier {

// A launch has so many heads at most.
inline constexpr int kMaxCudaScoredHeads = 64;

// Heads of one layer, and their places among those of a query's scores.
struct CudaScoredHeads {
  int count = 0;
  int heads[kMaxCudaScoredHeads] = {};
  int places[kMaxCudaScoredHeads] = {};
};

struct CudaAttentionScoresInputs {
  // Host values.
  int num_queries = 0;
  int num_positions = 0;  // keys at positions [0, num_positions)
  int num_places = 0;     // heads in `scores`
  int q_stride = 0;       // elements
  CudaScoredHeads heads = {};

  // Memory of the device.
  const void* q = nullptr;     // [num_queries, q_stride]  dtype of the cache
  const int* table = nullptr;  // page ids of the positions
};

// Fills scores[query, places[i], p] with scale * q k^T of heads[i] and the key
// at position p, summed in float32.
//   scores  [num_queries, num_places, num_positions]  f32, of the device, or
//               host memory that it writes in place
// A score depends on its query and key alone: the same bits in any batch and
// at any page size. Enqueues on `stream` one launch and returns; never
// allocates.
// Errors: kInvalidArgument if shapes are impossible or disagree; kInternal if
// the launch is refused.
absl::Status CudaAttentionScores(const CudaAttentionScoresInputs& inputs,
                                 const CudaAttentionShape& shape,
                                 const CudaKvCache& cache, int layer,
                                 float* scores, cudaStream_t stream);

}  // namespace espalier
