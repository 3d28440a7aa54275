#include "text/jinja/format_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"
#include "text/jinja/error.h"
#include "text/jinja/printing.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

constexpr int kMostPrecision = 100;

bool IsOneOf(char c, std::string_view characters) {
  return characters.find(c) != characters.npos;
}

bool IsAlign(char c) { return IsOneOf(c, "<>^="); }

// True for types whose digits are grouped by four, not three.
bool IsOfBits(char type) { return type != '\0' && IsOneOf(type, "boxX"); }

bool IsOfFloats(char type) { return type != '\0' && IsOneOf(type, "eEfFgG%"); }

void CheckSeparator(const FormatSpec& spec) {
  if (spec.separator == '\0') return;
  const bool fits = spec.type == '\0' || spec.type == 'd' ||
                    IsOfFloats(spec.type) ||
                    (spec.separator == '_' && IsOfBits(spec.type));
  if (!fits) {
    Fail("Cannot specify '", spec.separator, "' with '", spec.type, "'");
  }
}

void CheckNumberSpec(const FormatSpec& spec, const Value& value) {
  const bool is_integer = value.is_integer();
  const bool is_known = spec.type == '\0' || spec.type == 'n' ||
                        IsOfFloats(spec.type) ||
                        (is_integer && IsOneOf(spec.type, "bcdoxX"));
  if (!is_known) {
    Fail("Unknown format code '", spec.type, "' for ", TypeName(value));
  }
  if (!is_integer || IsOfFloats(spec.type)) return;
  if (spec.precision) Fail("an integer takes no precision");
  if (spec.writes_zero_unsigned) Fail("an integer takes no 'z'");
  if (spec.type == 'c' && (spec.sign_is_given || spec.is_alternate)) {
    Fail("a character takes no sign and no '#'");
  }
}

void CheckTextSpec(const FormatSpec& spec, const Value& value) {
  if (spec.type != '\0' && spec.type != 's') {
    Fail("Unknown format code '", spec.type, "' for ", TypeName(value));
  }
  if (spec.sign_is_given || spec.writes_zero_unsigned || spec.is_alternate ||
      spec.separator != '\0' || spec.align == '=') {
    Fail("a string takes no sign, 'z', '#', separator or '='");
  }
}

// A number's parts, in the order in which they are written.
struct NumberParts {
  std::string sign;
  std::string prefix;
  std::string digits;  // before the point
  std::string rest;
};

std::string DigitsOfBits(uint64_t magnitude, int bits_per_digit) {
  const uint64_t mask = (1u << bits_per_digit) - 1;
  std::string digits;
  do {
    digits += "0123456789abcdef"[magnitude & mask];
    magnitude >>= bits_per_digit;
  } while (magnitude != 0);
  return {digits.rbegin(), digits.rend()};
}

// An integer without its sign.
NumberParts IntegerParts(const FormatSpec& spec, uint64_t magnitude) {
  NumberParts parts;
  if (IsOfBits(spec.type)) {
    const int bits_per_digit = spec.type == 'b' ? 1 : spec.type == 'o' ? 3 : 4;
    parts.digits = DigitsOfBits(magnitude, bits_per_digit);
    if (spec.type == 'X') parts.digits = ToUpper(parts.digits);
    if (spec.is_alternate) parts.prefix = {'0', spec.type};
  } else {
    parts.digits = std::to_string(magnitude);
  }
  const auto num_digits = static_cast<int>(parts.digits.size());
  parts.digits.insert(0, std::max(0, spec.min_digits - num_digits), '0');
  return parts;
}

std::string Printed(const FormatSpec& spec, char type, int precision,
                    double magnitude) {
  const std::string format =
      Concat("%", spec.is_alternate ? "#" : "", ".*", type);
  std::string text;
  absl::FormatUntyped(&text, absl::UntypedFormatSpec(format),
                      {absl::FormatArg(precision), absl::FormatArg(magnitude)});
  return text;
}

