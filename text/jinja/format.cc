#include "text/jinja/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/number.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

constexpr int kMostPrecision = 100;

bool IsAlign(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

FormatSpec ReadSpec(std::string_view rest) {
  FormatSpec spec;
  const size_t first = rest.empty() ? 0 : CharacterSize(rest[0]);
  if (rest.size() > first && IsAlign(rest[first])) {
    spec.fill = rest.substr(0, first);
    spec.align = rest[first];
    rest.remove_prefix(first + 1);
  } else if (!rest.empty() && IsAlign(rest[0])) {
    spec.align = rest[0];
    rest.remove_prefix(1);
  }
  for (const char sign : {'+', '-', ' '}) {
    if (TakeFormatCharacter(&rest, sign)) spec.sign = sign;
  }
  spec.is_alternate = TakeFormatCharacter(&rest, '#');
  spec.has_zeros = TakeFormatCharacter(&rest, '0');
  spec.width = TakeFormatNumber(&rest).value_or(0);
  spec.has_commas = TakeFormatCharacter(&rest, ',');
  if (TakeFormatCharacter(&rest, '.')) {
    const std::optional<int64_t> precision = TakeFormatNumber(&rest);
    if (!precision) Fail("Format specifier missing precision");
    spec.precision = static_cast<int>(*precision);
  }
  if (!rest.empty()) {
    spec.type = rest[0];
    rest.remove_prefix(1);
  }
  if (!rest.empty()) Fail("Invalid format specifier");
  return spec;
}

std::string WithCommas(const std::string& digits) {
  const size_t whole =
      std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string text;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text + digits.substr(whole);
}

std::string IntegerDigits(const FormatSpec& spec, uint64_t magnitude) {
  const auto alternate_prefix = [&](const char* prefix) {
    return std::string(spec.is_alternate ? prefix : "");
  };
  switch (spec.type) {
    case 'x':
      return alternate_prefix("0x") + absl::StrFormat("%x", magnitude);
    case 'X':
      return alternate_prefix("0X") + absl::StrFormat("%X", magnitude);
    case 'o':
      return alternate_prefix("0o") + absl::StrFormat("%o", magnitude);
    case 'b': {
      std::string bits = alternate_prefix("0b");
      int bit = 63;
      while (bit > 0 && (magnitude >> bit & 1) == 0) --bit;
      for (; bit >= 0; --bit) bits += magnitude >> bit & 1 ? '1' : '0';
      return bits;
    }
    default:
      return std::to_string(magnitude);
  }
}

std::string FloatDigits(const FormatSpec& spec, double magnitude) {
  const int precision = spec.precision.value_or(6);
  if (precision > kMostPrecision) Fail("a precision is too large");
  if (!std::isfinite(magnitude)) return std::isnan(magnitude) ? "nan" : "inf";
  switch (spec.type) {
    case 'f':
    case 'F':
      return absl::StrFormat("%.*f", precision, magnitude);
    case 'e':
      return absl::StrFormat("%.*e", precision, magnitude);
    case 'E':
      return absl::StrFormat("%.*E", precision, magnitude);
    case 'g':
      return absl::StrFormat("%.*g", precision, magnitude);
    case 'G':
      return absl::StrFormat("%.*G", precision, magnitude);
    case '%':
      return absl::StrFormat("%.*f%%", precision, magnitude * 100);
    default:
      break;
  }
  if (spec.precision) return absl::StrFormat("%.*g", precision, magnitude);
  return FormatFloat(magnitude);
}

// `body` with its sign, as wide as asked for.
Text Pad(const FormatSpec& spec, const std::string& sign, Text body,
         char default_align, Budget& budget) {
  const bool has_zeros = spec.has_zeros && spec.align == '\0';
  const char align = has_zeros            ? '='
                     : spec.align == '\0' ? default_align
                                          : spec.align;
  const std::string fill =
      spec.has_zeros && spec.align == '\0' ? "0" : spec.fill;
  const int64_t missing =
      std::max<int64_t>(0, spec.width - CountCharacters(body.bytes()) -
                               static_cast<int64_t>(sign.size()));
  budget.TakeBytes(static_cast<size_t>(missing) * fill.size() + body.size());
  const int64_t before = align == '<'   ? 0
                         : align == '^' ? missing / 2
                                        : missing;
  Text text;
  const auto add_fill = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) text.Append(fill);
  };
  if (align == '=') text.Append(sign);
  add_fill(before);
  if (align != '=') text.Append(sign);
  text.Append(body);
  add_fill(missing - before);
  return text;
}

Text ApplyToNumber(const FormatSpec& spec, const Value& value, Budget& budget) {
  const bool as_float =
      value.is(Kind::kFloat) ||
      std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  std::string digits;
  bool is_negative = false;
  if (as_float && spec.type != '\0' &&
      std::string_view("dxXob").find(spec.type) != std::string_view::npos) {
    Fail("Unknown format code '", spec.type, "' for a float");
  }
  if (as_float) {
    is_negative = std::signbit(value.number());
    digits = FloatDigits(spec, std::fabs(value.number()));
  } else {
    const int64_t integer = value.integer();
    is_negative = integer < 0;
    const auto bits = static_cast<uint64_t>(integer);
    digits = IntegerDigits(spec, is_negative ? 0 - bits : bits);
  }
  if (spec.has_commas) digits = WithCommas(digits);
  const std::string sign = is_negative        ? "-"
                           : spec.sign == '-' ? ""
                                              : std::string(1, spec.sign);
  Text text = Pad(spec, sign, Text(std::move(digits)), '>', budget);
  return value.is_input() ? Text(text.bytes(), true) : std::move(text);
}

