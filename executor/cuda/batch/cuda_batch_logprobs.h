// CudaBatchLogprobs: which log-probabilities a step's batch asks for: those of
// groups' candidates, those of rows of logits whose next token is known, and
// the best tokens of rows (kernels/resident/cuda_step_logprobs.h). It writes
// the batch's arrays of them.
//
// Thread safety: a plain value.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "executor/cuda/batch/cuda_batch_arrays.h"
#include "kernels/resident/cuda_step_logprobs.h"

namespace espalier {

// Where the answers about a candidate list, or some rows of logits, will be.
struct CudaLogprobPlace {
  int first_asked = -1;  // of the first token; -1: nothing was asked
  // Of the first row of logits, whose best tokens are at first_best; the next
  // row's are `num_best` places after.
  int first_best_group = 0;
  int first_best = 0;
  int num_best = 0;  // of a row of logits
};

struct CudaBatchLogprobs {
  explicit CudaBatchLogprobs(int size) : vocab_size(size) {}

  // About the candidates of a group with rows of logits [first_row,
  // first_row + num_rows), and the `num_logprobs` best tokens of each row.
  // The batch has these rows.
  CudaLogprobPlace AskGroup(CudaLogprobGroup group, int num_logprobs,
                            CudaBatchArrays<HostArray>* batch);
  // About rows of logits from `first_logits_row` on whose next tokens are
  // known. After all groups.
  CudaLogprobPlace AskKnown(int first_logits_row, std::span<const TokenId> next,
                            int num_logprobs,
                            CudaBatchArrays<HostArray>* batch);

  const int vocab_size;
  std::vector<CudaLogprobQuery> known;  // the last of those asked
  int max_best = 0;                     // of a row of logits

 private:
  void AddBest(int first_logits_row, int num_logits_rows, int num_logprobs,
               CudaBatchArrays<HostArray>* batch, CudaLogprobPlace* place);
};

}  // namespace espalier
