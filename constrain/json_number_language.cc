#include "constrain/json_number_language.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <compare>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "constrain/automaton_builder.h"
#include "constrain/dfa_edges.h"
#include "constrain/regex_language.h"

namespace espalier {
namespace {

// More digits of a double may not be those of the schema's text.
constexpr int kMaxDoubleDigits = 15;
// Greater divisors have too many remainders.
constexpr int64_t kMaxDivisor = 100'000;

constexpr std::string_view kNumberBytes = "-.0123456789";

// Class 0 has the bytes of no canonical number.
std::array<uint8_t, 256> NumberClasses() {
  std::array<uint8_t, 256> classes = {};
  for (size_t i = 0; i < kNumberBytes.size(); ++i) {
    classes[static_cast<uint8_t>(kNumberBytes[i])] =
        static_cast<uint8_t>(i + 1);
  }
  return classes;
}

// Returns the automaton of the states that `start` leads to. `next(state, c)`
// is the state after a byte of a canonical number, unset if there is none;
// `accepts(state)` says whether a number ends there. States have an order.
template <typename State, typename Next, typename Accepts>
absl::StatusOr<ByteAutomaton> ExploreNumbers(State start, const Next& next,
                                             const Accepts& accepts,
                                             CompileBudget* budget) {
  // A state and its edges take some 300 bytes until the automaton is built.
  constexpr int64_t kStepsOfState = 150;
  DfaEdges dfa = {.classes = NumberClasses(),
                  .num_classes = static_cast<int>(kNumberBytes.size()) + 1};
  std::map<State, int32_t> numbers = {{start, 0}};
  std::vector<State> states = {start};
  for (size_t i = 0; i < states.size(); ++i) {
    RETURN_IF_ERROR(budget->Take(kStepsOfState));
    const State state = states[i];
    dfa.accepts.push_back(accepts(state) ? 1 : 0);
    for (size_t b = 0; b < kNumberBytes.size(); ++b) {
      const std::optional<State> to = next(state, kNumberBytes[b]);
      if (!to) continue;
      const auto [entry, is_new] =
          numbers.try_emplace(*to, static_cast<int32_t>(states.size()));
      if (is_new) states.push_back(*to);
      const auto byte_class = static_cast<int>(b) + 1;
      dfa.Add(static_cast<int32_t>(i), byte_class, byte_class, entry->second);
    }
  }
  return BuildAutomaton(std::move(dfa), budget);
}

// The part of a number that is being read.
enum class Part : uint8_t { kStart, kInteger, kFraction };

// Compares a number with a bound, digit by digit.
struct Comparison {
  bool is_negative = false;
  Part part = Part::kStart;
  // Digits read of the part, at most one more than those of the bound.
  int num_digits = 0;
  // Sign of the difference of the magnitudes so far.
  int difference = 0;

  auto operator<=>(const Comparison&) const = default;
};

class Comparer {
 public:
  explicit Comparer(const Decimal& bound) : bound_(bound) {}

  std::optional<Comparison> Next(Comparison state, char c) const {
    if (c == '-') {
      if (state.part != Part::kStart || state.is_negative) return std::nullopt;
      state.is_negative = true;
      return state;
    }
    if (c == '.') {
      if (state.part != Part::kInteger) return std::nullopt;
      state.difference = OfInteger(state);
      state.part = Part::kFraction;
      state.num_digits = 0;
      return state;
    }
    if (state.part == Part::kStart) state.part = Part::kInteger;
    const std::string& digits =
        state.part == Part::kInteger ? bound_.integer : bound_.fraction;
    const int size = static_cast<int>(digits.size());
    if (state.part == Part::kFraction && state.difference != 0) return state;
    if (state.difference == 0) {
      const char other =
          state.num_digits < size ? digits[state.num_digits] : '0';
      state.difference = (c > other) - (c < other);
    }
    const int last = state.part == Part::kInteger ? size + 1 : size;
    state.num_digits = std::min(state.num_digits + 1, last);
    if (state.part == Part::kFraction && state.difference != 0) {
      state.num_digits = 0;
    }
    return state;
  }

  // Returns the sign of the difference of the number and the bound.
  int Result(const Comparison& state) const {
    int difference = state.difference;
    if (state.part != Part::kFraction) difference = OfInteger(state);
    const int num_read = state.part == Part::kFraction ? state.num_digits : 0;
    const bool bound_has_more =
        num_read < static_cast<int>(bound_.fraction.size());
    if (difference == 0 && bound_has_more) difference = -1;
    if (state.is_negative != bound_.is_negative) {
      return state.is_negative ? -1 : 1;
    }
    return state.is_negative ? -difference : difference;
  }

 private:
  // Compares the integer parts.
  int OfInteger(const Comparison& state) const {
    const int size = static_cast<int>(bound_.integer.size());
    if (state.num_digits < size) return -1;
    return state.num_digits > size ? 1 : state.difference;
  }

  const Decimal& bound_;
};

// The remainder of a number's digits.
struct Remainder {
  Part part = Part::kStart;
  bool has_sign = false;
  int num_digits = 0;  // the fraction's
  int64_t value = 0;

