// `espalier trace`: a trace as a picture.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace espalier::cli {

struct TraceOptions {
  std::string file;
  std::string format = "text";
  std::string output = "-";
  std::optional<int64_t> request;  // only this one
};

// Errors: what is wrong with the trace or the options, or why the picture could
// not be written.
absl::Status DrawTrace(const TraceOptions& options);

// The end of its help.
extern const char kTraceExamples[];

}  // namespace espalier::cli
