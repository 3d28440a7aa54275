// What is said of options that a command does not have: those of other engines'
// programs, and those of another command; and what a command cannot do without.
//
// Thread safety: functions without state.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace espalier::cli {

// An option of another engine's program, and what does its work here. Those of
// its requests are those that request/json/other_names.h has.
struct OtherOption {
  std::string name;
  // Only commands with this option of ours give the hint; empty: none does.
  std::string option;
  std::string hint = "";  // empty: did you mean `option`?
};
std::span<const OtherOption> OtherOptions();

// What calls of a server have for an option of generate; empty if nothing.
std::string_view HintOfCalls(std::string_view option);

// What `command` says where the argument of this name, as the library has it,
// is missing; empty if the library's words do.
std::string_view NeededArgument(std::string_view command,
                                std::string_view name);

}  // namespace espalier::cli
