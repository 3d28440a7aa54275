#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "text/jinja/error.h"
#include "text/jinja/format.h"
#include "text/jinja/number.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

[[noreturn]] void FailTypes(std::string_view op, const Value& left,
                            const Value& right) {
  if (left.is(Kind::kUndefined)) throw TemplateError(left.why());
  if (right.is(Kind::kUndefined)) throw TemplateError(right.why());
  Fail("\"", op, "\" cannot be applied to ", TypeName(left), " and ",
       TypeName(right));
}

int64_t FloorDivide(int64_t left, int64_t right) {
  if (right == 0) Fail("division by zero");
  if (right == -1) {
    if (left == std::numeric_limits<int64_t>::min()) FailOverflow();
    return -left;
  }
  const int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1
                                                        : quotient;
}

int64_t Modulo(int64_t left, int64_t right) {
  if (right == 0) Fail("division by zero");
  if (right == -1) return 0;
  const int64_t rest = left % right;
  return rest != 0 && (rest < 0) != (right < 0) ? rest + right : rest;
}

Value Power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) Fail("division by zero");
    return Value::Float(
        std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) {
      FailOverflow();
    }
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      FailOverflow();
    }
  }
  return Value::Int(result);
}

Value ApplyToIntegers(std::string_view op, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflows = false;
  if (op == "+") overflows = __builtin_add_overflow(left, right, &result);
  if (op == "-") overflows = __builtin_sub_overflow(left, right, &result);
  if (op == "*") overflows = __builtin_mul_overflow(left, right, &result);
  if (op == "//") result = FloorDivide(left, right);
  if (op == "%") result = Modulo(left, right);
  if (op == "**") return Power(left, right);
  if (op == "/") {
    if (right == 0) Fail("division by zero");
    return Value::Float(static_cast<double>(left) / static_cast<double>(right));
  }
  if (overflows) FailOverflow();
  return Value::Int(result);
}

double Power(double base, double exponent) {
  const bool are_finite = std::isfinite(base) && std::isfinite(exponent);
  if (base == 0 && exponent < 0 && are_finite) {
    Fail("0.0 cannot be raised to a negative power");
  }
  if (are_finite && base < 0 && exponent != std::floor(exponent)) {
    Fail("a power of a negative number is complex");
  }
  const double power = std::pow(base, exponent);
  if (are_finite && std::isinf(power)) Fail("a power is too large");
  return power;
}

