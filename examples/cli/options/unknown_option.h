// What is said of an option that a command does not have: what was meant, in
// this command, in another one or in another program.
//
// Thread safety: functions without state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace espalier::cli {

// "generate has no option --beams; did you mean --num-beams?" of `argument`, as
// it was typed, with a value after it or not.
std::string DescribeOption(const CLI::App& app, const CLI::App& command,
                           const std::string& argument);

// Whether `option`, as it was typed, is a long one of `options` with one dash,
// or another program's: -host, which the library takes for -h and more.
bool IsLongWithOneDash(const std::vector<std::string>& options,
                       const std::string& option);

}  // namespace espalier::cli
