// ContainWords: the texts of a language that contain given words.
//
// Thread safety: functions without state.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"

namespace espalier {

// A word is any part of a text, also within a longer word. Words may overlap in
// it, and one may contain another. A state tells which of them a text has
// contained, so there are up to 2^n as many as in the language, for n words.
//   language  unset: all texts
// Errors: kInvalidArgument if no text of the language contains all words, or if
// the budget is spent.
// REQUIRES: there are words, none is empty, and they are UTF-8.
absl::StatusOr<ByteAutomaton> ContainWords(
    const std::optional<ByteAutomaton>& language,
    std::span<const std::string> words, CompileBudget* budget);

}  // namespace espalier
