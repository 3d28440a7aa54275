// What the program says to a command line that it does not understand: what is
// wrong, and what was probably meant.
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

// How `args` name the fields that are options of `command`, which they were
// read by.
OptionNames TypedNames(const CLI::App& command, std::span<char* const> args);

// What the library would misread: `--option=` with nothing after it takes the
// next argument for its value, an option that needs one takes the name of
// another, and `true`, `1` and so on after a flag of generate is a text.
// Errors: kInvalidArgument, as DescribeUsageError says it.
absl::Status CheckArguments(const CLI::App& app, std::span<char* const> args);

// What is wrong, and on a line of its own where to read more; without
// "espalier: " and a line end. `error` is what `app` threw when it read `args`.
std::string DescribeUsageError(const CLI::App& app, std::span<char* const> args,
                               const CLI::ParseError& error);

}  // namespace espalier::cli
