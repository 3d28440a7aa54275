// espalier: beam search at a terminal.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "examples/cli/batch_command.h"
#include "examples/cli/generate_command.h"
#include "examples/cli/options.h"
#include "examples/cli/trace_command.h"

int main(int argc, char** argv) {
  CLI::App app("espalier: beam search over shared, paged memory");
  app.require_subcommand(1);
  app.set_version_flag("--version", "espalier " ESPALIER_VERSION);
  int exit_code = espalier::cli::kAllSucceeded;
  espalier::cli::AddGenerateCommand(&app, &exit_code);
  espalier::cli::AddBatchCommand(&app, &exit_code);
  espalier::cli::AddTraceCommand(&app, &exit_code);
  app.footer("espalier COMMAND --help explains a command, with examples.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? espalier::cli::kAllSucceeded
                                : espalier::cli::kNothingRan;
  }
  return exit_code;
}
