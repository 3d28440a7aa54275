// Error messages for a command line that cannot be parsed: the fault, and a
// guess at what was meant.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "examples/cli/options/option_names.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace espalier::cli {

// Returns the names that `args` use for the options of `command`.
OptionNames TypedNames(const CLI::App& command, std::span<char* const> args);

// Rejects arguments that the CLI library would misread: `--option=` with
// nothing after it takes the next argument as its value, an option that needs a
// value takes the name of the next option, and `true`, `1` and so on after a
// flag of generate become a text.
// Errors: kInvalidArgument, as DescribeUsageError words it.
absl::Status CheckArguments(const CLI::App& app, std::span<char* const> args);

// Returns the fault and, on a second line, the command that prints help,
// without "espalier: " and a line end. `error` is the exception that `app`
// threw when it read `args`.
std::string DescribeUsageError(const CLI::App& app, std::span<char* const> args,
                               const CLI::ParseError& error);

}  // namespace espalier::cli
