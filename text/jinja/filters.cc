#include "text/jinja/filters.h"

#include <cmath>
#include <limits>

#include "text/jinja/evaluator.h"
#include "text/jinja/number.h"
#include "text/jinja/operators.h"
#include "text/jinja/selection_filters.h"
#include "text/jinja/sequence_filters.h"
#include "text/jinja/text_filters.h"
#include "text/jinja/to_json.h"

namespace espalier::jinja {
namespace {

Value Abs(Evaluator&, const Value& value, const Arguments& arguments) {
  const ArgumentReader args("abs", arguments, {});
  if (value.is(Kind::kUndefined)) throw TemplateError(value.why());
  if (value.is(Kind::kFloat)) {
    return Value::Float(std::fabs(value.number())).MarkedAs(value.is_input());
  }
  if (!value.is_integer()) Fail("abs() needs a number, got ", TypeName(value));
  return ApplyUnary(value.integer() < 0 ? "-" : "+", value);
}

Value Default(Evaluator&, const Value& value, const Arguments& arguments) {
  const ArgumentReader args("default", arguments, {"default_value", "boolean"});
  const bool takes_default =
      value.is(Kind::kUndefined) || (args.BoolOr(1, false) && !IsTrue(value));
  if (!takes_default) return value;
  return args.Has(0) ? args[0] : Value::String("");
}

// True if a number read from `value` comes from an input.
bool IsOfInput(const Value& value) {
  return value.is(Kind::kString) ? value.text().has_input() : value.is_input();
}

// int(), or nothing for what is no number.
// Errors (thrown): a number of more than 64 bits.
std::optional<int64_t> ReadAsInteger(const Value& value, int base) {
  std::optional<double> real;
  if (value.is(Kind::kFloat)) real = value.number();
  if (value.is(Kind::kString)) {
    bool is_too_large = false;
    const std::optional<int64_t> number =
        ReadInteger(value.bytes(), base, &is_too_large);
    if (is_too_large) FailOverflow();
    if (number) return number;
    real = ReadFloat(value.bytes());
    if (real && std::isinf(*real)) return std::nullopt;
  }
  if (!real || std::isnan(*real)) return std::nullopt;
  const std::optional<int64_t> number = TruncatedInteger(*real);
  if (!number) FailOverflow();
  return number;
}

Value ToInt(Evaluator& evaluator, const Value& value,
            const Arguments& arguments) {
  const ArgumentReader args("int", arguments, {"default", "base"});
  if (value.is(Kind::kUndefined)) throw TemplateError(value.why());
  const Value otherwise = args.Has(0) ? args[0] : Value::Int(0);
  if (value.is_integer()) return ApplyUnary("+", value);
  if (value.is(Kind::kString)) {
    evaluator.budget().TakeBytes(2 * value.text().size());
  }
  const std::optional<int64_t> number =
      ReadAsInteger(value, static_cast<int>(args.IntOr(1, 10)));
  return number ? Value::Int(*number).MarkedAs(IsOfInput(value)) : otherwise;
}

Value ToFloat(Evaluator& evaluator, const Value& value,
              const Arguments& arguments) {
  const ArgumentReader args("float", arguments, {"default"});
  if (value.is(Kind::kUndefined)) throw TemplateError(value.why());
  std::optional<double> number;
  if (value.is_number()) number = value.number();
  if (value.is(Kind::kString)) {
    evaluator.budget().TakeBytes(value.text().size());
    number = ReadFloat(value.bytes());
  }
  if (number) return Value::Float(*number).MarkedAs(IsOfInput(value));
  return args.Has(0) ? args[0] : Value::Float(0);
}

Value Rounded(const Value& value, int64_t precision, std::string_view method) {
  if (method == "common") {
    return value.is_integer()
               ? Value::Int(RoundHalfEven(value.integer(), precision))
               : Value::Float(RoundHalfEven(value.number(), precision));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.number() * scale;
  return Value::Float(
      (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value Round(Evaluator&, const Value& value, const Arguments& arguments) {
  const ArgumentReader args("round", arguments, {"precision", "method"});
  if (value.is(Kind::kUndefined)) throw TemplateError(value.why());
  if (!value.is_number()) {
    Fail("round() needs a number, got ", TypeName(value));
  }
  const std::string_view method = args.Has(1) && args[1].is(Kind::kString)
                                      ? std::string_view(args[1].bytes())
                                      : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    Fail("method must be common, ceil or floor");
  }
  return Rounded(value, args.IntOr(0, 0), method).MarkedAs(value.is_input());
}

Value ToJsonFilter(Evaluator& evaluator, const Value& value,
                   const Arguments& arguments) {
  const ArgumentReader args(
      "tojson", arguments,
      {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonFormat format;
  format.ensure_ascii = args.BoolOr(0, false);
  format.sort_keys = args.BoolOr(3, false);
  if (args.Has(1) && !args[1].is(Kind::kNone)) {
    constexpr int64_t kMostSpaces = 1000;
    if (args[1].is(Kind::kString)) {
      format.indent = args[1].bytes();
      format.has_input = args[1].text().has_input();
    } else {
      const int64_t width = args.IntOr(1, 0);
      if (width > kMostSpaces) {
        Fail("indent may be ", kMostSpaces, " at most, got ", width);
      }
      format.indent = std::string(std::max<int64_t>(width, 0), ' ');
    }
    format.item_separator = ",";
  }
  if (args.Has(2) && !args[2].is(Kind::kNone)) {
    const std::vector<Value> separators = evaluator.Iterate(args[2]);
    if (separators.size() != 2 || !separators[0].is(Kind::kString) ||
        !separators[1].is(Kind::kString)) {
      Fail("separators must be two strings");
    }
    format.item_separator = separators[0].bytes();
    format.key_separator = separators[1].bytes();
    format.has_input = format.has_input || separators[0].text().has_input() ||
                       separators[1].text().has_input();
  }
  return Value::String(ToJson(value, format, evaluator.budget()));
}

Value ToStringFilter(Evaluator& evaluator, const Value& value,
                     const Arguments& arguments) {
  const ArgumentReader args("string", arguments, {});
  if (value.is(Kind::kString)) return value;
  return Value::String(evaluator.ToText(value));
}

Value GetAttribute(Evaluator& evaluator, const Value& value,
                   const Arguments& arguments) {
  const ArgumentReader args("attr", arguments, {"name"}, 1);
  // Unlike value.name it finds no elements of dictionaries.
  if (value.is(Kind::kDict) || !args[0].is(Kind::kString)) {
    return Value::Undefined("there is no such attribute");
  }
  return evaluator.Attribute(value, args[0].bytes());
}

constexpr NamedFilter kFilters[] = {
    {"abs", Abs},         {"attr", GetAttribute},     {"d", Default},
    {"default", Default}, {"float", ToFloat},         {"int", ToInt},
    {"round", Round},     {"string", ToStringFilter}, {"tojson", ToJsonFilter}};

}  // namespace

Filter FindFilter(std::string_view name) {
  for (const std::span<const NamedFilter> filters :
       {std::span<const NamedFilter>(kFilters), TextFilters(),
        SequenceFilters(), SelectionFilters()}) {
    for (const NamedFilter& named : filters) {
      if (named.name == name) return named.filter;
    }
  }
  return nullptr;
}

}  // namespace espalier::jinja
