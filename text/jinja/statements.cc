// The statements of Evaluator.
#include <algorithm>
#include <optional>

#include "base/wording.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/printing.h"
#include "text/jinja/scope.h"

namespace espalier::jinja {

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
