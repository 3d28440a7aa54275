// CompileRegex: the texts that match a regular expression, as an automaton.
//
//   ASSIGN_OR_RETURN(const ByteAutomaton dates,
//                    CompileRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}"));
//
// Texts are UTF-8; the pattern matches code points.
//
// A repetition has a copy of its states for each time. Where these are too many
// it has a counter (CompileRegexLanguage): "[^"]{0,100000}" has as many states
// as "[^"]*" then.
//
// Thread safety: functions without state.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"
#include "constrain/pushdown_automaton.h"

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

// As the first, of whole texts. If the automaton would exceed `limits`,
// repetitions of more than 16 are counted where that is exact, as of
// CompileRegexWithCalls, with `limits` again.
absl::StatusOr<GrammarLanguage> CompileRegexLanguage(
    std::string_view pattern, const CompileLimits& limits = {});

// As the first, of whole texts. A repetition of one character or class, whose
// greatest number is more than `max_unrolled` above the least one, is a call of
// an automaton that counts, if
//   - an ASCII character that it does not have follows it,
//   - no text reaches it with two counts: where it may begin at one place, it
//     may not begin at a later one that it reaches from there, and
//   - the pattern has no anchors, but for those at its ends.
// If there is none, the language is a ByteAutomaton.
absl::StatusOr<GrammarLanguage> CompileRegexWithCalls(
    std::string_view pattern, int max_unrolled,
    const CompileLimits& limits = {});

}  // namespace espalier
