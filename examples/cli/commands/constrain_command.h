// espalier constrain: a language that texts can be constrained to, and which
// texts are in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/cli/options/option_names.h"

namespace espalier::cli {

struct ConstrainOptions {
  // Exactly one kind of language; none is needed with must_contain.
  std::string regex;
  std::vector<std::string> choices;
  std::string json_schema;  // file
  std::string grammar;      // file
  std::string items;        // file; no language, but a catalogue
  std::vector<std::string> must_contain;
  bool no_spaces = false;  // in its texts
  // "bounded", "none" or a regular expression; empty: as no_spaces says
  std::string whitespace;
  std::string start_after;  // text in front of it; empty: none
  // Directory whose tokenizer spells the texts; empty: no tokens are shown. Its
  // weights are not read.
  std::string model;
  std::vector<std::string> texts;
  std::string input;  // JSON lines; empty: none
  int num_samples = 3;
  int64_t seed = 0;        // draws the samples
  bool json = false;       // JSON lines out
  OptionNames names = {};  // as typed
};

// Runs the subcommand and returns the program's exit code.
// Errors: why it could not run.
absl::StatusOr<int> Constrain(const ConstrainOptions& options);

// The end of its help.
extern const char kConstrainExamples[];

}  // namespace espalier::cli
