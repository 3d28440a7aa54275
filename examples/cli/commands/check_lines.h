// CheckLines: checks a file of JSON lines, line by line.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "examples/cli/input/line_reader.h"
#include "examples/cli/output/output.h"

namespace espalier::cli {

// Calls `check` with each line of `reader` that is not blank, until `output`
// fails. Its error is printed to stderr with the line's place, and with `json`
// to `output` as {"error": ...}. Returns the number of lines with an error.
// Errors: of reading.
absl::StatusOr<int64_t> CheckLines(
    LineReader& reader, bool json, Output& output,
    absl::FunctionRef<absl::Status(const std::string& line)> check);

}  // namespace espalier::cli
