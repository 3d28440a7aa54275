// Error messages for an option that a command does not have. They suggest the
// option of this command, of another one or of another program.
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

// True if `option`, as typed, is a long option with one dash, one of `options`
// or of another program. The CLI library would take -host for -h and more.
bool IsLongWithOneDash(const std::vector<std::string>& options,
                       const std::string& option);

}  // namespace espalier::cli
