// espalier inspect: what a model directory is, and what it needs to run.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace espalier::cli {

struct InspectOptions {
  std::vector<std::string> models;  // directories, at least one
  int num_beams = 8;                // the widest search to be shown
  bool json = false;                // one object a directory and line
};

// Prints what each directory holds, what it takes, and whether it runs here.
// Returns the program's exit code: kNothingRan if none runs, kSomeFailed if
// some do not.
// Errors: the only one is no directory of a model, or the output cannot be
// written. Of several, one that is none is told of in its place.
absl::StatusOr<int> Inspect(const InspectOptions& options);

// The end of its help.
extern const char kInspectExamples[];

}  // namespace espalier::cli
