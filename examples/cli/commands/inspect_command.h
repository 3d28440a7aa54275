// espalier inspect: the contents of a model directory, and its requirements.
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

// Prints each directory's contents, its memory, and whether it runs here.
// Returns the program's exit code: kNothingRan if none runs, kSomeFailed if
// some do not.
// Errors: if the only directory is not that of a model, or the output cannot be
// written. With several directories, such an error is printed in its place.
absl::StatusOr<int> Inspect(const InspectOptions& options);

// The end of its help.
extern const char kInspectExamples[];

}  // namespace espalier::cli
