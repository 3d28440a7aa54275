// Languages of strings, and their texts in JSON.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"

namespace espalier {

// Strings of at least `min_length` code points, in UTF-8, and at most
// `max_length`; unset: of any number.
// REQUIRES: 0 <= min_length <= *max_length.
// Errors: kInvalidArgument if they need too many states.
absl::StatusOr<ByteAutomaton> StringsOfLength(int64_t min_length,
                                              std::optional<int64_t> max_length,
                                              CompileBudget* budget);

// Returns the texts of strings in JSON. A string has one text: '"' and '\' are
// escaped by a '\', control characters as \b, \f, \n, \r, \t or \u001f, and
// nothing else.
// Errors: kInvalidArgument if the budget is spent.
absl::StatusOr<ByteAutomaton> QuoteStrings(const ByteAutomaton& strings,
                                           CompileBudget* budget);
std::string QuoteString(std::string_view string);

// Returns the texts of strings with at most so many code points, in JSON, with
// the counts of a PushdownAutomaton.
//   limit  the number of `max_length` there
struct StringsWithLimit {
  const ByteAutomaton* strings = nullptr;
  int64_t limit = 0;
};
absl::StatusOr<ByteAutomaton> QuoteStringsWithLimits(
    std::span<const StringsWithLimit> parts, CompileBudget* budget);

// Returns the number of code points of a string, or the fewest of a language's.
int64_t NumCodePoints(std::string_view string);
int64_t MinCodePoints(const ByteAutomaton& strings);

}  // namespace espalier
