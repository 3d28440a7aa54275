// espalier: beam search at a terminal.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <csignal>
#include <memory>
#include <utility>

#include "base/status.h"
#include "examples/cli/batch_command.h"
#include "examples/cli/generate_command.h"
#include "examples/cli/help_formatter.h"
#include "examples/cli/interrupt.h"
#include "examples/cli/options.h"
#include "examples/cli/output.h"
#include "examples/cli/trace_command.h"
#include "examples/cli/usage_error.h"

namespace espalier::cli {
namespace {

// A program may be started with closed standard streams. What it opens next
// would take their place, and get what is printed, so that something has to be
// there: here what fails when it is used as that stream.
void HoldStandardStreams() {
  for (const auto& [fd, mode] :
       {std::pair(STDIN_FILENO, O_WRONLY), std::pair(STDOUT_FILENO, O_RDONLY),
        std::pair(STDERR_FILENO, O_RDWR)}) {
    if (fcntl(fd, F_GETFD) == -1) open("/dev/null", mode);
  }
}

int Run(int argc, char** argv) {
  CLI::App app("espalier: beam search over shared, paged memory", "espalier");
  app.formatter(std::make_shared<HelpFormatter>());  // of commands, too
  app.require_subcommand(1);
  app.set_version_flag("--version", "espalier " ESPALIER_VERSION);
  int exit_code = kAllSucceeded;
  AddGenerateCommand(&app, &exit_code);
  AddBatchCommand(&app, &exit_code);
  AddTraceCommand(&app, &exit_code);
  for (CLI::App* command : app.get_subcommands(nullptr)) {
    RefuseEmptyValues(command);
  }
  app.footer("espalier COMMAND --help explains a command, with examples.");
  const absl::Status arguments = CheckArguments(app, {argv, argv + argc});
  if (!arguments.ok()) return Refuse(arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return Refuse(InvalidArgument(DescribeUsageError(app, error)));
  }
  return exit_code;
}

}  // namespace
}  // namespace espalier::cli

int main(int argc, char** argv) {
  espalier::cli::HoldStandardStreams();
  const int exit_code = espalier::cli::Run(argc, argv);
  // Who started the program may want to know that a signal ended it: a shell
  // then ends its loop, too.
  if (exit_code > espalier::cli::ExitCodeOf(0)) {
    std::raise(exit_code - espalier::cli::ExitCodeOf(0));
  }
  return exit_code;
}
