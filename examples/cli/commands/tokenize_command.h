// espalier tokenize: texts and conversations as tokens of a model, and back.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/cli/options/option_names.h"

namespace espalier::cli {

struct TokenizeOptions {
  std::string model;  // directory; its weights are not looked at
  // Arguments in place of lines: a text each, or with `decode` one list of ids.
  std::vector<std::string> texts;
  std::string input;  // JSON lines, where there are no texts; empty: stdin
  // If set, names of special tokens in a text become those tokens, which text
  // of a user never does elsewhere.
  bool special = false;
  // The other way: tokens to texts, special tokens shown.
  bool decode = false;
  // Beside the tokens of a text a spelling of each.
  bool pieces = false;
  // Conversations, as the model's chat template makes prompts of them.
  bool chat = false;
  // With `chat`: also prints the template's output.
  bool rendered = false;
  OptionNames names;  // as typed
};

// Runs the subcommand and returns the program's exit code.
// Errors: why it could not run.
absl::StatusOr<int> Tokenize(const TokenizeOptions& options);

// The end of its help.
extern const char kTokenizeExamples[];

}  // namespace espalier::cli
