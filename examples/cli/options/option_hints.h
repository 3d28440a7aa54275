// Hints for options that a command does not have, because they belong to
// another engine's program or to another command; and for missing arguments.
//
// Thread safety: functions without state.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace espalier::cli {

// An option of another engine's program, and what does its work here. Those of
// its requests are those that request/other_names.h has.
struct OtherOption {
  std::string name;
  // Only commands with this option of ours give the hint; empty: none does.
  std::string option;
  std::string hint = "";  // empty: did you mean `option`?
};
std::span<const OtherOption> OtherOptions();

// Returns how a call of a server gives this option of generate; empty if it
// cannot.
std::string_view HintOfCalls(std::string_view option);

// Returns the hint of `command` for a missing argument, by the name that the
// CLI library uses; empty if the library's own message is clear.
std::string_view NeededArgument(std::string_view command,
                                std::string_view name);

}  // namespace espalier::cli
