// StartAfter: a language that begins behind a marker, such as "</think>", with
// any text in front of it.
//
// Thread safety: functions without state.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"
#include "constrain/gbnf_language.h"

namespace espalier {

// Returns the texts of any characters up to the first `marker`, the marker, at
// most two line ends, which models write there, and a text of `language`.
//   marker  UTF-8, not empty; or one byte that no UTF-8 has, which stands for a
//           special token
// Errors: kInvalidArgument if the budget is spent.
absl::StatusOr<ByteAutomaton> StartAfter(std::string_view marker,
                                         const ByteAutomaton& language,
                                         CompileBudget* budget);
absl::StatusOr<GrammarLanguage> StartAfter(std::string_view marker,
                                           const GrammarLanguage& language,
                                           CompileBudget* budget);

}  // namespace espalier
