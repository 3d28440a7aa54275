// CudaLogProbImage: which log-probabilities a step's batch asks for: those of
// groups' candidates, those of lines whose next token is known, and the best
// tokens of lines (kernels/resident/cuda_step_logprobs.h). It writes the
// batch's arrays of them.
//
// Thread safety: a plain value.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "executor/cuda/cuda_batch_arrays.h"
#include "kernels/resident/cuda_step_logprobs.h"

namespace espalier {

// Where the answers about a candidate list, or some lines, will be.
struct CudaLogProbPlace {
  int first_asked = -1;  // of the first token; -1: nothing was asked
  // Of the first line, whose best tokens are at first_best; the next line's
  // are `num_best` places behind.
  int first_best_group = 0;
  int first_best = 0;
  int num_best = 0;  // of a line
};

struct CudaLogProbImage {
  explicit CudaLogProbImage(int size) : vocab_size(size) {}

  // About the candidates of a group with lines [first_row, first_row +
  // num_rows), and the `num_logprobs` best tokens of each line.
  // The batch has these lines.
  CudaLogProbPlace AskGroup(CudaLogprobGroup group, int num_logprobs,
                            CudaBatchArrays<HostArray>* batch);
  // About lines from `first_line` on whose next tokens are known. After all
  // groups.
  CudaLogProbPlace AskKnown(int first_line, std::span<const TokenId> next,
                            int num_logprobs,
                            CudaBatchArrays<HostArray>* batch);

  const int vocab_size;
  std::vector<CudaLogprobQuery> known;  // the last of those asked
  int max_best = 0;                     // of a line

 private:
  void AddBest(int first_line, int num_logits_rows, int num_logprobs,
               CudaBatchArrays<HostArray>* batch, CudaLogProbPlace* place);
};

}  // namespace espalier
