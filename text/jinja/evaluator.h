// Evaluator: renders a template once. It walks the syntax tree, with the scopes
// of names, the budget and the output.
//
// Names are resolved as in jinja2: in the enclosing scopes, then in the inputs,
// then among the functions. A for statement's body has a scope per iteration,
// so its variables end with it; an if has none. Macros use the scope of their
// definition, in its state at the time of the call.
//
// Thread safety: one thread; the template and the inputs are only read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "text/jinja/arguments.h"
#include "text/jinja/budget.h"
#include "text/jinja/syntax.h"
#include "text/jinja/text.h"
#include "text/jinja/value.h"

namespace espalier::jinja {

class Evaluator {
 public:
  // All outlive this. `inputs` is by name; `now` is what strftime_now shows.
  Evaluator(const Names& names, const Dict& inputs, Budget* budget,
            absl::Time now);
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  // Errors (thrown): what went wrong, with its place.
  Text Render(const Body& body);

  // Used by functions and filters.
  Budget& budget() { return budget_; }
  absl::Time now() const { return now_; }
  Value Call(const Value& callee, const Arguments& arguments);
  // object.name and object[key]: undefined if there is none.
  Value Attribute(const Value& object, const std::string& name);
  Value Item(const Value& object, const Value& key);
  // The elements that a for statement visits.
  std::vector<Value> Iterate(const Value& value);
  // Applies a filter on behalf of another filter, as a nested evaluation.
  Value Apply(Value (*filter)(Evaluator&, const Value&, const Arguments&),
              const Value& value, const Arguments& arguments);
  // str(value), and what it takes to make and read it.
  Text ToText(const Value& value);
  // Lets a namespace live as long as this.
  void Keep(std::shared_ptr<Namespace> attributes) {
    namespaces_.push_back(std::move(attributes));
  }

 private:
  struct Scope;
  enum class Flow { kNext, kBreak, kContinue };
  class Nested;
  class ScopeGuard;

  // Expressions.
  Value Evaluate(const Expression& expression);
  Value EvaluateInner(const Expression& expression);
  Value EvaluateName(NameId name);
  Value EvaluateDict(const Expression& expression);
  Value EvaluateConditional(const Expression& expression);
  Value EvaluateConcat(const Expression& expression);
  Value EvaluateCompare(const Expression& expression);
  Value EvaluateSlice(const Expression& expression);
  Value EvaluateCall(const Expression& expression);
  Value EvaluateCallWith(const Expression& expression, Arguments arguments);
  Value EvaluateFilter(const Expression& expression, const Value* operand);
  Value EvaluateTest(const Expression& expression);
  std::vector<Value> EvaluateAll(const std::vector<ExpressionPtr>& expressions);
  Arguments EvaluateArguments(const CallArguments& arguments);
  Value LoopAttribute(const Value& value, const std::string& name);
  Value MethodOf(const Value& object, const std::string& name);

  // Statements.
  Flow Execute(const Body& body, Text* out);
  Flow Execute(const Statement& statement, Text* out);
  void ExecuteOutput(const Statement& statement, Text* out);
  Flow ExecuteIf(const Statement& statement, Text* out);
  Flow ExecuteFor(const Statement& statement, Text* out);
  // Returns true if the body ran at least once.
  bool ExecuteLoop(const Statement& statement, std::vector<Value> items,
                   Text* out);
  bool PassesFilter(const Statement& statement, const Value& item);
  Flow ExecuteSetBlock(const Statement& statement);
  void ExecuteCallBlock(const Statement& statement, Text* out);
  Flow ExecuteFilterBlock(const Statement& statement, Text* out);
  Flow ExecuteWith(const Statement& statement, Text* out);
  void Assign(const Target& target, const Value& value);
  Value MakeMacro(const Macro& macro);
  Value CallMacro(const Macro& macro, Scope* parent,
                  const Arguments& arguments);
  void BindArguments(const Macro& macro, const Arguments& arguments);
  // Returns which parameters got their arguments by name.
  std::vector<bool> BindNamed(const Macro& macro, const Arguments& arguments);

  void Set(NameId name, Value value);
  // Does nothing if the template has no such name.
  void SetByName(std::string_view name, Value value);
  void Append(const Text& text, Text* out);

  const Names& names_;
  const Dict& inputs_;
  Budget& budget_;
  const absl::Time now_;
  std::vector<const Value*> input_of_;  // [names]; null if there is none
  Scope* scope_ = nullptr;              // the innermost
  Position at_;                         // what is evaluated
  // Nesting of Evaluate and Execute.
  int depth_ = 0;
  // Targets of macros and namespaces. They live as long as the evaluator and
  // are emptied before it is destroyed, because they may refer to themselves.
  std::vector<std::shared_ptr<Scope>> kept_scopes_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace espalier::jinja
