// Python's % of strings.
#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/format.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/number.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

// A conversion of %: its specification, and the key in parentheses before it.
struct Conversion {
  FormatSpec spec;
  std::optional<std::string> key;
};

// Takes it off `*rest`, which is behind the "%".
Conversion TakeConversion(std::string_view* rest) {
  Conversion conversion;
  FormatSpec& spec = conversion.spec;
  if (TakeFormatCharacter(rest, '(')) {
    const size_t close = rest->find(')');
    if (close == rest->npos) Fail("incomplete format key");
    conversion.key = std::string(rest->substr(0, close));
    rest->remove_prefix(close + 1);
  }
  for (bool is_flag = true; is_flag && !rest->empty();) {
    const char c = (*rest)[0];
    is_flag = c == '-' || c == '+' || c == ' ' || c == '#' || c == '0';
    if (!is_flag) break;
    if (c == '-') spec.align = '<';
    if (c == '+' || (c == ' ' && spec.sign != '+')) spec.sign = c;
    if (c == '#') spec.is_alternate = true;
    if (c == '0') spec.fill = "0";
    rest->remove_prefix(1);
  }
  if (spec.align == '<') spec.fill = " ";
  spec.width = TakeFormatNumber(rest).value_or(0);
  if (TakeFormatCharacter(rest, '.')) {
    spec.precision = static_cast<int>(TakeFormatNumber(rest).value_or(0));
  }
  // C's length, which has no meaning here.
  if (!rest->empty() &&
      std::string_view("hlL").find((*rest)[0]) != std::string_view::npos) {
    rest->remove_prefix(1);
  }
  if (rest->empty()) Fail("incomplete format");
  spec.type = (*rest)[0];
  // Types are of ASCII; an error shows the whole character.
  const size_t size = CharacterSize(spec.type);
  if (size > 1) {
    Fail("unsupported format character '", rest->substr(0, size), "'");
  }
  rest->remove_prefix(1);
  return conversion;
}

// %c: one character, or its number.
Text CharacterOf(const Value& value) {
  if (value.is_integer()) {
    return Text(FormatCharacter(value.integer()), value.is_input());
  }
  if (!value.is(Kind::kString) || CountCharacters(value.bytes()) != 1) {
    Fail("%c needs an integer or one character, got ", TypeName(value));
  }
  return value.text();
}

Text ApplyToText(FormatSpec spec, const Value& value, Budget& budget) {
  spec.fill = " ";
  switch (spec.type) {
    case 's':
      return LayOutText(spec, ToText(value, budget), '>', budget);
    case 'c':
      spec.precision.reset();
      return LayOutText(spec, CharacterOf(value), '>', budget);
    default:
      return LayOutText(spec, ReprText(value, spec.type == 'a', budget), '>',
                        budget);
  }
}

Text ApplyToInteger(FormatSpec spec, const Value& value, Budget& budget) {
  const bool is_decimal =
      spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
  if (!(is_decimal ? value.is_number() : value.is_integer())) {
    Fail("%", spec.type,
         is_decimal ? " needs a number, got " : " needs an integer, got ",
         TypeName(value));
  }
  if (is_decimal) spec.type = 'd';
  const std::optional<int64_t> integer =
      value.is_integer() ? value.integer() : TruncatedInteger(value.number());
  if (!integer) Fail("%d cannot write this number");
  spec.min_digits = spec.precision.value_or(0);
  budget.TakeBytes(spec.min_digits);
  return LayOutNumber(spec, Value::Int(*integer).MarkedAs(value.is_input()),
                      budget);
}

Text ApplyConversion(const FormatSpec& spec, const Value& value,
                     Budget& budget) {
  switch (spec.type) {
    case 's':
    case 'r':
    case 'a':
    case 'c':
      return ApplyToText(spec, value, budget);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
      return ApplyToInteger(spec, value, budget);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      if (!value.is_number()) {
        Fail("%", spec.type, " needs a number, got ", TypeName(value));
      }
      return LayOutNumber(spec, value, budget);
    default:
      Fail("unsupported format character '", spec.type, "'");
  }
}

}  // namespace

Value FormatPercent(const Text& format, const Value& arguments,
                    Budget& budget) {
  const bool is_tuple = arguments.is(Kind::kSequence) &&
                        arguments.sequence().form == SequenceForm::kTuple;
  const size_t num_values = is_tuple ? arguments.sequence().items.size() : 1;
  size_t num_used = 0;
  bool has_keys = false;
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
    if (conversion.key) {
      if (!arguments.is(Kind::kDict)) Fail("format requires a mapping");
      has_keys = true;
      const Value* const value = arguments.dict().Find(*conversion.key);
      if (value == nullptr) Fail("no value for %(", *conversion.key, ")");
      out.Append(
          MadeBy(field, ApplyConversion(conversion.spec, *value, budget)));
      continue;
    }
    if (num_used >= num_values) {
      Fail("not enough arguments for format string");
    }
    const Value& value =
        is_tuple ? arguments.sequence().items[num_used] : arguments;
    ++num_used;
    out.Append(MadeBy(field, ApplyConversion(conversion.spec, value, budget)));
  }
  const bool may_be_left = has_keys || arguments.is(Kind::kDict) ||
                           (arguments.is(Kind::kSequence) && !is_tuple);
  if (num_used < num_values && !may_be_left) {
    Fail("not all arguments converted during string formatting");
  }
  return Value::String(std::move(out));
}

}  // namespace espalier::jinja