  auto operator<=>(const Remainder&) const = default;
};

}  // namespace

std::string Decimal::Text() const {
  return (is_negative ? "-" : "") + integer +
         (fraction.empty() ? "" : "." + fraction);
}

absl::StatusOr<Decimal> DecimalOf(const json::value& number) {
  // 17 digits, a sign, a point and an exponent fit; so do 20 digits.
  std::array<char, 40> buffer = {};
  char* const begin = buffer.data();
  char* const end = begin + buffer.size();
  if (!number.is_double()) {
    const auto written = number.is_int64()
                             ? std::to_chars(begin, end, number.as_int64())
                             : std::to_chars(begin, end, number.as_uint64());
    const std::string_view text(begin, written.ptr - begin);
    const bool is_negative = text.front() == '-';
    return Decimal{.is_negative = is_negative,
                   .integer = std::string(text.substr(is_negative ? 1 : 0))};
  }
  if (!std::isfinite(number.as_double())) {  // 1e400
    return InvalidArgument("a number is beyond the range of 64-bit floats");
  }
  const auto written = std::to_chars(begin, end, number.as_double(),
                                     std::chars_format::scientific);
  std::string_view text(begin, written.ptr - begin);
  Decimal decimal = {.is_negative = text.front() == '-'};
  if (decimal.is_negative) text.remove_prefix(1);
  const size_t exponent_at = text.find('e');
  CHECK(exponent_at != text.npos) << text;
  std::string digits(text.substr(0, exponent_at));
  std::erase(digits, '.');
  if (digits.size() > kMaxDoubleDigits) {
    return InvalidArgument("the number ", Shown(&number), " has more than ",
                           kMaxDoubleDigits, " digits");
  }
  int exponent = 0;
  std::string_view exponent_text = text.substr(exponent_at + 1);
  if (exponent_text.front() == '+') exponent_text.remove_prefix(1);
  std::from_chars(exponent_text.data(),
                  exponent_text.data() + exponent_text.size(), exponent);
  // The value is digits * 10^(exponent + 1 - digits.size()).
  const int num_integer = exponent + 1;
  if (num_integer <= 0) digits.insert(0, 1 - num_integer, '0');
  const auto num_integer_digits = static_cast<size_t>(std::max(num_integer, 1));
  if (digits.size() < num_integer_digits) {
    digits.append(num_integer_digits - digits.size(), '0');
  }
  decimal.integer = digits.substr(0, num_integer_digits);
  decimal.fraction = digits.substr(num_integer_digits);
  decimal.fraction.erase(decimal.fraction.find_last_not_of('0') + 1);
  if (decimal.IsZero()) decimal.is_negative = false;
  return decimal;
}

absl::StatusOr<ByteAutomaton> AnyNumbers(CompileBudget* budget) {
  return CompileRegex(
      "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?",
      RegexMatching::kWhole, budget);
}

absl::StatusOr<ByteAutomaton> CanonicalNumbers(CompileBudget* budget) {
  return CompileRegex("0|-?[1-9][0-9]*|-?(?:0|[1-9][0-9]*)\\.[0-9]*[1-9]",
                      RegexMatching::kWhole, budget);
}

absl::StatusOr<ByteAutomaton> Integers(CompileBudget* budget) {
  return CompileRegex("-?[0-9]+", RegexMatching::kWhole, budget);
}

absl::StatusOr<ByteAutomaton> NumbersFrom(const Decimal& bound,
                                          bool is_included,
                                          CompileBudget* budget) {
  const Comparer comparer(bound);
  return ExploreNumbers(
      Comparison(),
      [&](const Comparison& state, char c) { return comparer.Next(state, c); },
      [&](const Comparison& state) {
        return state.part != Part::kStart &&
               comparer.Result(state) >= (is_included ? 0 : 1);
      },
      budget);
}

absl::StatusOr<ByteAutomaton> MultiplesOf(const Decimal& divisor,
                                          CompileBudget* budget) {
  // With its point moved by the digits of the fraction the divisor is whole.
  const std::string digits = divisor.integer + divisor.fraction;
  const int num_fraction = static_cast<int>(divisor.fraction.size());
  int64_t whole = 0;
  for (const char c : digits) {
    whole = 10 * whole + (c - '0');
    if (whole > kMaxDivisor) {
      return InvalidArgument("the divisor ", divisor.Text(),
                             " has too many remainders: more than ",
                             kMaxDivisor);
    }
  }
  const auto next = [&](Remainder state, char c) -> std::optional<Remainder> {
    if (c == '-') {
      if (state.part != Part::kStart || state.has_sign) return std::nullopt;
      state.has_sign = true;
      return state;
    }
    if (c == '.') {
      if (state.part != Part::kInteger) return std::nullopt;
      state.part = Part::kFraction;
      return state;
    }
    if (state.part == Part::kStart) state.part = Part::kInteger;
    if (state.part == Part::kFraction && state.num_digits == num_fraction) {
      return c == '0' ? std::optional(state) : std::nullopt;
    }
    state.value = (10 * state.value + (c - '0')) % whole;
    if (state.part == Part::kFraction) ++state.num_digits;
    return state;
  };
  const auto accepts = [&](const Remainder& state) {
    if (state.part == Part::kStart) return false;
    int64_t value = state.value;
    for (int i = state.num_digits; i < num_fraction; ++i) {
      value = 10 * value % whole;
    }
    return value == 0;
  };
  return ExploreNumbers(Remainder(), next, accepts, budget);
}

}  // namespace espalier
