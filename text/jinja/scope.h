// Scope: the names that a part of a template has set.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/error.h"
#include "text/jinja/evaluator.h"

namespace espalier::jinja {

struct Evaluator::Scope : std::enable_shared_from_this<Scope> {
  Scope* parent = nullptr;
  int level = 0;         // how many are around it
  bool is_kept = false;  // a macro was defined within it
  std::vector<std::pair<NameId, Value>> values;
  // Indices into `values`, used if there are more than kFew.
  static constexpr size_t kFew = 8;
  std::unordered_map<NameId, size_t> places;

  const Value* Find(NameId name) {
    for (Scope* scope = this; scope != nullptr; scope = scope->parent) {
      if (const Value* const value = scope->FindHere(name)) return value;
    }
    return nullptr;
  }
  Value* FindHere(NameId name) {
    if (values.size() > kFew) {
      const auto found = places.find(name);
      return found == places.end() ? nullptr : &values[found->second].second;
    }
    for (auto& [other, value] : values) {
      if (other == name) return &value;
    }
    return nullptr;
  }
  void Set(NameId name, Value value) {
    if (Value* const old = FindHere(name)) {
      *old = std::move(value);
      return;
    }
    values.emplace_back(name, std::move(value));
    if (values.size() <= kFew) return;
    const size_t first = places.empty() ? 0 : values.size() - 1;
    for (size_t i = first; i < values.size(); ++i) places[values[i].first] = i;
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
    scope_->level = parent == nullptr ? 0 : parent->level + 1;
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