// One str.format.
class BraceFormatter {
 public:
  BraceFormatter(Evaluator& evaluator, const Text& format,
                 const Arguments& arguments)
      : evaluator_(evaluator), format_(format), arguments_(arguments) {}

  Text Run();

 private:
  // The field that begins after `begin`; returns where its "}" is.
  size_t AddField(size_t begin);
  Value Find(std::string_view field);
  Value FindFirst(std::string_view name);

  Evaluator& evaluator_;
  const Text& format_;
  const Arguments& arguments_;
  size_t next_ = 0;  // of fields without a name
  Text out_;
};

Text BraceFormatter::Run() {
  const std::string_view bytes = format_.bytes();
  evaluator_.budget().TakeBytes(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    const char next = i + 1 < bytes.size() ? bytes[i + 1] : '\0';
    if ((c == '{' || c == '}') && next == c) {
      out_.AppendPart(format_, i++, 1);
    } else if (c == '{') {
      i = AddField(i + 1);
    } else if (c == '}') {
      Fail("Single '}' encountered in format string");
    } else {
      out_.AppendPart(format_, i, 1);
    }
  }
  return std::move(out_);
}

size_t BraceFormatter::AddField(size_t begin) {
  const std::string_view bytes = format_.bytes();
  const size_t end = bytes.find('}', begin);
  if (end == bytes.npos) Fail("expected '}' before end of string");
  std::string_view field = bytes.substr(begin, end - begin);
  if (field.find('{') != field.npos) {
    Fail("a field within a field is not supported");
  }
  std::string_view spec;
  const size_t colon = field.find(':');
  if (colon != field.npos) {
    spec = field.substr(colon + 1);
    field = field.substr(0, colon);
  }
  char conversion = 's';
  if (field.size() >= 2 && field[field.size() - 2] == '!') {
    conversion = field.back();
    field.remove_suffix(2);
  }
  Value value = Find(field);
  if (conversion == 'r') {
    bool has_input = false;
    std::string repr = Repr(value, evaluator_.budget(), &has_input);
    value = Value::String(Text(std::move(repr), has_input));
  }
  out_.Append(MadeBy(format_.Part(begin, end + 1 - begin),
                     ApplyFormat(ReadSpec(spec), value, evaluator_.budget())));
  return end;
}

Value BraceFormatter::FindFirst(std::string_view name) {
  size_t place = next_;
  if (name.empty()) {
    ++next_;
  } else if (const std::optional<int64_t> number = ReadInteger(name, 10)) {
    if (*number < 0) Fail("a field's number must not be negative");
    place = static_cast<size_t>(*number);
  } else {
    evaluator_.budget().TakeSteps(std::ssize(arguments_.named) / 8);
    for (const auto& [other, value] : arguments_.named) {
      if (other.bytes() == name) return value;
    }
    Fail("format() has no argument \"", name, "\"");
  }
  if (place >= arguments_.positional.size()) {
    Fail("format() has no argument ", place);
  }
  return arguments_.positional[place];
}

Value BraceFormatter::Find(std::string_view field) {
  size_t end = std::min(field.find_first_of(".["), field.size());
  Value value = FindFirst(field.substr(0, end));
  while (end < field.size()) {
    evaluator_.budget().TakeSteps(1);
    if (field[end] == '.') {
      const size_t begin = end + 1;
      end = std::min(field.find_first_of(".[", begin), field.size());
      value = evaluator_.Attribute(
          value, std::string(field.substr(begin, end - begin)));
      continue;
    }
    const size_t close = field.find(']', end);
    if (close == field.npos) Fail("Missing ']' in format string");
    const std::string key(field.substr(end + 1, close - end - 1));
    const std::optional<int64_t> number = ReadInteger(key, 10);
    value = evaluator_.Item(value,
                            number ? Value::Int(*number) : Value::String(key));
    end = close + 1;
  }
  return value;
}

}  // namespace

std::optional<int64_t> TakeFormatNumber(std::string_view* rest) {
  constexpr int64_t kMostWidth = 1 << 20;
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(rest->data(), rest->data() + rest->size(), number);
  if (end == rest->data()) return std::nullopt;
  if (error != std::errc() || number < 0 || number > kMostWidth) {
    Fail("a width or precision is too large");
  }
  rest->remove_prefix(end - rest->data());
  return number;
}

bool TakeFormatCharacter(std::string_view* rest, char c) {
  if (!rest->starts_with(c)) return false;
  rest->remove_prefix(1);
  return true;
}

Text ApplyFormat(const FormatSpec& spec, const Value& value, Budget& budget) {
  const bool as_number =
      value.is_number() && !(value.is(Kind::kBool) && spec.type == '\0');
  if (as_number) {
    if (spec.type == 's') Fail("Unknown format code 's' for a number");
    return ApplyToNumber(spec, value, budget);
  }
  if (spec.type != '\0' && spec.type != 's') {
    Fail("Unknown format code '", spec.type, "' for ", TypeName(value));
  }
  Text text = ToText(value, budget);
  if (spec.precision) {
    text = text.Part(0, ByteOfCharacter(text.bytes(), *spec.precision));
  }
  return Pad(spec, "", std::move(text), '<', budget);
}

Text MadeBy(const Text& field, Text text) {
  return field.has_input() ? Text(text.bytes(), true) : std::move(text);
}

Text FormatBraces(Evaluator& evaluator, const Text& format,
                  const Arguments& arguments) {
  return BraceFormatter(evaluator, format, arguments).Run();
}

}  // namespace espalier::jinja
