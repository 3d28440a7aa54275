// CompileJsonWhitespace: the white space between the parts of a JSON text that
// a regular expression matches, as an automaton.
//
// Thread safety: functions without state.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "constrain/byte_automaton.h"

namespace espalier {

// Returns the texts that match `pattern` as a whole
// (constrain/regex_language.h). Its limits are small, as it stands at many
// places of a text: 1,024 states, and 1,000,000 steps, some milliseconds.
// Errors: kInvalidArgument if the pattern is none, exceeds a limit, matches no
// text, or one with a character that JSON does not have between its parts: it
// has space, tab, line feed and carriage return there.
absl::StatusOr<ByteAutomaton> CompileJsonWhitespace(std::string_view pattern);

}  // namespace espalier
