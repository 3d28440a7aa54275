// espalier generate: texts in, n-best lists out, for people.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/cli/options/options.h"

namespace espalier::cli {

struct GenerateOptions {
  CommonOptions common;
  ParamTexts params;
  std::vector<std::string> texts;
  std::string file;
  bool stream = false;
};

// Runs the subcommand and returns the program's exit code.
// Errors: why it could not run.
absl::StatusOr<int> Generate(const GenerateOptions& options);

// The end of its help.
extern const char kGenerateExamples[];

}  // namespace espalier::cli
