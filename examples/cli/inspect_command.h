// espalier inspect: what a model directory is, and what it needs to run.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace espalier::cli {

struct InspectOptions {
  std::string model;  // directory
  int num_beams = 8;  // the widest search to be shown
};

// Prints what the directory holds, what it takes, and whether it runs here.
// Returns the program's exit code: kNothingRan if it does not run.
// Errors: there is no model, or the output cannot be written.
absl::StatusOr<int> Inspect(const InspectOptions& options);

// The end of its help.
extern const char kInspectExamples[];

}  // namespace espalier::cli