// Formats a float without a type: as str(), or with a precision as "g", but
// with at least one digit after the point, which counts as part of the
// precision.
std::string FloatWithoutType(const FormatSpec& spec, double magnitude) {
  std::string text;
  if (!spec.precision) {
    text = FormatFloat(magnitude);
  } else {
    const int precision = std::max(*spec.precision, 1);
    text = Printed(spec, 'e', precision - 1, magnitude);
    const size_t e = text.find('e');
    if (std::stoi(text.substr(e + 1)) != precision - 1) {
      text = Printed(spec, 'g', precision, magnitude);
    } else if (text.find('.') != text.npos && !spec.is_alternate) {
      const size_t last = text.find_last_not_of('0', e - 1);
      const size_t end = text[last] == '.' ? last : last + 1;
      text.erase(end, e - end);
    }
  }
  if (text.find('.') != text.npos) return text;
  const size_t e = text.find('e');
  if (e == text.npos) return text + ".0";
  return spec.is_alternate ? text.insert(e, 1, '.') : text;
}

// A float without its sign.
std::string FloatText(const FormatSpec& spec, double magnitude) {
  const int precision = spec.precision.value_or(6);
  if (precision > kMostPrecision) Fail("a precision is too large");
  const bool is_percent = spec.type == '%';
  std::string text;
  if (!std::isfinite(magnitude)) {
    text = std::isnan(magnitude) ? "nan" : "inf";
  } else if (spec.type == '\0') {
    text = FloatWithoutType(spec, magnitude);
  } else {
    const char type = is_percent ? 'f' : spec.type == 'n' ? 'g' : spec.type;
    text = Printed(spec, type, precision, magnitude * (is_percent ? 100 : 1));
  }
  if (spec.type >= 'E' && spec.type <= 'G') text = ToUpper(text);
  return is_percent ? text + '%' : text;
}

NumberParts FloatParts(const FormatSpec& spec, double magnitude) {
  const std::string text = FloatText(spec, magnitude);
  const size_t size =
      std::min(text.find_first_not_of("0123456789"), text.size());
  return {"", "", text.substr(0, size), text.substr(size)};
}

// True if all digits before an exponent are zeros; false for infinity.
bool IsZero(const NumberParts& parts) {
  const std::string text = parts.digits + parts.rest;
  return text.find_first_of("123456789iI") >= text.find_first_of("eE");
}

// `digits` in groups, with zeros before them up to `width` characters.
std::string Grouped(const std::string& digits, char separator, int group,
                    int64_t width) {
  std::string reversed;
  const int64_t num_digits = std::ssize(digits);
  for (int64_t i = 0; i < num_digits || std::ssize(reversed) < width; ++i) {
    if (i > 0 && i % group == 0) reversed += separator;
    reversed += i < num_digits ? digits[num_digits - 1 - i] : '0';
  }
  return {reversed.rbegin(), reversed.rend()};
}

// Returns `body` after its sign, padded to the width.
Text Pad(const FormatSpec& spec, char align, const std::string& sign, Text body,
         Budget& budget) {
  const int64_t missing =
      std::max<int64_t>(0, spec.width - CountCharacters(body.bytes()) -
                               static_cast<int64_t>(sign.size()));
  budget.TakeBytes(static_cast<size_t>(missing) * spec.fill.size() +
                   body.size());
  const int64_t before = align == '<'   ? 0
                         : align == '^' ? missing / 2
                                        : missing;
  Text text;
  const auto add_fill = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) text.Append(spec.fill);
  };
  if (align == '=') text.Append(sign);
  add_fill(before);
  if (align != '=') text.Append(sign);
  text.Append(body);
  add_fill(missing - before);
  return text;
}

char AlignOfNumber(const FormatSpec& spec) {
  if (spec.align != '\0') return spec.align;
  return spec.fill == "0" ? '=' : '>';
}

Text LayOutParts(const FormatSpec& spec, NumberParts parts, Budget& budget) {
  const char align = AlignOfNumber(spec);
  const std::string before = parts.sign + parts.prefix;
  if (spec.separator != '\0' && !parts.digits.empty()) {
    const bool has_zeros = align == '=' && spec.fill == "0";
    const int64_t width =
        has_zeros ? spec.width - std::ssize(before) - std::ssize(parts.rest)
                  : 0;
    budget.TakeBytes(std::max<int64_t>(0, width));
    parts.digits = Grouped(parts.digits, spec.separator,
                           IsOfBits(spec.type) ? 4 : 3, width);
  }
  return Pad(spec, align, before, Text(parts.digits + parts.rest), budget);
}

