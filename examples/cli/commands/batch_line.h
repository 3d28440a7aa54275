// One line of espalier batch: a request in JSON, its answer in JSON.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "examples/cli/commands/batch_command.h"
#include "examples/cli/output/draw_note.h"
#include "examples/cli/runtime/runtime.h"

namespace espalier::cli {

// Answer to one line.
struct LineAnswer {
  std::string line;  // without its end
  absl::StatusCode code = absl::StatusCode::kOk;
  std::vector<DrawNote> notes = {};
};

// Runs one line, and makes all that is made of it where it is spawned. Lines
// are counted from 0.
boost::asio::awaitable<LineAnswer> RunLine(Runtime* runtime, std::string line,
                                           int64_t line_number,
                                           const BatchOptions& options);

}  // namespace espalier::cli
