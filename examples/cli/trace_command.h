// `espalier trace`: a trace as a picture.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace espalier::cli {

struct TraceOptions {
  std::string file;
  std::string format;  // empty: by the ending of `output`, or text
  std::string output = "-";
  // Only requests of this id, as their caller gave it; or, where there is none,
  // the one of this number.
  std::optional<std::string> request;
};

// Errors: what is wrong with the trace or the options, or why the picture could
// not be written.
absl::Status DrawTrace(const TraceOptions& options);

// The end of its help.
extern const char kTraceExamples[];

}  // namespace espalier::cli
