#include "text/jinja/evaluator.h"

#include <limits>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"
#include "text/jinja/scope.h"
#include "text/jinja/unicode.h"

namespace espalier::jinja {
namespace {

// jinja2's words for an attribute that is not there.
Value MissingAttribute(const Value& object, std::string_view name) {
  return Value::Undefined(
      Concat("'", TypeName(object), " object' has no attribute '", name, "'"));
}

Value MakeFunction(std::string name, int depth,
                   std::function<Value(Evaluator&, const Arguments&)> call) {
  auto function = std::make_shared<Function>();
  function->name = std::move(name);
  function->depth = depth;
  function->call = std::move(call);
  return Value::Of(std::move(function));
}

// The element at `index`, which counts from the end if it is negative, or null.
const Value* ElementAt(const std::vector<Value>& items, int64_t index) {
  const auto size = static_cast<int64_t>(items.size());
  if (index < 0) index += size;
  return index < 0 || index >= size ? nullptr : &items[index];
}

}  // namespace

Evaluator::Evaluator(const Names& names, const Dict& inputs, Budget* budget,
                     absl::Time now)
    : names_(names), inputs_(inputs), budget_(*budget), now_(now) {
  for (int i = 0; i < names.size(); ++i) {
    input_of_.push_back(inputs.Find(names[i]));
  }
}

Evaluator::~Evaluator() {
  for (const auto& attributes : namespaces_) attributes->attributes.clear();
  for (const auto& scope : kept_scopes_) scope->values.clear();
}

Text Evaluator::Render(const Body& body) {
  try {
    const ScopeGuard scope(this, nullptr);
    Text out;
    Execute(body, &out);
    return out;
  } catch (const TemplateError& error) {
    if (error.is_placed()) throw;
    throw error.At(at_);
  }
}

Text Evaluator::ToText(const Value& value) {
  if (value.is(Kind::kString)) budget_.TakeBytes(value.text().size());
  return jinja::ToText(value, budget_);
}

Value Evaluator::Evaluate(const Expression& expression) {
  const Nested nested(this, expression.at);
  return EvaluateInner(expression);
}

Value Evaluator::EvaluateInner(const Expression& expression) {
  const auto child = [&](size_t i) {
    return Evaluate(*expression.children[i]);
  };
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return expression.value;
    case ExpressionKind::kName:
      return EvaluateName(expression.name);
    case ExpressionKind::kTuple:
      return Value::Tuple(EvaluateAll(expression.children));
    case ExpressionKind::kList:
      return Value::List(EvaluateAll(expression.children));
    case ExpressionKind::kDict:
      return EvaluateDict(expression);
    case ExpressionKind::kConditional:
      return EvaluateConditional(expression);
    case ExpressionKind::kAnd: {
      Value left = child(0);
      return IsTrue(left) ? child(1) : left;
    }
    case ExpressionKind::kOr: {
      Value left = child(0);
      return IsTrue(left) ? left : child(1);
    }
    case ExpressionKind::kNot:
      return Value::Bool(!IsTrue(child(0)));
    case ExpressionKind::kUnary: {
      const Value operand = child(0);
      at_ = expression.at;
      return ApplyUnary(expression.text, operand);
    }
    case ExpressionKind::kBinary: {
      const Value left = child(0);
      const Value right = child(1);
      at_ = expression.at;
      return ApplyBinary(expression.text, left, right, budget_);
    }
    case ExpressionKind::kConcat:
      return EvaluateConcat(expression);
    case ExpressionKind::kCompare:
      return EvaluateCompare(expression);
    case ExpressionKind::kAttribute: {
      const Value object = child(0);
      at_ = expression.at;
      return Attribute(object, expression.text);
    }
    case ExpressionKind::kItem: {
      const Value object = child(0);
      const Value key = child(1);
      at_ = expression.at;
      return Item(object, key);
    }
    case ExpressionKind::kSlice:
      return EvaluateSlice(expression);
    case ExpressionKind::kCall:
      return EvaluateCall(expression);
    case ExpressionKind::kFilter:
      return EvaluateFilter(expression, nullptr);
    case ExpressionKind::kTest:
      return EvaluateTest(expression);
  }
  return Value();
}

Value Evaluator::EvaluateName(NameId name) {
  budget_.TakeSteps(scope_->level / 16);
  if (const Value* const value = scope_->Find(name)) return *value;
  if (input_of_[name] != nullptr) return *input_of_[name];
  if (const GlobalFunction function = FindFunction(names_[name])) {
    return MakeFunction(names_[name], 1, function);
  }
  return Value::Undefined(Concat("'", names_[name], "' is undefined"));
}

std::vector<Value> Evaluator::EvaluateAll(
    const std::vector<ExpressionPtr>& expressions) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const ExpressionPtr& expression : expressions) {
    values.push_back(Evaluate(*expression));
  }
  return values;
}

Value Evaluator::EvaluateDict(const Expression& expression) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i < expression.children.size(); i += 2) {
    Value key = Evaluate(*expression.children[i]);
    Value value = Evaluate(*expression.children[i + 1]);
    at_ = expression.at;
    dict->Set(std::move(key), std::move(value), budget_);
  }
  return Value::Of(std::move(dict));
}

