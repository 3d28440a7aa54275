// CompileRegex: the texts that match a regular expression, as an automaton.
//
//   ASSIGN_OR_RETURN(const ByteAutomaton dates,
//                    CompileRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}"));
//
// Texts are UTF-8; the pattern matches code points.
//
// A repetition has a copy of its states for each time, or where these are many
// a counter (CompileRegexLanguage): "[^"]{0,100000}" has as many states as
// "[^"]*" then.
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
// byte in the pattern, or what of `limits` is exceeded and the repetition that
// most is due to, or if no text matches.
absl::StatusOr<ByteAutomaton> CompileRegex(
    std::string_view pattern, RegexMatching matching = RegexMatching::kWhole,
    const CompileLimits& limits = {});
// As above, as a part of another compilation.
absl::StatusOr<ByteAutomaton> CompileRegex(std::string_view pattern,
                                           RegexMatching matching,
                                           CompileBudget* budget);

// As the first, of whole texts. Repetitions of more than 16 are counted, as of
// CompileRegexWithCalls,
//   - if copies were more than 1,024 characters, those of a large class more
//     each, an eighth of the steps suffices, and PushdownArrays has the result;
//   - if the automaton with copies would exceed `limits`, with these again.
absl::StatusOr<GrammarLanguage> CompileRegexLanguage(
    std::string_view pattern, const CompileLimits& limits = {});

// As the first, of whole texts. A repetition of one character or class, whose
// greatest number is more than `max_unrolled` above the least one, is a call of
// an automaton that counts, if
//   - no text reaches it with two counts: where it may begin at one place, it
//     may not begin at a later one that it reaches from there,
//   - the pattern has no anchors, but for those at its ends, and
//   - an ASCII character that it does not have follows it; or the states that
//     end a character, times the calls, are at most
//     PushdownConfigurations::kMaxWays, so that no text has more ways.
// If there is none, the language is a ByteAutomaton.
absl::StatusOr<GrammarLanguage> CompileRegexWithCalls(
    std::string_view pattern, int max_unrolled,
    const CompileLimits& limits = {});

}  // namespace espalier
