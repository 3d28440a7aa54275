// CompileGbnf: the texts of a grammar in GBNF (gbnf_parser.h).
//
//   ASSIGN_OR_RETURN(const GrammarLanguage pairs, CompileGbnf(
//       R"(root ::= "(" root ")" | "x")"));
//
// A rule is recursive if it leads back to itself, other than as the last thing
// of its text, which is a loop. So is one that leads back to itself as the
// first thing of one of its own alternatives: a ::= a "," b | b. A grammar with
// recursive rules is a pushdown automaton; any other is a finite automaton.
//
// Thread safety: functions without state.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"
#include "constrain/pushdown_automaton.h"

namespace espalier {

struct GbnfOptions {
  // Recursive rules within one another that a text may have, beyond the first
  // one. One that ends the text of another takes its place.
  int max_depth = PushdownAutomaton::kMaxDepth;
};

// Errors: kInvalidArgument naming the construct or rule, and its line and
// column; a rule that leads back to itself as the first thing of its text
// through others (left recursion); what of `limits` is exceeded; or if there is
// no text.
absl::StatusOr<GrammarLanguage> CompileGbnf(std::string_view text,
                                            const GbnfOptions& options = {},
                                            const CompileLimits& limits = {});

}  // namespace espalier
