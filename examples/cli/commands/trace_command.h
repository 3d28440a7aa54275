// `espalier trace`: a trace as a picture.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "examples/cli/options/option_names.h"

namespace espalier::cli {

struct TraceOptions {
  std::string file;
  std::string format;  // empty: by the ending of `output`, or text
  std::string output = "-";
  // Draws only requests with this id of their caller, or, if no id matches, the
  // request of this number.
  std::optional<std::string> request;
  OptionNames names;  // as typed
};

// Errors: in the trace or the options, or if the picture could not be written.
absl::StatusOr<int> DrawTrace(const TraceOptions& options);

// The end of its help.
extern const char kTraceExamples[];

}  // namespace espalier::cli
