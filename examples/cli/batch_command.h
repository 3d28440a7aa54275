// espalier batch: one JSON request a line in, one JSON answer a line out, in
// input order (docs/request_format.md). All lines run concurrently.
#pragma once

#include <CLI/App.hpp>

namespace espalier::cli {

// Adds the subcommand to `app`; `*exit_code` is set when it runs.
void AddBatchCommand(CLI::App* app, int* exit_code);

}  // namespace espalier::cli