// Python's %, or // where `divides`: the remainder has the sign of `right`.
double DivideWithRest(double left, double right, bool divides) {
  double rest = std::fmod(left, right);
  double quotient = (left - rest) / right;
  if (rest == 0) {
    rest = std::copysign(0.0, right);
  } else if ((rest < 0) != (right < 0)) {
    rest += right;
    quotient -= 1;
  }
  if (!divides) return rest;
  if (quotient == 0) return std::copysign(0.0, left / right);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Value ApplyToFloats(std::string_view op, double left, double right) {
  if (op == "+") return Value::Float(left + right);
  if (op == "-") return Value::Float(left - right);
  if (op == "*") return Value::Float(left * right);
  if (op == "**") return Value::Float(Power(left, right));
  if (right == 0) Fail("division by zero");
  if (op == "/") return Value::Float(left / right);
  return Value::Float(DivideWithRest(left, right, op == "//"));
}

Value RepeatText(const Text& text, int64_t times, Budget& budget) {
  if (times <= 0 || text.empty()) return Value::String(Text());
  const int64_t size = static_cast<int64_t>(text.size());
  if (times > std::numeric_limits<int64_t>::max() / size) {
    budget.FailBytes();
  }
  budget.TakeBytes(text.size() * times);
  Text repeated;
  for (int64_t i = 0; i < times; ++i) repeated.Append(text);
  return Value::String(std::move(repeated));
}

bool IsListOrTuple(const Value& value) {
  return value.is(Kind::kSequence) &&
         (value.sequence().form == SequenceForm::kList ||
          value.sequence().form == SequenceForm::kTuple);
}

Value MakeLike(const Sequence& like, std::vector<Value> items) {
  return like.form == SequenceForm::kTuple ? Value::Tuple(std::move(items))
                                           : Value::List(std::move(items));
}

Value RepeatSequence(const Sequence& sequence, int64_t times, Budget& budget) {
  const int64_t size = static_cast<int64_t>(sequence.items.size());
  if (times <= 0 || size == 0) return MakeLike(sequence, {});
  if (times > std::numeric_limits<int32_t>::max() / size) {
    budget.FailSteps();
  }
  budget.TakeSteps(size * times);
  budget.TakeBytes(sizeof(Value) * size * times);
  std::vector<Value> items;
  items.reserve(size * times);
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return MakeLike(sequence, std::move(items));
}

Value Multiply(const Value& left, const Value& right, Budget& budget) {
  if (left.is_integer() && !right.is_integer()) {
    return Multiply(right, left, budget);
  }
  if (right.is_integer() && left.is(Kind::kString)) {
    return RepeatText(left.text(), right.integer(), budget);
  }
  if (right.is_integer() && IsListOrTuple(left)) {
    return RepeatSequence(left.sequence(), right.integer(), budget);
  }
  FailTypes("*", left, right);
}

Value Add(const Value& left, const Value& right, Budget& budget) {
  if (left.is(Kind::kString) && right.is(Kind::kString)) {
    budget.TakeBytes(left.text().size() + right.text().size());
    if (left.is_markup() || right.is_markup()) {
      Text sum = EscapeHtml(left, budget);
      sum.Append(EscapeHtml(right, budget));
      return Value::Markup(std::move(sum));
    }
    Text sum = left.text();
    sum.Append(right.text());
    return Value::String(std::move(sum));
  }
  if (IsListOrTuple(left) && IsListOrTuple(right) &&
      left.sequence().form == right.sequence().form) {
    std::vector<Value> items = left.sequence().items;
    const std::vector<Value>& more = right.sequence().items;
    budget.TakeSteps(static_cast<int64_t>(items.size() + more.size()));
    budget.TakeBytes(sizeof(Value) * (items.size() + more.size()));
    items.insert(items.end(), more.begin(), more.end());
    return MakeLike(left.sequence(), std::move(items));
  }
  FailTypes("+", left, right);
}

// The elements that a slice takes: `begin`, and as long as it is before `end`,
// that plus `stride`, and so on.
struct SliceRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t stride = 1;

  bool Has(int64_t i) const { return stride > 0 ? i < end : i > end; }
};

// Resolves a slice of `size` elements.
SliceRange RangeOfSlice(int64_t size, const Value& begin, const Value& end,
                        const Value& step) {
  const auto read = [](const Value& bound) -> std::optional<int64_t> {
    if (bound.is(Kind::kNone)) return std::nullopt;
    if (bound.is(Kind::kUndefined)) throw TemplateError(bound.why());
    if (!bound.is_integer()) {
      Fail("slice bounds must be integers, got ", TypeName(bound));
    }
    return bound.integer();
  };
  const int64_t stride = read(step).value_or(1);
  if (stride == 0) Fail("a slice's step must not be 0");
  const auto clamp = [&](std::optional<int64_t> bound, int64_t otherwise) {
    if (!bound) return otherwise;
    const int64_t low = stride > 0 ? 0 : -1;
    const int64_t high = stride > 0 ? size : size - 1;
    const int64_t index = *bound < 0 ? *bound + size : *bound;
    return std::clamp(index, low, std::max(low, high));
  };
  return {clamp(read(begin), stride > 0 ? 0 : size - 1),
          clamp(read(end), stride > 0 ? size : -1), stride};
}

// Calls `take(i)` with each element.
template <typename Take>
void ForEachOfSlice(const SliceRange& range, const Take& take) {
  for (int64_t i = range.begin; range.Has(i);) {
    take(i);
    if (__builtin_add_overflow(i, range.stride, &i)) break;
  }
}

Value SliceText(const Text& text, const Value& begin, const Value& end,
                const Value& step, Budget& budget) {
  const std::string_view bytes = text.bytes();
  budget.TakeBytes(2 * bytes.size());
  const SliceRange range =
      RangeOfSlice(CountCharacters(bytes), begin, end, step);
  if (!range.Has(range.begin)) return Value::String(Text());
  if (range.stride == 1) {
    const size_t first = ByteOfCharacter(bytes, range.begin);
    const size_t size =
        ByteOfCharacter(bytes.substr(first), range.end - range.begin);
    return Value::String(text.Part(first, size));
  }
  std::vector<size_t> begins;  // start of each character
  budget.TakeBytes(sizeof(size_t) * bytes.size());
  for (size_t i = 0; i < bytes.size(); i += CharacterSize(bytes[i])) {
    begins.push_back(i);
  }
  begins.push_back(bytes.size());
  Text slice;
  ForEachOfSlice(range, [&](int64_t i) {
    slice.AppendPart(text, begins[i], begins[i + 1] - begins[i]);
  });
  return Value::String(std::move(slice));
}

}  // namespace

