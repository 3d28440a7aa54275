// ParseGbnf: the syntax tree of a grammar in GBNF, the format of llama.cpp.
//
//   root ::= "[" (item ("," item)*)? "]"   # a comment
//   item ::= root | [0-9]+
//
// docs/constraints.md lists the syntax.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "constrain/code_point_set.h"
#include "constrain/compile_budget.h"

namespace espalier {

struct GrammarNode {
  enum class Kind : uint8_t {
    kText,      // `text`
    kSet,       // one code point of `set`
    kRule,      // a text of rule `rule`
    kSequence,  // `children`, one after the other; none: the empty text
    kChoice,    // one of `children`
    kRepeat,    // the only child, [min_count, max_count] times
  };
  static constexpr int kUnbounded = -1;

  Kind kind = Kind::kSequence;
  std::string text = {};  // UTF-8
  CodePointSet set = {};
  int rule = -1;  // index in Grammar::rules
  std::vector<GrammarNode> children = {};
  int min_count = 0;
  int max_count = kUnbounded;
};

struct Grammar {
  struct Rule {
    std::string name = {};
    GrammarNode body = {};
  };
  std::vector<Rule> rules = {};
  int root = 0;  // the rule whose texts are the language
};

// Takes steps of `budget` for the nodes and the ranges of classes. Each rule
// that is named has a body.
// Errors: kInvalidArgument naming the construct or rule, and its line and
// column, or if the budget is spent.
absl::StatusOr<Grammar> ParseGbnf(std::string_view text, CompileBudget* budget);

}  // namespace espalier
