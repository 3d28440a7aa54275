// The edits of rows of logits on the device, and the limits of a call.
#pragma once

#include <cstdint>

#include "kernels/logits/score_processors.h"

namespace espalier {

// The edits of a row: edits[begin, end), sorted by token, each once.
// REQUIRES: tokens in [0, vocab_size).
struct CudaRowEdits {
  int begin = 0;
  int end = 0;
  float repetition_penalty = 1.0f;
  // 1 if all other tokens are banned. An int, as rows are compared as bytes.
  int is_allow_list = 0;
  // Index of the row's token mask (kernels/constrain/token_masks.h) among those
  // of the call: tokens that are not in it are banned, and all others count as
  // edited, by an empty edit if they are not in the list. -1: none.
  int mask = -1;
};

// Maximum rows of a call: the second dimension of a grid.
inline constexpr int kMaxCudaLogitsRows = 65535;
// Maximum logits of a call: indices and counts of logits are 32-bit numbers.
inline constexpr int64_t kMaxCudaLogits = 0x7FFFFFFF;

}  // namespace espalier