Value ApplyBinary(std::string_view op, const Value& left, const Value& right,
                  Budget& budget) {
  if (op == "%" && left.is(Kind::kString)) {
    return Value::String(FormatPercent(left.text(), right, budget));
  }
  if (left.is_number() && right.is_number()) {
    Value result = left.is_integer() && right.is_integer()
                       ? ApplyToIntegers(op, left.integer(), right.integer())
                       : ApplyToFloats(op, left.number(), right.number());
    return std::move(result).MarkedAs(left.is_input() || right.is_input());
  }
  if (op == "+") return Add(left, right, budget);
  if (op == "*") return Multiply(left, right, budget);
  FailTypes(op, left, right);
}

Value ApplyUnary(std::string_view op, const Value& operand) {
  if (operand.is(Kind::kUndefined)) throw TemplateError(operand.why());
  if (operand.is_integer()) {
    const int64_t value = operand.integer();
    if (op == "+") return Value::Int(value).MarkedAs(operand.is_input());
    if (value == std::numeric_limits<int64_t>::min()) FailOverflow();
    return Value::Int(-value).MarkedAs(operand.is_input());
  }
  if (operand.is(Kind::kFloat)) {
    return Value::Float(op == "-" ? -operand.number() : operand.number())
        .MarkedAs(operand.is_input());
  }
  Fail("\"", op, "\" cannot be applied to ", TypeName(operand));
}

bool Contains(const Value& container, const Value& item, Budget& budget) {
  switch (container.kind()) {
    case Kind::kString:
      if (item.is(Kind::kUndefined)) throw TemplateError(item.why());
      if (!item.is(Kind::kString)) {
        Fail("\"in\" a string needs a string on its left, got ",
             TypeName(item));
      }
      budget.TakeBytes(container.text().size());
      return FindFirst(container.bytes(), item.bytes()) != std::string::npos;
    case Kind::kDict:
      budget.TakeSteps(1);
      return container.dict().Find(item, budget) != nullptr;
    case Kind::kSequence:
      for (const Value& other : container.sequence().items) {
        budget.TakeSteps(1);
        if (AreEqual(item, other, budget)) return true;
      }
      return false;
    case Kind::kUndefined:
      return false;
    default:
      Fail("\"in\" cannot search in ", TypeName(container));
  }
}

bool ApplyComparison(std::string_view op, const Value& left, const Value& right,
                     Budget& budget) {
  if (op == "in") return Contains(right, left, budget);
  if (op == "not in") return !Contains(right, left, budget);
  if (op == "==") return AreEqual(left, right, budget);
  if (op == "!=") return !AreEqual(left, right, budget);
  const bool is_ordered =
      !(left.is(Kind::kFloat) || right.is(Kind::kFloat)) ||
      !(left.is_number() && right.is_number()) ||
      !(std::isnan(left.number()) || std::isnan(right.number()));
  if (op == "<") return IsLess(left, right, budget);
  if (op == ">") return IsLess(right, left, budget);
  if (op == "<=") return !IsLess(right, left, budget) && is_ordered;
  return !IsLess(left, right, budget) && is_ordered;
}

Value Slice(const Value& object, const Value& begin, const Value& end,
            const Value& step, Budget& budget) {
  if (object.is(Kind::kUndefined)) throw TemplateError(object.why());
  if (object.is(Kind::kString)) {
    return SliceText(object.text(), begin, end, step, budget);
  }
  const bool can_slice = object.is(Kind::kSequence) &&
                         object.sequence().form != SequenceForm::kGenerator &&
                         object.sequence().form != SequenceForm::kView;
  if (!can_slice) Fail("'", TypeName(object), "' object has no slices");
  const Sequence& sequence = object.sequence();
  budget.TakeSteps(static_cast<int64_t>(sequence.items.size()) / 16);
  std::vector<Value> items;
  ForEachOfSlice(RangeOfSlice(std::ssize(sequence.items), begin, end, step),
                 [&](int64_t i) {
                   budget.TakeSteps(1);
                   budget.TakeBytes(sizeof(Value));
                   items.push_back(sequence.items[i]);
                 });
  return MakeLike(sequence, std::move(items));
}

}  // namespace espalier::jinja
