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

// A state tells which words a text has contained, so an automaton has up to
// 2^n as many states as its language, for n words.
inline constexpr int kMaxContainedWords = 8;

// A word is any part of a text, also within a longer word. Words may overlap in
// it, and one may contain another.
//   language  unset: all texts
// Errors: kInvalidArgument if there is no word or too many, if one is empty, if
// no text of the language contains them all, or if the budget is spent.
// REQUIRES: the words are UTF-8.
absl::StatusOr<ByteAutomaton> ContainWords(
    const std::optional<ByteAutomaton>& language,
    std::span<const std::string> words, CompileBudget* budget);

}  // namespace espalier
