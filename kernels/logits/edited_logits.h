// Edited logits: a copy of a row after its edits and the rule of timestamps. A
// selection that reads the copy, and no edits, normalises over what they leave:
// log-probabilities are those of log_softmax(edited logits). Selections that
// read edits beside the row have those of the whole row (select.h, sample.h).
//
// Thread safety: pure functions.
#pragma once

#include <span>

#include "kernels/logits/score_processors.h"
#include "kernels/logits/timestamp_rule.h"

namespace espalier {

struct LogitEdits {
  float repetition_penalty = 1.0f;
  std::span<const TokenEdit> edits = {};  // ascending by token, each once
  bool is_allow_list = false;             // all other tokens are banned
  const TimestampRule* rule = nullptr;    // null: none
  TimestampState state = {};              // for the rule
};

// Writes the edited logits; banned tokens have -inf. Reads the row once and
// writes it once, 8 * vocab_size bytes; the rule reads the copy again.
//   logits  [vocab_size]  f32
//   edited  [vocab_size]  f32  out
// REQUIRES: edited tokens, and all tokens of the rule but last_first_time, in
// [0, vocab_size).
void WriteEditedLogits(std::span<const float> logits, const LogitEdits& edits,
                       std::span<float> edited);

}  // namespace espalier
