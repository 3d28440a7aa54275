#include "text/jinja/evaluator.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/wording.h"
#include "text/jinja/filters.h"
#include "text/jinja/functions.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"
#include "text/jinja/scope.h"
#include "text/jinja/tests.h"
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

void Evaluator::Append(const Text& text, Text* out) {
  budget_.TakeBytes(text.size());
  out->Append(text);
}

void Evaluator::Set(NameId name, Value value) {
  scope_->Set(name, std::move(value));
}

void Evaluator::SetByName(std::string_view name, Value value) {
  const std::optional<NameId> id = names_.Find(name);
  if (id) Set(*id, std::move(value));
}

Evaluator::Flow Evaluator::Execute(const Body& body, Text* out) {
  for (const auto& statement : body) {
    const Flow flow = Execute(*statement, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::Execute(const Statement& statement, Text* out) {
  const Nested nested(this, statement.at);
  switch (statement.kind) {
    case StatementKind::kData:
      budget_.TakeBytes(statement.text.size());
      out->Append(statement.text);
      return Flow::kNext;
    case StatementKind::kOutput:
      ExecuteOutput(statement, out);
      return Flow::kNext;
    case StatementKind::kIf:
      return ExecuteIf(statement, out);
    case StatementKind::kFor:
      return ExecuteFor(statement, out);
    case StatementKind::kSet:
      Assign(statement.targets[0], Evaluate(*statement.expressions[0]));
      return Flow::kNext;
    case StatementKind::kSetBlock:
      return ExecuteSetBlock(statement);
    case StatementKind::kMacro:
      Assign(statement.targets[0], MakeMacro(*statement.macro));
      return Flow::kNext;
    case StatementKind::kCallBlock:
      ExecuteCallBlock(statement, out);
      return Flow::kNext;
    case StatementKind::kFilterBlock:
      return ExecuteFilterBlock(statement, out);
    case StatementKind::kWith:
      return ExecuteWith(statement, out);
    case StatementKind::kScope: {
      const ScopeGuard scope(this, scope_);
      return Execute(statement.body, out);
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

void Evaluator::ExecuteOutput(const Statement& statement, Text* out) {
  for (const ExpressionPtr& expression : statement.expressions) {
    Append(jinja::ToText(Evaluate(*expression), budget_), out);
  }
}

Evaluator::Flow Evaluator::ExecuteIf(const Statement& statement, Text* out) {
  for (const Branch& branch : statement.branches) {
    if (IsTrue(Evaluate(*branch.condition))) return Execute(branch.body, out);
  }
  return Execute(statement.body, out);
}

bool Evaluator::PassesFilter(const Statement& statement, const Value& item) {
  const ScopeGuard scope(this, scope_);
  Assign(statement.targets[0], item);
  return IsTrue(Evaluate(*statement.expressions[1]));
}

Evaluator::Flow Evaluator::ExecuteFor(const Statement& statement, Text* out) {
  std::vector<Value> items = Iterate(Evaluate(*statement.expressions[0]));
  // As in jinja2, the filter is evaluated at each element's turn, so that it
  // sees variables that the body has set; if the body uses its loop's length,
  // all elements are filtered first.
  if (statement.expressions[1] != nullptr && statement.uses_loop) {
    std::vector<Value> passed;
    for (Value& item : items) {
      if (PassesFilter(statement, item)) passed.push_back(std::move(item));
    }
    items = std::move(passed);
  }
  if (ExecuteLoop(statement, std::move(items), out)) return Flow::kNext;
  const ScopeGuard scope(this, scope_);
  return Execute(statement.or_else, out);
}

bool Evaluator::ExecuteLoop(const Statement& statement,
                            std::vector<Value> items, Text* out) {
  auto loop = std::make_shared<Loop>();
  loop->items = std::move(items);
  const Value loop_value = Value::Of(loop);
  const bool filters =
      statement.expressions[1] != nullptr && !statement.uses_loop;
  bool has_run = false;
  for (size_t i = 0; i < loop->items.size(); ++i) {
    if (filters && !PassesFilter(statement, loop->items[i])) continue;
    has_run = true;
    loop->index0 = static_cast<int64_t>(i);
    const ScopeGuard scope(this, scope_);
    Assign(statement.targets[0], loop->items[i]);
    if (statement.uses_loop) SetByName("loop", loop_value);
    if (Execute(statement.body, out) == Flow::kBreak) break;
  }
  return has_run;
}

Evaluator::Flow Evaluator::ExecuteSetBlock(const Statement& statement) {
  Text text;
  Flow flow = Flow::kNext;
  {
    const ScopeGuard scope(this, scope_);
    flow = Execute(statement.body, &text);
  }
  Value value = Value::String(std::move(text));
  if (statement.expressions[0] != nullptr) {
    value = EvaluateFilter(*statement.expressions[0], &value);
  }
  Assign(statement.targets[0], value);
  return flow;
}

void Evaluator::ExecuteCallBlock(const Statement& statement, Text* out) {
  Arguments more;
  more.named.emplace_back(Text("caller"), MakeMacro(*statement.macro));
  Append(ToText(EvaluateCallWith(*statement.expressions[0], std::move(more))),
         out);
}

Evaluator::Flow Evaluator::ExecuteFilterBlock(const Statement& statement,
                                              Text* out) {
  const ScopeGuard scope(this, scope_);
  Text text;
  const Flow flow = Execute(statement.body, &text);
  const Value value = Value::String(std::move(text));
  Append(ToText(EvaluateFilter(*statement.expressions[0], &value)), out);
  return flow;
}

Evaluator::Flow Evaluator::ExecuteWith(const Statement& statement, Text* out) {
  std::vector<Value> values = EvaluateAll(statement.expressions);
  const ScopeGuard scope(this, scope_);
  for (size_t i = 0; i < values.size(); ++i) {
    Assign(statement.targets[i], values[i]);
  }
  return Execute(statement.body, out);
}

void Evaluator::Assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    const std::vector<Value> items = Iterate(value);
    if (items.size() != target.parts.size()) {
      Fail("expected ",
           Pluralize(static_cast<int64_t>(target.parts.size()), "value"),
           " to unpack, got ", items.size());
    }
    for (size_t i = 0; i < items.size(); ++i) Assign(target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) return Set(target.name, value);
  const Value object = EvaluateName(target.name);
  if (!object.is(Kind::kNamespace)) {
    Fail("cannot assign to an attribute of '", names_[target.name],
         "', which is no namespace");
  }
  object.attributes().Set(target.attribute, value);
}

Value Evaluator::MakeMacro(const Macro& macro) {
  for (Scope* scope = scope_; scope != nullptr && !scope->is_kept;
       scope = scope->parent) {
    kept_scopes_.push_back(scope->shared_from_this());
    scope->is_kept = true;
  }
  auto function = std::make_shared<Function>();
  function->name = macro.name;
  function->depth = 1;
  function->call = [&macro, scope = scope_](Evaluator& evaluator,
                                            const Arguments& arguments) {
    return evaluator.CallMacro(macro, scope, arguments);
  };
  return Value::Of(std::move(function));
}

Value Evaluator::CallMacro(const Macro& macro, Scope* parent,
                           const Arguments& arguments) {
  const ScopeGuard scope(this, parent);
  const Nested nested(this, at_);
  budget_.TakeSteps(static_cast<int64_t>(arguments.positional.size() +
                                         arguments.named.size()) /
                    4);
  BindArguments(macro, arguments);
  Text text;
  Execute(macro.body, &text);
  return Value::String(std::move(text));
}

void Evaluator::BindArguments(const Macro& macro, const Arguments& arguments) {
  const size_t num_parameters = macro.parameters.size();
  const size_t num_positional = arguments.positional.size();
  if (num_positional > num_parameters && !macro.uses_varargs) {
    Fail("macro '", macro.name, "' takes ",
         Pluralize(static_cast<int64_t>(num_parameters), "argument"),
         " at most, got ", num_positional);
  }
  for (size_t i = 0; i < std::min(num_parameters, num_positional); ++i) {
    Set(macro.parameters[i], arguments.positional[i]);
  }
  const std::vector<bool> is_bound = BindNamed(macro, arguments);
  const size_t first_default = num_parameters - macro.defaults.size();
  for (size_t i = num_positional; i < num_parameters; ++i) {
    const NameId name = macro.parameters[i];
    if (is_bound[i]) continue;
    budget_.TakeSteps(4);
    Set(name, i >= first_default
                  ? Evaluate(*macro.defaults[i - first_default])
                  : Value::Undefined(Concat("parameter '", names_[name],
                                            "' was not provided")));
  }
  if (!macro.uses_varargs) return;
  std::vector<Value> rest;
  for (size_t i = num_parameters; i < num_positional; ++i) {
    rest.push_back(arguments.positional[i]);
  }
  SetByName("varargs", Value::Tuple(std::move(rest)));
}

std::vector<bool> Evaluator::BindNamed(const Macro& macro,
                                       const Arguments& arguments) {
  std::vector<bool> is_bound(macro.parameters.size());
  auto rest = std::make_shared<Dict>();
  Value caller = Value::Undefined("No caller defined");
  for (const auto& [name, value] : arguments.named) {
    const std::optional<NameId> id = names_.Find(name.bytes());
    const auto found = id ? macro.places.find(*id) : macro.places.end();
    if (found != macro.places.end()) {
      const size_t place = found->second;
      is_bound[place] = true;
      if (place < arguments.positional.size()) {
        Fail("macro '", macro.name, "' got '", name.bytes(), "' twice");
      }
      Set(*id, value);
    } else if (name.bytes() == "caller" && macro.uses_caller) {
      caller = value;
    } else if (macro.uses_kwargs) {
      rest->Set(Value::String(name), value);
    } else {
      Fail("macro '", macro.name, "' has no parameter '", name.bytes(), "'");
    }
  }
  if (macro.uses_caller) SetByName("caller", std::move(caller));
  if (macro.uses_kwargs) SetByName("kwargs", Value::Of(std::move(rest)));
  return is_bound;
}

}  // namespace espalier::jinja