NumberParts PartsOf(const FormatSpec& spec, const Value& value) {
  NumberParts parts;
  bool is_negative = false;
  if (value.is(Kind::kFloat) || IsOfFloats(spec.type)) {
    const double number = value.number();
    parts = FloatParts(spec, std::fabs(number));
    is_negative = std::signbit(number) && !std::isnan(number) &&
                  !(spec.writes_zero_unsigned && IsZero(parts));
  } else if (spec.type == 'c') {
    return {"", "", "", FormatCharacter(value.integer())};
  } else {
    is_negative = value.integer() < 0;
    const auto bits = static_cast<uint64_t>(value.integer());
    parts = IntegerParts(spec, is_negative ? 0 - bits : bits);
  }
  if (is_negative) {
    parts.sign = "-";
  } else if (spec.sign != '-') {
    parts.sign = spec.sign;
  }
  return parts;
}

}  // namespace

FormatSpec ReadFormatSpec(std::string_view text) {
  FormatSpec spec;
  std::string_view rest = text;
  const size_t first = rest.empty() ? 0 : CharacterSize(rest[0]);
  bool has_fill = false;
  if (rest.size() > first && IsAlign(rest[first])) {
    has_fill = true;
    spec.fill = rest.substr(0, first);
    spec.align = rest[first];
    rest.remove_prefix(first + 1);
  } else if (!rest.empty() && IsAlign(rest[0])) {
    spec.align = rest[0];
    rest.remove_prefix(1);
  }
  if (!rest.empty() && IsOneOf(rest[0], "+- ")) {
    spec.sign = rest[0];
    spec.sign_is_given = true;
    rest.remove_prefix(1);
  }
  spec.writes_zero_unsigned = TakeFormatCharacter(&rest, 'z');
  spec.is_alternate = TakeFormatCharacter(&rest, '#');
  if (!has_fill && TakeFormatCharacter(&rest, '0')) spec.fill = "0";
  spec.width = TakeFormatNumber(&rest).value_or(0);
  if (!rest.empty() && IsOneOf(rest[0], ",_")) {
    spec.separator = rest[0];
    rest.remove_prefix(1);
  }
  if (TakeFormatCharacter(&rest, '.')) {
    const std::optional<int64_t> precision = TakeFormatNumber(&rest);
    if (!precision) Fail("Format specifier missing precision");
    spec.precision = static_cast<int>(*precision);
  }
  if (!rest.empty()) {
    spec.type = rest[0];
    rest.remove_prefix(1);
  }
  if (!rest.empty()) Fail("Invalid format specifier '", text, "'");
  CheckSeparator(spec);
  return spec;
}

std::optional<int64_t> TakeFormatNumber(std::string_view* rest) {
  constexpr uint64_t kMostWidth = 1 << 20;
  uint64_t number = 0;
  const auto [end, error] =
      std::from_chars(rest->data(), rest->data() + rest->size(), number);
  if (end == rest->data()) return std::nullopt;
  if (error != std::errc() || number > kMostWidth) {
    Fail("a width or precision is too large");
  }
  rest->remove_prefix(end - rest->data());
  return static_cast<int64_t>(number);
}

bool TakeFormatCharacter(std::string_view* rest, char c) {
  if (!rest->starts_with(c)) return false;
  rest->remove_prefix(1);
  return true;
}

Text ApplyFormat(const FormatSpec& spec, const Value& value, Budget& budget) {
  if (value.is_number()) {
    CheckNumberSpec(spec, value);
    return LayOutNumber(spec, value, budget);
  }
  if (!value.is(Kind::kString)) {
    Fail("a format specification does not fit ", TypeName(value));
  }
  CheckTextSpec(spec, value);
  return LayOutText(spec, value.text(), '<', budget);
}

Text LayOutNumber(const FormatSpec& spec, const Value& value, Budget& budget) {
  Text text = LayOutParts(spec, PartsOf(spec, value), budget);
  return value.is_input() ? Text(text.bytes(), true) : std::move(text);
}

Text LayOutText(const FormatSpec& spec, Text text, char default_align,
                Budget& budget) {
  if (spec.precision) {
    text = text.Part(0, ByteOfCharacter(text.bytes(), *spec.precision));
  }
  return Pad(spec, spec.align == '\0' ? default_align : spec.align, "",
             std::move(text), budget);
}

std::string FormatCharacter(int64_t code_point) {
  const bool is_surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (code_point < 0 || code_point > 0x10FFFF || is_surrogate) {
    Fail("there is no character ", code_point);
  }
  std::string character;
  AppendCodePoint(static_cast<uint32_t>(code_point), &character);
  return character;
}

}  // namespace espalier::jinja
