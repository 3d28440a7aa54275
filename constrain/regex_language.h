// CompileRegex: the texts that match a regular expression, as an automaton.
//
//   ASSIGN_OR_RETURN(const ByteAutomaton dates,
//                    CompileRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}"));
//
// Texts are UTF-8; the pattern matches code points.
//
// Thread safety: functions without state.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"

namespace espalier {

enum class RegexMatching {
  kWhole,   // the whole text matches, as if ^ and $ were around the pattern
  kSearch,  // some part of the text matches, as for JSON Schema's `pattern`
};

// Errors: kInvalidArgument naming the construct that is not supported and its
// byte in the pattern, or what of `limits` is exceeded, or if no text matches.
absl::StatusOr<ByteAutomaton> CompileRegex(
    std::string_view pattern, RegexMatching matching = RegexMatching::kWhole,
    const CompileLimits& limits = {});
// As above, as a part of another compilation.
absl::StatusOr<ByteAutomaton> CompileRegex(std::string_view pattern,
                                           RegexMatching matching,
                                           CompileBudget* budget);

}  // namespace espalier
