#include "text/jinja/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "absl/strings/str_format.h"
#include "text/jinja/error.h"
#include "text/jinja/number.h"
#include "text/jinja/printing.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

// The format spec of a replacement field, as in Python.
struct FieldSpec {
  std::string fill = " ";
  char align = '\0';  // one of < > ^; none: by the value's type
  int64_t width = 0;
  bool groups_digits = false;  // 1,000
  std::optional<int> precision;
  char type = '\0';
};

bool IsAlign(char c) { return c == '<' || c == '>' || c == '^'; }

bool TakeCharacter(std::string_view* rest, char c) {
  if (!rest->starts_with(c)) return false;
  rest->remove_prefix(1);
  return true;
}

// A width or a precision at the front of `*rest`, which is taken.
std::optional<int64_t> TakeNumber(std::string_view* rest) {
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

// The specification behind a field's ":".
FieldSpec ReadSpec(std::string_view text) {
  FieldSpec spec;
  std::string_view rest = text;
  const size_t first = rest.empty() ? 0 : CharacterSize(rest[0]);
  const bool has_fill = rest.size() > first && IsAlign(rest[first]);
  if (has_fill) {
    spec.fill = rest.substr(0, first);
    rest.remove_prefix(first);
  }
  if (!rest.empty() && IsAlign(rest[0])) {
    spec.align = rest[0];
    rest.remove_prefix(1);
  }
  if (!has_fill && TakeCharacter(&rest, '0')) spec.fill = "0";
  spec.width = TakeNumber(&rest).value_or(0);
  spec.groups_digits = TakeCharacter(&rest, ',');
  if (TakeCharacter(&rest, '.')) {
    const std::optional<int64_t> precision = TakeNumber(&rest);
    if (!precision) Fail("Format specifier missing precision");
    spec.precision = static_cast<int>(*precision);
  }
  for (const char type : {'d', 'f', 's'}) {
    if (!TakeCharacter(&rest, type)) continue;
    spec.type = type;
    break;
  }
  if (!rest.empty()) {
    Fail("format specification '", text, "' is not supported: ",
         "[[fill]align][0][width][,][.N] and d, f or s are");
  }
  return spec;
}

// `body` after its sign, padded to the width. A number's zeros are behind the
// sign.
Text Pad(const FieldSpec& spec, char align, std::string_view sign, Text body,
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
  if (align == '0') text.Append(std::string(sign));
  add_fill(before);
  if (align != '0') text.Append(std::string(sign));
  text.Append(body);
  add_fill(missing - before);
  return text;
}

// `digits` in groups of three, with zeros before them up to `width` characters.
std::string Grouped(std::string_view digits, int64_t width) {
  std::string reversed;
  const int64_t num_digits = std::ssize(digits);
  for (int64_t i = 0; i < num_digits || std::ssize(reversed) < width; ++i) {
    if (i > 0 && i % 3 == 0) reversed += ',';
    reversed += i < num_digits ? digits[num_digits - 1 - i] : '0';
  }
  return {reversed.rbegin(), reversed.rend()};
}

// A number without its sign.
std::string Digits(const FieldSpec& spec, const Value& value) {
  constexpr int kMostPrecision = 100;
  if (value.is_integer() && spec.type != 'f') {
    if (spec.precision) Fail("an integer takes no precision");
    const auto bits = static_cast<uint64_t>(value.integer());
    return std::to_string(value.integer() < 0 ? 0 - bits : bits);
  }
  const double magnitude = std::fabs(value.number());
  if (!std::isfinite(magnitude)) return std::isnan(magnitude) ? "nan" : "inf";
  if (spec.type == '\0') {
    if (spec.precision) Fail("a precision of a float needs the type f");
    return FormatFloat(magnitude);
  }
  if (spec.type != 'f') {
    Fail("format code '", spec.type, "' does not fit ", TypeName(value));
  }
  const int precision = spec.precision.value_or(6);
  if (precision > kMostPrecision) Fail("a precision is too large");
  return absl::StrFormat("%.*f", precision, magnitude);
}

Text WriteNumber(const FieldSpec& spec, const Value& value, Budget& budget) {
  std::string digits = Digits(spec, value);
  const double number = value.number();
  const std::string_view sign =
      std::signbit(number) && !std::isnan(number) ? "-" : "";
  const bool has_zeros = spec.align == '\0' && spec.fill == "0";
  const size_t whole =
      std::min(digits.find_first_not_of("0123456789"), digits.size());
  if (spec.groups_digits && whole > 0) {
    const int64_t rest =
        std::ssize(sign) + std::ssize(digits) - static_cast<int64_t>(whole);
    const int64_t width = has_zeros ? spec.width - rest : 0;
    budget.TakeBytes(std::max<int64_t>(0, width));
    digits.replace(0, whole,
                   Grouped(std::string_view(digits).substr(0, whole), width));
  }
  const char align = has_zeros ? '0' : spec.align == '\0' ? '>' : spec.align;
  Text text = Pad(spec, align, sign, Text(std::move(digits)), budget);
  return value.is_input() ? Text(text.bytes(), true) : text;
}

Text WriteText(const FieldSpec& spec, Text text, char default_align,
               Budget& budget) {
  if (spec.precision) {
    text = text.Part(0, ByteOfCharacter(text.bytes(), *spec.precision));
  }
  return Pad(spec, spec.align == '\0' ? default_align : spec.align, "",
             std::move(text), budget);
}

// format(value, spec).
Text WriteField(std::string_view spec_text, const Value& value,
                Budget& budget) {
  if (spec_text.empty()) return ToText(value, budget);
  const FieldSpec spec = ReadSpec(spec_text);
  if (value.is_number()) {
    if (spec.type == 's') Fail("format code 's' does not fit a number");
    return WriteNumber(spec, value, budget);
  }
  if (!value.is(Kind::kString)) {
    Fail("a format specification does not fit ", TypeName(value));
  }
  if ((spec.type != '\0' && spec.type != 's') || spec.groups_digits) {
    Fail("format specification '", spec_text, "' does not fit a string");
  }
  return WriteText(spec, value.text(), '<', budget);
}

// `text`, which a format's `field` made: an input as a whole if the field has
// one, because its fill and digits are then.
Text MadeBy(const Text& field, Text text) {
  return field.has_input() ? Text(text.bytes(), true) : std::move(text);
}

// The argument of a field of str.format; `*next` is the next one without a
// name.
const Value& FindArgument(std::string_view name, const Arguments& arguments,
                          size_t* next, Budget& budget) {
  if (name.find_first_of(".[!") != name.npos) {
    Fail("field '", name, "' is not supported: ",
         "attributes, elements and conversions of fields are not");
  }
  size_t place = *next;
  if (name.empty()) {
    ++*next;
  } else if (const std::optional<int64_t> number = ReadInteger(name, 10)) {
    if (*number < 0) Fail("a field's number must not be negative");
    place = static_cast<size_t>(*number);
  } else {
    budget.TakeSteps(std::ssize(arguments.named) / 8);
    for (const auto& [other, value] : arguments.named) {
      if (other.bytes() == name) return value;
    }
    Fail("format() has no argument \"", name, "\"");
  }
  if (place >= arguments.positional.size()) {
    Fail("format() has no argument ", place);
  }
  return arguments.positional[place];
}

// A conversion of %, and the key in parentheses before it.
struct Conversion {
  FieldSpec spec;
  std::optional<std::string> key;
};

// Takes it off `*rest`, which is behind the "%".
Conversion TakeConversion(std::string_view* rest) {
  Conversion conversion;
  FieldSpec& spec = conversion.spec;
  if (TakeCharacter(rest, '(')) {
    const size_t close = rest->find(')');
    if (close == rest->npos) Fail("incomplete format key");
    conversion.key = std::string(rest->substr(0, close));
    rest->remove_prefix(close + 1);
  }
  const bool is_left = TakeCharacter(rest, '-');
  if (TakeCharacter(rest, '0') && !is_left) spec.fill = "0";
  if (is_left) spec.align = '<';
  spec.width = TakeNumber(rest).value_or(0);
  if (TakeCharacter(rest, '.')) {
    spec.precision = static_cast<int>(TakeNumber(rest).value_or(0));
  }
  if (rest->empty()) Fail("incomplete format");
  spec.type = (*rest)[0];
  const size_t size = CharacterSize(spec.type);
  if (std::string_view("srdif%").find(spec.type) == std::string_view::npos) {
    Fail("format character '", rest->substr(0, size),
         "' is not supported: s, r, d, i and f are");
  }
  rest->remove_prefix(size);
  return conversion;
}

Text WriteConversion(FieldSpec spec, const Value& value, Budget& budget) {
  if (spec.type == 's' || spec.type == 'r') {
    spec.fill = " ";
    return WriteText(
        spec,
        spec.type == 's' ? ToText(value, budget) : ReprText(value, budget), '>',
        budget);
  }
  if (spec.type == '%') Fail("%% takes no flags and no width");
  if (!value.is_number()) {
    Fail("%", spec.type, " needs a number, got ", TypeName(value));
  }
  if (spec.type == 'f') return WriteNumber(spec, value, budget);
  const std::optional<int64_t> integer =
      value.is_integer() ? value.integer() : TruncatedInteger(value.number());
  if (!integer) Fail("%d cannot write this number");
  return WriteNumber(spec, Value::Int(*integer).MarkedAs(value.is_input()),
                     budget);
}

// Values of one %, in their order or by their keys.
class PercentArguments {
 public:
  explicit PercentArguments(const Value& arguments)
      : arguments_(arguments),
        is_tuple_(arguments.is(Kind::kSequence) &&
                  arguments.sequence().form == SequenceForm::kTuple) {}

  const Value& Take(const std::optional<std::string>& key) {
    if (key) {
      if (!arguments_.is(Kind::kDict)) Fail("format requires a mapping");
      has_keys_ = true;
      const Value* const value = arguments_.dict().Find(*key);
      if (value == nullptr) Fail("no value for %(", *key, ")");
      return *value;
    }
    if (num_used_ >= size()) Fail("not enough arguments for format string");
    const Value& value =
        is_tuple_ ? arguments_.sequence().items[num_used_] : arguments_;
    ++num_used_;
    return value;
  }

  void CheckAllUsed() const {
    const bool may_be_left = has_keys_ || arguments_.is(Kind::kDict) ||
                             (arguments_.is(Kind::kSequence) && !is_tuple_);
    if (num_used_ < size() && !may_be_left) {
      Fail("not all arguments converted during string formatting");
    }
  }

 private:
  size_t size() const {
    return is_tuple_ ? arguments_.sequence().items.size() : 1;
  }

  const Value& arguments_;
  const bool is_tuple_;
  size_t num_used_ = 0;
  bool has_keys_ = false;
};

}  // namespace

