// Languages of JSON numbers: which texts are numbers of a set of values.
//
// Sets are exact on canonical numbers alone, where a value has one text: no
// exponent, no zero that could go, no "-0". CanonicalNumbers is their universe.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "constrain/byte_automaton.h"
#include "constrain/compile_budget.h"

namespace espalier {

// A number in decimal: 12.5 has digits "125" and num_fraction 1.
struct Decimal {
  bool is_negative = false;
  std::string integer = "0";  // without zeros in front
  std::string fraction = "";  // without zeros at the end

  // The canonical text.
  std::string Text() const;
  bool IsZero() const { return integer == "0" && fraction.empty(); }
};

// Returns the value of a number of a schema.
// Errors: kInvalidArgument if it has more digits than a double keeps, so that
// its value is not known any more.
absl::StatusOr<Decimal> DecimalOf(const json::value& number);

// Any JSON number, in any spelling with an exponent of at most two digits, so
// that parsers do not overflow.
absl::StatusOr<ByteAutomaton> AnyNumbers(CompileBudget* budget);
absl::StatusOr<ByteAutomaton> CanonicalNumbers(CompileBudget* budget);
absl::StatusOr<ByteAutomaton> Integers(CompileBudget* budget);

// Numbers greater than `bound`, or as great if `is_included`. Exact on
// canonical numbers; other texts may be in it or not.
absl::StatusOr<ByteAutomaton> NumbersFrom(const Decimal& bound,
                                          bool is_included,
                                          CompileBudget* budget);
// Multiples of `divisor`; exact as above. Takes O(digits) states for each
// remainder.
// REQUIRES: `divisor` is positive.
absl::StatusOr<ByteAutomaton> MultiplesOf(const Decimal& divisor,
                                          CompileBudget* budget);

}  // namespace espalier
