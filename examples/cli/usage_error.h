// What the program says to a command line that it does not understand: what is
// wrong, and what was probably meant.
#pragma once

#include <CLI/App.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace espalier::cli {

// Of `names` the one that `word` was probably meant to be, both as the command
// line writes them, dashes in front aside: one that it is a part of, or that a
// few changed letters make of it; "" if there is none.
std::string Nearest(std::string_view word,
                    const std::vector<std::string>& names);

// That no argument is `--option=` with nothing behind it: the library would
// take the next argument for the value.
// Errors: kInvalidArgument, as DescribeUsageError says it.
absl::Status CheckValuesAreGiven(const CLI::App& app,
                                 std::span<char* const> args);

// What is wrong, and on a line of its own where to read more; without
// "espalier: " and a line end. `error` is what `app` threw when it read the
// command line.
std::string DescribeUsageError(const CLI::App& app,
                               const CLI::ParseError& error);

}  // namespace espalier::cli
