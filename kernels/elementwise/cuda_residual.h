// The residual stream of models that need more than CudaEmbed and
// CudaAddRmsNorm (cuda_elementwise.h): LayerNorm, biases of products, norms of
// a branch or of the sum, embeddings that are scaled, normed or have positions.
// Other models keep those kernels, which select their operations at compile
// time; the ones here select them at launch.
//
// Rows, arithmetic, NaN and infinities, streams and errors are as in
// cuda_elementwise.h; LayerNorm's as in kernels/elementwise/elementwise.h.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "kernels/cuda_matrix.h"
#include "kernels/elementwise/cuda_elementwise.h"

namespace espalier {

// The addition of a part of a layer to the residual stream: the sum of
// `partials` plus `bias`, or the RMSNorm of that.
struct CudaBranch {
  // [num_rows, width] each; none: their sum is in the stream already.
  SplitKPartials partials = {};
  // Constant, [width], zero padded; null if the model has none. The norm has
  // the size and epsilon of the following one.
  const float* bias = nullptr;
  const float* post_norm = nullptr;
};

// x += branch, and out = norm(x); with norm.replaces_x also x = norm(x).
//   x    [num_rows, width]  f32    device
//   out  [num_rows, width]  dtype  device
// Errors: also kInvalidArgument for a post_norm without partials.
absl::Status CudaAddBranch(float* x, const CudaBranch& branch, int num_rows,
                           const CudaNorm& norm, DType dtype, void* out,
                           cudaStream_t stream);

// The embedding of a token: its row of one table times `scale`, plus the row of
// its position in another.
struct CudaEmbedding {
  CudaMatrix tokens;  // [vocab_size, width]
  float scale = 1;
  CudaMatrix positions = {};        // [num_positions, width]; no data: none
  int token_without_position = -1;  // a token that gets none; -1: no token

  bool is_plain() const { return scale == 1 && positions.data == nullptr; }
};

// x = the tokens' embeddings, and normed = norm(x), as CudaAddBranch. It is a
// forward pass's GridDependency::kBarrier, as CudaEmbed.
//   tokens, positions  [num_tokens]         device, within their tables; null
//       tokens: row i is of token i
//   x                  [num_tokens, width]  f32              device
//   normed             [num_tokens, width]  the tables' dtype  device
// REQUIRES: both tables have norm.width columns and one dtype.
absl::Status CudaEmbedTokens(const int* tokens, const int* positions,
                             int num_tokens, const CudaEmbedding& embedding,
                             const CudaNorm& norm, float* x, void* normed,
                             cudaStream_t stream);

}  // namespace espalier
