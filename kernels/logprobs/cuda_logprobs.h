// Log-probabilities of given tokens on the device: the prompt's own tokens, and
// chosen ones. CudaSelect finds the best alternatives of a row: one group a
// row, kLogits, no edits.
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

// A request for the log-probability of a token.
// REQUIRES: token in [0, vocab_size), and below vocab_end if that is set.
struct CudaLogprobQuery {
  int row = 0;  // row of logits
  TokenId token = 0;
  // Only tokens below it count, as if it were vocab_size. 0: all count.
  int vocab_end = 0;
};

// NaN counts as -inf, as in selection. A row without a logit above -inf has a
// log_prob of -inf.
struct CudaTokenScore {
  float log_prob = 0;  // nats
  int rank = 1;        // 1 + number of likelier tokens in the row
};

struct CudaLogprobsInputs {
  // Host values.
  DType dtype = DType::kFloat32;  // kFloat32 or kBFloat16
  int vocab_size = 0;
  int max_asked = 0;  // bound of *num_logprob_queries: sizes the launch

  // Device memory.
  // Read fastest where rows begin at multiples of 16 bytes.
  const void* logits = nullptr;              // [rows, vocab_size]
  const int* num_logprob_queries = nullptr;  // [1]
  const CudaLogprobQuery* asked = nullptr;   // [max_asked]
};

// scores[i] is the score of asked[i]. Reads a row once for each of its queries.
// All inputs are in device memory, so that a captured graph serves any list;
// the previous kernel may write the queries. Enqueues on `stream` and returns;
// needs no scratch.
// Errors: kInvalidArgument if a shape is impossible; kInternal if the launch is
// refused.
absl::Status CudaLogprobs(const CudaLogprobsInputs& inputs,
                          CudaTokenScore* scores, cudaStream_t stream);

}  // namespace espalier
