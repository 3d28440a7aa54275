// espalier batch: one JSON request a line in, one JSON answer a line out, in
// input order (docs/request_format.md). All lines run concurrently.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "examples/cli/input/line_reader.h"
#include "examples/cli/options/options.h"
#include "request/json/request_json.h"

namespace espalier::cli {

struct BatchOptions {
  CommonOptions common;
  std::string input = "-";
  std::string output = "-";
  int64_t max_line_bytes = kMaxLineBytes;
  RequestLineLimits limits = {.max_list_elements_name = "--max-list-elements"};
};

// Runs the subcommand and returns the program's exit code.
// Errors: why it could not run, or not read or write to the end.
absl::StatusOr<int> RunBatch(const BatchOptions& options);

// The end of its help.
extern const char kBatchExamples[];

}  // namespace espalier::cli
