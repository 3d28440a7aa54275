#include "text/jinja/number.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "text/jinja/error.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

std::string_view Trimmed(std::string_view text) {
  text.remove_prefix(LeadingSpace(text));
  text.remove_suffix(TrailingSpace(text));
  return text;
}

// `text` without "_" between digits; nothing if one stands elsewhere.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
      continue;
    }
    const bool is_between = i > 0 && i + 1 < text.size() &&
                            text[i - 1] != '_' && text[i + 1] != '_' &&
                            text[i - 1] != '+' && text[i - 1] != '-';
    if (!is_between) return std::nullopt;
  }
  return digits;
}

}  // namespace

void FailOverflow() { Fail("an integer has more than 64 bits"); }

std::optional<int64_t> ReadInteger(std::string_view text, int base,
                                   bool* is_too_large) {
  const std::optional<std::string> digits = WithoutUnderscores(Trimmed(text));
  if (!digits || base < 2 || base > 36) return std::nullopt;
  std::string_view rest = *digits;
  bool is_negative = false;
  if (rest.starts_with('+') || rest.starts_with('-')) {
    is_negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  const std::string_view prefix = base == 16  ? "0x"
                                  : base == 8 ? "0o"
                                  : base == 2 ? "0b"
                                              : "";
  if (!prefix.empty() && ToLower(rest.substr(0, 2)) == prefix) {
    rest.remove_prefix(2);
  }
  constexpr size_t kMaxDigits = 4300;  // Python's, which are not of 2's powers
  if (!std::has_single_bit(static_cast<unsigned>(base)) &&
      rest.size() > kMaxDigits) {
    return std::nullopt;
  }
  uint64_t magnitude = 0;
  const auto [end, error] =
      std::from_chars(rest.data(), rest.data() + rest.size(), magnitude, base);
  if (rest.empty() || end != rest.data() + rest.size()) return std::nullopt;
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  if (error != std::errc() || magnitude > kMost + (is_negative ? 1 : 0)) {
    if (is_too_large != nullptr) *is_too_large = true;
    return std::nullopt;
  }
  return static_cast<int64_t>(is_negative ? 0 - magnitude : magnitude);
}

std::optional<double> ReadFloat(std::string_view text) {
  const std::optional<std::string> digits = WithoutUnderscores(Trimmed(text));
  if (!digits || digits->empty()) return std::nullopt;
  // absl accepts hexadecimal digits; Python does not.
  if (digits->find_first_of("xXpP") != std::string::npos) return std::nullopt;
  double value = 0;
  if (!absl::SimpleAtod(*digits, &value)) return std::nullopt;
  return value;
}

std::optional<int64_t> TruncatedInteger(double value) {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (!(value > -kLimit && value < kLimit)) return std::nullopt;
  return static_cast<int64_t>(value);
}

double RoundHalfEven(double value, int64_t precision) {
  if (!std::isfinite(value)) return value;
  constexpr int64_t kMostDigits = 300;
  if (precision > kMostDigits) return value;
  if (precision >= 0) {
    // The digits of the exact value, correctly rounded, as Python does it.
    const std::string text =
        absl::StrFormat("%.*f", static_cast<int>(precision), value);
    double rounded = 0;
    if (absl::SimpleAtod(text, &rounded)) return rounded;
    return value;
  }
  const double scale =
      std::pow(10.0, static_cast<double>(-std::max(precision, -kMostDigits)));
  return std::nearbyint(value / scale) * scale;
}

int64_t RoundHalfEven(int64_t value, int64_t precision) {
  constexpr int64_t kMostDigits = 19;  // most digits of an int64_t
  if (precision >= 0) return value;
  if (precision < -kMostDigits) return 0;
  __int128 scale = 1;
  for (int64_t i = precision; i < 0; ++i) scale *= 10;
  __int128 quotient = value / scale;  // towards 0
  const __int128 rest = 2 * (value - quotient * scale);
  const __int128 magnitude = rest < 0 ? -rest : rest;
  if (magnitude > scale || (magnitude == scale && quotient % 2 != 0)) {
    quotient += value < 0 ? -1 : 1;
  }
  const __int128 rounded = quotient * scale;
  const auto result = static_cast<int64_t>(rounded);
  if (result != rounded) FailOverflow();
  return result;
}

}  // namespace espalier::jinja
