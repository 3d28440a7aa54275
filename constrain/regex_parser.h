// RegexParser: the syntax tree of a regular expression for generated text.
//
// The syntax is that of JavaScript (ECMA-262 with flag u), which JSON Schema
// names for `pattern`, without what a finite automaton cannot decide or what
// engines understand differently. docs/constraints.md lists it.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "constrain/code_point_set.h"
#include "constrain/compile_budget.h"

namespace espalier {

struct RegexNode {
  enum class Kind : uint8_t {
    kSet,       // one code point of `set`
    kSequence,  // `children`, one after the other; none: the empty text
    kChoice,    // one of `children`
    kRepeat,    // the only child, [min_count, max_count] times
    kAtStart,   // "^"
    kAtEnd,     // "$"
  };
  static constexpr int kUnbounded = -1;

  Kind kind = Kind::kSequence;
  CodePointSet set = {};
  std::vector<RegexNode> children = {};
  int min_count = 0;
  int max_count = kUnbounded;
  int at = -1;  // byte of its "{" in the pattern, if it has one
};

// Parses `pattern`. A group without a repetition is a part of the sequence that
// it is in, and a choice of characters and classes is a class. Takes steps of
// `budget` for the ranges of classes.
// Errors: kInvalidArgument naming the construct and its byte in the pattern, or
// if the budget is spent.
absl::StatusOr<RegexNode> ParseRegex(std::string_view pattern,
                                     CompileBudget* budget);

}  // namespace espalier
