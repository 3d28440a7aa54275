// Scope: the names that a part of a template has set.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "text/jinja/evaluator.h"

namespace espalier::jinja {

struct Evaluator::Scope : std::enable_shared_from_this<Scope> {
  Scope* parent = nullptr;
  bool is_kept = false;  // a macro was defined within it
  std::vector<std::pair<NameId, Value>> values;

  const Value* Find(NameId name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
      for (const auto& [other, value] : scope->values) {
        if (other == name) return &value;
      }
    }
    return nullptr;
  }
  void Set(NameId name, Value value) {
    for (auto& [other, old] : values) {
      if (other == name) {
        old = std::move(value);
        return;
      }
    }
    values.emplace_back(name, std::move(value));
  }
};

// Makes a scope within `parent` the innermost while it lives.
class Evaluator::ScopeGuard {
 public:
  ScopeGuard(Evaluator* evaluator, Scope* parent)
      : evaluator_(*evaluator),
        previous_(evaluator->scope_),
        scope_(std::make_shared<Scope>()) {
    scope_->parent = parent;
    evaluator_.scope_ = scope_.get();
  }
  ~ScopeGuard() { evaluator_.scope_ = previous_; }

 private:
  Evaluator& evaluator_;
  Scope* const previous_;
  const std::shared_ptr<Scope> scope_;
};

// Counts what is evaluated within itself while it lives, and says where.
class Evaluator::Nested {
 public:
  Nested(Evaluator* evaluator, Position at) : evaluator_(*evaluator) {
    evaluator_.at_ = at;
    evaluator_.budget_.TakeSteps(1);
    if (evaluator_.depth_ >= kMaxEvaluationDepth) {
      throw TemplateError::OutOf(Concat("evaluation is nested more than ",
                                        kMaxEvaluationDepth, " deep"));
    }
    ++evaluator_.depth_;
  }
  ~Nested() { --evaluator_.depth_; }

 private:
  Evaluator& evaluator_;
};

}  // namespace espalier::jinja
