// `espalier trace`: a trace as a picture.
#pragma once

#include <CLI/App.hpp>

namespace espalier::cli {

// Adds the subcommand, which leaves its exit code in `*exit_code`.
void AddTraceCommand(CLI::App* app, int* exit_code);

}  // namespace espalier::cli
