// GenerationParams: the options of a request, under the names of the request
// format and with its defaults, and the one place where they are checked.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"

namespace espalier {

struct ModelDescription;

// When a beam search ends before its length limit (transformers 5
// `_beam_search`; docs/groups.md has the formulas).
enum class EarlyStopping {
  kFalse,  // when the best live beam, at its present length, cannot beat the
           // worst kept hypothesis
  kTrue,   // when num_beams hypotheses are kept
  kNever,  // when no live beam can beat it at any length
};

struct GenerationParams {
  // Beams that live at a step; 1 is greedy search. >= 1.
  int64_t num_beams = 1;
  // Hypotheses returned, best first. In [1, num_beams].
  int64_t num_return_sequences = 1;
  // Exponent on the generated length, the EOS included and the prompt not:
  // score = cum_log_prob / length^length_penalty. Any finite number; > 0
  // favours longer, < 0 shorter hypotheses.
  double length_penalty = 1.0;
  EarlyStopping early_stopping = EarlyStopping::kFalse;
  // Tokens generated at most; >= 1. Unset: the model's default, but no more
  // than its context leaves room for.
  std::optional<int64_t> max_new_tokens;
  // EOS is impossible before so many tokens; >= 0. From max_new_tokens on it
  // never comes, as in the reference.
  int64_t min_new_tokens = 0;
  // Ids that end a sequence. Unset: the model's. Empty: none.
  std::optional<std::vector<int64_t>> eos_token_id;
  // ScoreProcessors of kernels/score_processors.h.
  double repetition_penalty = 1.0;  // > 0
  int64_t no_repeat_ngram_size = 0;
  std::vector<std::vector<int64_t>> bad_words_ids;
  std::vector<int64_t> suppress_tokens;
};

// Checks `params` for a prompt of `num_prompt_tokens` against `model` and
// fills in the model's defaults, so that max_new_tokens and eos_token_id are
// set afterwards.
// Errors: kInvalidArgument naming the field and the value.
absl::Status ValidateParams(const ModelDescription& model,
                            int64_t num_prompt_tokens,
                            GenerationParams* params);

}  // namespace espalier
