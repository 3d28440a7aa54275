#include "text/jinja/tests.h"

#include "text/jinja/evaluator.h"
#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

void TakeNone(std::string_view test, const Arguments& arguments) {
  const ArgumentReader args(test, arguments, {});
}

// Tests without arguments.
template <bool (*kIs)(const Value&)>
bool Plain(Evaluator&, const Value& value, const Arguments& arguments) {
  TakeNone("a test", arguments);
  return kIs(value);
}

bool IsDefined(const Value& value) { return !value.is(Kind::kUndefined); }
bool IsUndefined(const Value& value) { return value.is(Kind::kUndefined); }
bool IsNone(const Value& value) { return value.is(Kind::kNone); }
bool IsBoolean(const Value& value) { return value.is(Kind::kBool); }
bool IsTrueItself(const Value& value) {
  return value.is(Kind::kBool) && value.boolean();
}
bool IsFalseItself(const Value& value) {
  return value.is(Kind::kBool) && !value.boolean();
}
bool IsInteger(const Value& value) { return value.is(Kind::kInt); }
bool IsFloat(const Value& value) { return value.is(Kind::kFloat); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsString(const Value& value) { return value.is(Kind::kString); }
bool IsMapping(const Value& value) { return value.is(Kind::kDict); }
bool IsCallable(const Value& value) {
  return value.is(Kind::kFunction) || value.is(Kind::kUndefined);
}
bool IsEscaped(const Value& value) {
  return value.is(Kind::kString) && value.is_markup();
}
bool IsIterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kSequence:
    case Kind::kDict:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}
// True for values with a length and elements by index or key; as in jinja2,
// undefined values too.
bool IsSequence(const Value& value) {
  if (value.is(Kind::kSequence)) {
    const SequenceForm form = value.sequence().form;
    return form != SequenceForm::kGenerator && form != SequenceForm::kView;
  }
  return value.is(Kind::kUndefined) || value.is(Kind::kString) ||
         value.is(Kind::kDict);
}

int64_t Remainder(Evaluator& evaluator, const Value& value, const Value& by) {
  const Value rest = ApplyBinary("%", value, by, evaluator.budget());
  // For a float, callers only test for 0 and 1.
  if (rest.is(Kind::kFloat)) {
    return rest.number() == 0 ? 0 : rest.number() == 1 ? 1 : 2;
  }
  return rest.is_integer() ? rest.integer() : 2;
}

bool IsOdd(Evaluator& evaluator, const Value& value,
           const Arguments& arguments) {
  TakeNone("odd", arguments);
  return Remainder(evaluator, value, Value::Int(2)) == 1;
}

bool IsEven(Evaluator& evaluator, const Value& value,
            const Arguments& arguments) {
  TakeNone("even", arguments);
  return Remainder(evaluator, value, Value::Int(2)) == 0;
}

bool IsDivisibleBy(Evaluator& evaluator, const Value& value,
                   const Arguments& arguments) {
  const ArgumentReader args("divisibleby", arguments, {"num"}, 1);
  return Remainder(evaluator, value, args[0]) == 0;
}

template <bool kUpper>
bool HasCase(Evaluator& evaluator, const Value& value,
             const Arguments& arguments) {
  TakeNone("a test of case", arguments);
  const Text text = evaluator.ToText(value);
  bool has_cased = false;
  const std::string_view bytes = text.bytes();
  for (size_t i = 0; i < bytes.size(); i += CharacterSize(bytes[i])) {
    const std::string_view character = bytes.substr(i, CharacterSize(bytes[i]));
    if (!IsCased(character)) continue;
    if (IsUpperCharacter(character) != kUpper) return false;
    has_cased = true;
  }
  return has_cased;
}

// True for the same object; equal constants, such as small integers, count as
// the same.
bool IsSameAs(Evaluator& evaluator, const Value& value,
              const Arguments& arguments) {
  const ArgumentReader args("sameas", arguments, {"other"}, 1);
  const Value& other = args[0];
  if (value.kind() != other.kind()) return false;
  if (value.object() != nullptr && !value.is(Kind::kString)) {
    return value.object() == other.object();
  }
  return ApplyComparison("==", value, other, evaluator.budget());
}

bool IsIn(Evaluator& evaluator, const Value& value,
          const Arguments& arguments) {
  const ArgumentReader args("in", arguments, {"seq"}, 1);
  return Contains(args[0], value, evaluator.budget());
}

bool IsFilter(Evaluator&, const Value& value, const Arguments& arguments) {
  TakeNone("filter", arguments);
  return value.is(Kind::kString) && FindFilter(value.bytes()) != nullptr;
}

bool IsTest(Evaluator&, const Value& value, const Arguments& arguments) {
  TakeNone("test", arguments);
  return value.is(Kind::kString) && FindTest(value.bytes()) != nullptr;
}

template <char kFirst, char kSecond>
bool Compares(Evaluator& evaluator, const Value& value,
              const Arguments& arguments) {
  constexpr char kOperator[] = {kFirst, kSecond, '\0'};
  const ArgumentReader args(kOperator, arguments, {"other"}, 1);
  return ApplyComparison(kOperator, value, args[0], evaluator.budget());
}

struct NamedTest {
  std::string_view name;
  Test test;
};
constexpr NamedTest kTests[] = {{"boolean", Plain<IsBoolean>},
                                {"callable", Plain<IsCallable>},
                                {"defined", Plain<IsDefined>},
                                {"divisibleby", IsDivisibleBy},
                                {"escaped", Plain<IsEscaped>},
                                {"even", IsEven},
                                {"false", Plain<IsFalseItself>},
                                {"filter", IsFilter},
                                {"float", Plain<IsFloat>},
                                {"in", IsIn},
                                {"integer", Plain<IsInteger>},
                                {"iterable", Plain<IsIterable>},
                                {"lower", HasCase<false>},
                                {"mapping", Plain<IsMapping>},
                                {"none", Plain<IsNone>},
                                {"number", Plain<IsNumber>},
                                {"odd", IsOdd},
                                {"sameas", IsSameAs},
                                {"sequence", Plain<IsSequence>},
                                {"string", Plain<IsString>},
                                {"test", IsTest},
                                {"true", Plain<IsTrueItself>},
                                {"undefined", Plain<IsUndefined>},
                                {"upper", HasCase<true>},
                                {"==", Compares<'=', '='>},
                                {"eq", Compares<'=', '='>},
                                {"equalto", Compares<'=', '='>},
                                {"!=", Compares<'!', '='>},
                                {"ne", Compares<'!', '='>},
                                {">", Compares<'>', '\0'>},
                                {"gt", Compares<'>', '\0'>},
                                {"greaterthan", Compares<'>', '\0'>},
                                {">=", Compares<'>', '='>},
                                {"ge", Compares<'>', '='>},
                                {"<", Compares<'<', '\0'>},
                                {"lt", Compares<'<', '\0'>},
                                {"lessthan", Compares<'<', '\0'>},
                                {"<=", Compares<'<', '='>},
                                {"le", Compares<'<', '='>}};

}  // namespace

Test FindTest(std::string_view name) {
  for (const NamedTest& named : kTests) {
    if (named.name == name) return named.test;
  }
  return nullptr;
}

}  // namespace espalier::jinja
