// Log-probabilities of given tokens on the device: of the prompt's own, and of
// tokens that were chosen. The best alternatives of a row are CudaSelect's
// business: one group a row, kLogits, no edits.
//
// A token's log_prob is (logit - max) - log_sum of its raw row, one float32
// rounding an operation, and a pure function of the row, the same bits as
// CudaSelect's and CudaSample's.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "base/dtype.h"
#include "base/ids.h"

namespace espalier {

// A token whose log-probability is wanted.
// REQUIRES: token in [0, vocab_size).
struct CudaLogprobQuery {
  int row = 0;  // of logits
  TokenId token = 0;
};

// NaN counts as -inf, as in selection; of a row that has nothing else, so is
// its log_prob.
struct CudaTokenScore {
  float log_prob = 0;  // nats
  int rank = 1;        // 1 + how many tokens of the row are likelier
};

struct CudaLogprobsInputs {
  // Host values.
  DType dtype = DType::kFloat32;  // of logits: kFloat32 or kBFloat16
  int vocab_size = 0;
  int max_asked = 0;  // bound of *num_logprob_queries: sizes the launch

  // Device memory.
  // Read fastest where rows begin at multiples of 16 bytes.
  const void* logits = nullptr;              // [rows, vocab_size]
  const int* num_logprob_queries = nullptr;  // [1]
  const CudaLogprobQuery* asked = nullptr;   // [max_asked]
};

// scores[i] is that of asked[i]. Reads a row once for each of its tokens that
// is asked for. Everything in device memory, so that a captured graph serves
// any list; what is asked may be written by the kernel before. Enqueues on
// `stream` and returns; needs no scratch. Errors: kInvalidArgument if a shape
// is impossible; kInternal if the launch is refused.
absl::Status CudaLogprobs(const CudaLogprobsInputs& inputs,
                          CudaTokenScore* scores, cudaStream_t stream);

}  // namespace espalier
