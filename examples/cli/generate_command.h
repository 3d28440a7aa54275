// espalier generate: texts in, n-best lists out, for people.
#pragma once

#include <CLI/App.hpp>
#include <memory>

namespace espalier::cli {

// Adds the subcommand to `app`; `*exit_code` is set when it runs.
void AddGenerateCommand(CLI::App* app, int* exit_code);

}  // namespace espalier::cli