Value Evaluator::EvaluateConditional(const Expression& expression) {
  if (IsTrue(Evaluate(*expression.children[0]))) {
    return Evaluate(*expression.children[1]);
  }
  if (expression.children.size() > 2) {
    return Evaluate(*expression.children[2]);
  }
  return Value::Undefined("an if without an else is false");
}

Value Evaluator::EvaluateConcat(const Expression& expression) {
  Text text;
  for (const ExpressionPtr& child : expression.children) {
    Append(jinja::ToText(Evaluate(*child), budget_), &text);
  }
  return Value::String(std::move(text));
}

Value Evaluator::EvaluateCompare(const Expression& expression) {
  Value left = Evaluate(*expression.children[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = Evaluate(*expression.children[i + 1]);
    at_ = expression.at;
    if (!ApplyComparison(expression.operators[i], left, right, budget_)) {
      return Value::Bool(false);
    }
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value Evaluator::EvaluateSlice(const Expression& expression) {
  Value parts[4];
  for (size_t i = 0; i < 4; ++i) {
    const ExpressionPtr& child = expression.children[i];
    parts[i] = child == nullptr ? Value::None() : Evaluate(*child);
  }
  at_ = expression.at;
  // jinja2 computes what is constant before it renders, where what cannot be
  // had is undefined.
  if (expression.children[0]->kind == ExpressionKind::kConstant &&
      !parts[0].is(Kind::kString)) {
    return MissingAttribute(parts[0], "a slice");
  }
  return Slice(parts[0], parts[1], parts[2], parts[3], budget_);
}

Arguments Evaluator::EvaluateArguments(const CallArguments& arguments) {
  Arguments values;
  values.positional = EvaluateAll(arguments.positional);
  for (const auto& [name, argument] : arguments.named) {
    values.named.emplace_back(Text(name), Evaluate(*argument));
  }
  if (arguments.more_positional != nullptr) {
    for (Value& value : Iterate(Evaluate(*arguments.more_positional))) {
      values.positional.push_back(std::move(value));
    }
  }
  if (arguments.more_named != nullptr) {
    const Value more = Evaluate(*arguments.more_named);
    if (!more.is(Kind::kDict)) Fail("** needs a dict, got ", TypeName(more));
    for (const auto& [name, value] : more.dict().items) {
      if (!name.is(Kind::kString)) Fail("** needs strings as keys");
      values.named.emplace_back(name.text(), value);
    }
    budget_.TakeSteps(static_cast<int64_t>(more.dict().items.size()));
  }
  return values;
}

Value Evaluator::EvaluateCall(const Expression& expression) {
  return EvaluateCallWith(expression, {});
}

Value Evaluator::EvaluateCallWith(const Expression& expression,
                                  Arguments more) {
  const Expression& callee = *expression.children[0];
  const auto arguments = [&] {
    Arguments values = EvaluateArguments(expression.arguments);
    for (auto& named : more.named) values.named.push_back(std::move(named));
    at_ = expression.at;
    return values;
  };
  if (callee.kind != ExpressionKind::kAttribute) {
    const Value function = Evaluate(callee);
    return Call(function, arguments());
  }
  const Value object = Evaluate(*callee.children[0]);
  at_ = callee.at;
  if (const Method method = FindMethod(object, callee.text)) {
    return method(*this, object, arguments());
  }
  const Value function = Attribute(object, callee.text);
  return Call(function, arguments());
}

Value Evaluator::Call(const Value& callee, const Arguments& arguments) {
  if (callee.is(Kind::kUndefined)) throw TemplateError(callee.why());
  if (!callee.is(Kind::kFunction)) {
    Fail("'", TypeName(callee), "' object is not callable");
  }
  return callee.function().call(*this, arguments);
}

Value Evaluator::Apply(Filter filter, const Value& value,
                       const Arguments& arguments) {
  const Nested nested(this, at_);
  return filter(*this, value, arguments);
}

Value Evaluator::EvaluateFilter(const Expression& expression,
                                const Value* operand) {
  const Filter filter = FindFilter(expression.text);
  if (filter == nullptr) Fail("unknown filter \"", expression.text, "\"");
  const Expression* const child = expression.children[0].get();
  Value value;
  if (child == nullptr) {
    value = *operand;
  } else if (operand != nullptr) {  // a chain, which begins with the block
    const Nested nested(this, child->at);
    value = EvaluateFilter(*child, operand);
  } else {
    value = Evaluate(*child);
  }
  const Arguments arguments = EvaluateArguments(expression.arguments);
  at_ = expression.at;
  return filter(*this, value, arguments);
}

Value Evaluator::EvaluateTest(const Expression& expression) {
  const Test test = FindTest(expression.text);
  if (test == nullptr) Fail("unknown test \"", expression.text, "\"");
  const Value value = Evaluate(*expression.children[0]);
  const Arguments arguments = EvaluateArguments(expression.arguments);
  at_ = expression.at;
  return Value::Bool(test(*this, value, arguments));
}

Value Evaluator::LoopAttribute(const Value& value, const std::string& name) {
  const Loop& loop = value.loop();
  const auto size = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value::Int(loop.index0 + 1);
  if (name == "index0") return Value::Int(loop.index0);
  if (name == "revindex") return Value::Int(size - loop.index0);
  if (name == "revindex0") return Value::Int(size - loop.index0 - 1);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "last") return Value::Bool(loop.index0 == size - 1);
  if (name == "length") return Value::Int(size);
  if (name == "depth") return Value::Int(1);
  if (name == "depth0") return Value::Int(0);
  if (name == "previtem") {
    if (loop.index0 == 0) return Value::Undefined("there is no previous item");
    return loop.items[loop.index0 - 1];
  }
  if (name == "nextitem") {
    if (loop.index0 == size - 1) {
      return Value::Undefined("there is no next item");
    }
    return loop.items[loop.index0 + 1];
  }
  if (name != "cycle") return MissingAttribute(value, name);
  return MakeFunction(name, value.depth() + 1,
                      [value](Evaluator&, const Arguments& arguments) {
                        const std::vector<Value>& values = arguments.positional;
                        if (values.empty()) Fail("no items for cycling given");
                        return values[value.loop().index0 % values.size()];
                      });
}

Value Evaluator::MethodOf(const Value& object, const std::string& name) {
  if (IsRefusedMethod(object, name)) {
    return Value::Undefined(Concat("access to attribute '", name, "' of '",
                                   TypeName(object), "' object is unsafe"));
  }
  if (IsUnsupportedMethod(object, name)) {
    return Value::Undefined(
        Concat("the method ", name, " of strings is not supported"));
  }
  const Method method = FindMethod(object, name);
  if (method == nullptr) return MissingAttribute(object, name);
  return MakeFunction(
      name, object.depth() + 1,
      [object, method](Evaluator& evaluator, const Arguments& arguments) {
        return method(evaluator, object, arguments);
      });
}

Value Evaluator::Attribute(const Value& object, const std::string& name) {
  if (object.is(Kind::kUndefined)) throw TemplateError(object.why());
  budget_.TakeBytes(name.size());
  if (object.is(Kind::kLoop)) return LoopAttribute(object, name);
  if (object.is(Kind::kNamespace)) {
    const Value* const value = object.attributes().Find(name);
    return value == nullptr ? MissingAttribute(object, name) : *value;
  }
  if (object.is(Kind::kDict) && FindMethod(object, name) == nullptr &&
      !IsRefusedMethod(object, name)) {
    const Value* const value = object.dict().Find(name);
    return value == nullptr ? MissingAttribute(object, name) : *value;
  }
  return MethodOf(object, name);
}

Value Evaluator::Item(const Value& object, const Value& key) {
  if (object.is(Kind::kUndefined)) throw TemplateError(object.why());
  if (object.is(Kind::kDict)) {
    const Value* const value =
        IsHashable(key) ? object.dict().Find(key, budget_) : nullptr;
    if (value != nullptr) return *value;
  } else if (object.is(Kind::kSequence) && key.is_integer()) {
    const SequenceForm form = object.sequence().form;
    if (form != SequenceForm::kGenerator && form != SequenceForm::kView) {
      const Value* const value =
          ElementAt(object.sequence().items, key.integer());
      if (value != nullptr) return *value;
    }
  } else if (object.is(Kind::kString) && key.is_integer()) {
    int64_t next = 0;
    if (!__builtin_add_overflow(key.integer(), 1, &next)) {
      const Value end = next == 0 ? Value::None() : Value::Int(next);
      const Value character = Slice(object, key, end, Value::None(), budget_);
      if (!character.text().empty()) return character;
    }
  }
  if (!key.is(Kind::kString)) {
    bool has_input = false;
    return MissingAttribute(object, Repr(key, budget_, &has_input));
  }
  if (object.is(Kind::kDict)) return MethodOf(object, key.bytes());
  return Attribute(object, key.bytes());
}

std::vector<Value> Evaluator::Iterate(const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kSequence: {
      const Sequence& sequence = value.sequence();
      if (sequence.form == SequenceForm::kGenerator &&
          std::exchange(sequence.is_read, true)) {
        return items;
      }
      budget_.TakeSteps(static_cast<int64_t>(sequence.items.size()) / 4);
      budget_.TakeBytes(sizeof(Value) * sequence.items.size() / 4);
      return sequence.items;
    }
    case Kind::kDict:
      budget_.TakeSteps(static_cast<int64_t>(value.dict().items.size()) / 4);
      for (const auto& item : value.dict().items) items.push_back(item.first);
      return items;
    case Kind::kString: {
      const std::string_view bytes = value.bytes();
      budget_.TakeSteps(static_cast<int64_t>(bytes.size()));
      budget_.TakeBytes(4 * sizeof(Value) * bytes.size());
      for (size_t i = 0; i < bytes.size(); i += CharacterSize(bytes[i])) {
        items.push_back(
            Value::String(value.text().Part(i, CharacterSize(bytes[i]))));
      }
      return items;
    }
    default:
      Fail("'", TypeName(value), "' object is not iterable");
  }
}

}  // namespace espalier::jinja
