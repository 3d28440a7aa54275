// CudaBatchLogprobs: the log-probability queries of a step's batch: for
// candidates of groups, for rows of logits whose next token is known, and for
// the best tokens of rows (kernels/resident/cuda_step_logprobs.h). It writes
// them to the batch's arrays.
//
// Thread safety: a plain value.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "executor/cuda/batch/cuda_batch_arrays.h"
#include "kernels/resident/cuda_step_logprobs.h"

namespace espalier {

// Offsets of the results for one candidate list or some rows of logits.
struct CudaLogprobPlace {
  int first_asked = -1;  // query of the first token; -1: no queries
  // Group of the first row of logits. Its best tokens begin at first_best, the
  // next row's `num_best` places later.
  int first_best_group = 0;
  int first_best = 0;
  int num_best = 0;  // per row of logits
};

struct CudaBatchLogprobs {
  explicit CudaBatchLogprobs(int size) : vocab_size(size) {}

  // Requests the log-probabilities of a group's candidates, and the
  // `num_logprobs` best tokens of each of its rows of logits [first_row,
  // first_row + num_rows).
  // REQUIRES: the batch has these rows.
  CudaLogprobPlace AskGroup(CudaLogprobGroup group, int num_logprobs,
                            CudaBatchArrays<HostArray>* batch);
  // Requests the log-probabilities of the tokens `next`, which follow the rows
  // of logits from `first_logits_row` on, and the best tokens of these rows.
  // A row whose next token is below `num_text_tokens` is normalized over the
  // tokens below it alone (AlignmentQuery).
  // REQUIRES: all groups were added before.
  CudaLogprobPlace AskKnown(int first_logits_row, std::span<const TokenId> next,
                            int num_logprobs, int num_text_tokens,
                            CudaBatchArrays<HostArray>* batch);

  const int vocab_size;
  std::vector<CudaLogprobQuery> known;  // AskKnown's; after all other queries
  int max_best = 0;                     // maximum of num_best

 private:
  void AddBest(int first_logits_row, int num_logits_rows, int num_logprobs,
               CudaBatchArrays<HostArray>* batch, CudaLogprobPlace* place);
};

}  // namespace espalier