Text FormatBraces(const Text& format, const Arguments& arguments,
                  Budget& budget) {
  const std::string_view bytes = format.bytes();
  budget.TakeBytes(bytes.size());
  size_t next_argument = 0;
  Text out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    const char next = i + 1 < bytes.size() ? bytes[i + 1] : '\0';
    if ((c == '{' || c == '}') && next == c) {
      out.AppendPart(format, i++, 1);
    } else if (c == '}') {
      Fail("Single '}' encountered in format string");
    } else if (c != '{') {
      out.AppendPart(format, i, 1);
    } else {
      const size_t end = bytes.find('}', i);
      if (end == bytes.npos) Fail("expected '}' before end of string");
      const std::string_view field = bytes.substr(i + 1, end - i - 1);
      if (field.find('{') != field.npos) {
        Fail("a field within a field is not supported");
      }
      const size_t colon = std::min(field.find(':'), field.size());
      const Value& value = FindArgument(field.substr(0, colon), arguments,
                                        &next_argument, budget);
      const std::string_view spec =
          colon < field.size() ? field.substr(colon + 1) : std::string_view();
      out.Append(
          MadeBy(format.Part(i + 1, end - i), WriteField(spec, value, budget)));
      i = end;
    }
  }
  return out;
}

Text FormatPercent(const Text& format, const Value& arguments, Budget& budget) {
  PercentArguments values(arguments);
  Text out;
  const std::string_view bytes = format.bytes();
  budget.TakeBytes(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    const size_t plain = std::min(bytes.find('%', i), bytes.size());
    out.AppendPart(format, i, plain - i);
    if (plain == bytes.size()) break;
    std::string_view rest = bytes.substr(plain + 1);
    const Conversion conversion = TakeConversion(&rest);
    i = bytes.size() - rest.size();
    const Text field = format.Part(plain, i - plain);
    if (i - plain == 2 && conversion.spec.type == '%') {
      out.Append(MadeBy(field, Text("%")));
      continue;
    }
    out.Append(MadeBy(
        field,
        WriteConversion(conversion.spec, values.Take(conversion.key), budget)));
  }
  values.CheckAllUsed();
  return out;
}

}  // namespace espalier::jinja
