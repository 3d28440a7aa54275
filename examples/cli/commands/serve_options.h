// The options of espalier serve (serve_command.h) that are its own.
#pragma once

#include <CLI/App.hpp>

#include "examples/cli/commands/serve_command.h"

namespace espalier::cli {

void AddServeOptions(CLI::App* command, ServeOptions* options);

}  // namespace espalier::cli
