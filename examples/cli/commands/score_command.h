// espalier score: how likely given continuations of a prompt are.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/cli/options/runtime_options.h"

namespace espalier::cli {

struct ScoreOptions {
  RuntimeOptions runtime;
  // The prompt, then its continuations; none: JSON lines of `input`.
  std::vector<std::string> texts;
  std::string input;           // "-" is stdin; empty: none was given
  std::string decoder_prompt;  // for all texts; empty: none
  bool raw = false;            // texts without a template or BOS
  bool append_eos = false;
  bool json = false;
};

// Returns the exit code.
// Errors: in the options, the model, the input or the output.
absl::StatusOr<int> Score(const ScoreOptions& options);

extern const char kScoreExamples[];

}  // namespace espalier::cli
