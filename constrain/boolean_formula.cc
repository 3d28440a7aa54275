#include "constrain/boolean_formula.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/hash.h"

namespace espalier {
namespace {

bool IsNegated(Formula formula) { return (formula & 1) != 0; }
int32_t NodeOf(Formula formula) { return formula >> 1; }

// A node and a set of parts take some 60 bytes until the pool goes.
constexpr int64_t kStepsOfNode = 40;

}  // namespace

FormulaPool::FormulaPool(CompileBudget* budget) : budget_(budget) {
  nodes_.emplace_back();  // the empty conjunction: true
}

bool FormulaPool::Take(int64_t steps) {
  if (status_.ok()) status_ = budget_->Take(steps);
  return status_.ok();
}

Formula FormulaPool::AddNode(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<Formula>(2 * (nodes_.size() - 1));
}

Formula FormulaPool::Variable(int32_t variable) {
  if (!Take(1)) return kFalse;
  const auto [entry, is_new] = variables_.try_emplace(variable, kFalse);
  if (is_new) entry->second = AddNode({.variable = variable});
  return entry->second;
}

void FormulaPool::AddParts(Formula part, std::vector<Formula>* parts) const {
  const Node& node = nodes_[NodeOf(part)];
  if (IsNegated(part) || node.variable >= 0) {
    parts->push_back(part);
  } else {
    parts->insert(parts->end(), node.parts.begin(), node.parts.end());
  }
}

bool FormulaPool::Propagate(std::vector<Formula>* parts) {
  const auto has = [&](Formula part) {
    return std::binary_search(parts->begin(), parts->end(), part);
  };
  std::vector<Formula> result;
  bool changes = false;
  for (const Formula part : *parts) {
    const Node& node = nodes_[NodeOf(part)];
    if (!IsNegated(part) || node.variable >= 0) {
      result.push_back(part);
      continue;
    }
    // At least one of the node's parts is false.
    if (!Take(static_cast<int64_t>(node.parts.size()))) return false;
    std::vector<Formula> rest;
    bool is_true = false;
    for (const Formula inner : node.parts) {
      is_true = is_true || has(Not(inner));
      if (!has(inner)) rest.push_back(inner);
    }
    const bool is_same = rest.size() == node.parts.size();
    changes = changes || is_true || !is_same;
    if (is_true) continue;
    result.push_back(is_same ? part : Not(And(std::move(rest))));
  }
  if (changes) *parts = std::move(result);
  return changes;
}

Formula FormulaPool::And(std::vector<Formula> parts) {
  std::vector<Formula> all;
  for (const Formula part : parts) AddParts(part, &all);
  for (bool changes = true; changes;) {
    if (!Take(8 + 2 * static_cast<int64_t>(all.size()))) return kFalse;
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] == kFalse) return kFalse;
      if (i > 0 && all[i] == Not(all[i - 1])) return kFalse;
    }
    changes = Propagate(&all);
    if (!changes) break;
    parts = std::move(all);
    all.clear();
    for (const Formula part : parts) AddParts(part, &all);
  }
  if (!status_.ok()) return kFalse;
  if (all.empty()) return kTrue;
  if (all.size() == 1) return all.front();
  const uint64_t hash = HashOf(std::string_view(
      reinterpret_cast<const char*>(all.data()), all.size() * sizeof(Formula)));
  const auto next = static_cast<int32_t>(nodes_.size());
  const int32_t node = conjunctions_.FindOrAdd(
      hash, next, [&](int32_t other) { return nodes_[other].parts == all; });
  if (node < next) return 2 * node;
  // Without the steps it is never looked up.
  if (!Take(kStepsOfNode + static_cast<int64_t>(all.size()))) return kFalse;
  return AddNode({.parts = std::move(all)});
}

Formula FormulaPool::Or(std::vector<Formula> parts) {
  for (Formula& part : parts) part = Not(part);
  return Not(And(std::move(parts)));
}

// The formulas that no part is true, and that exactly one is.
struct FormulaPool::Sums {
  Formula none = kTrue;
  Formula one = kFalse;
};

FormulaPool::Sums FormulaPool::SumOf(std::span<const Formula> parts) {
  if (parts.empty()) return {};
  if (parts.size() == 1) return {Not(parts[0]), parts[0]};
  const size_t half = parts.size() / 2;
  const Sums a = SumOf(parts.first(half));
  const Sums b = SumOf(parts.subspan(half));
  return {And({a.none, b.none}),
          Or({And({a.one, b.none}), And({a.none, b.one})})};
}

Formula FormulaPool::ExactlyOne(std::span<const Formula> parts) {
  return SumOf(parts).one;
}

Formula FormulaPool::Substitute(Formula formula,
                                absl::FunctionRef<Formula(int32_t)> value) {
  if (num_substitutions_ == substitutes_.size()) substitutes_.emplace_back();
  auto& results = substitutes_[num_substitutions_++];
  if (results.size() < nodes_.size()) results.resize(2 * nodes_.size());
  const int64_t stamp = ++stamp_;
  const auto visit = [&](auto& self, Formula f) -> Formula {
    const int32_t node = NodeOf(f);
    Formula result = kFalse;
    if (results[node].first == stamp) {
      result = results[node].second;
    } else if (nodes_[node].variable >= 0) {
      result = value(nodes_[node].variable);
      results[node] = {stamp, result};
    } else {
      std::vector<Formula> parts = nodes_[node].parts;
      if (!Take(8 + 2 * static_cast<int64_t>(parts.size()))) return kFalse;
      for (Formula& part : parts) {
        part = self(self, part);
        if (part == kFalse) break;
      }
      result = std::find(parts.begin(), parts.end(), kFalse) != parts.end()
                   ? kFalse
                   : And(std::move(parts));
      results[node] = {stamp, result};
    }
    return IsNegated(f) ? Not(result) : result;
  };
  const Formula result = visit(visit, formula);
  --num_substitutions_;
  return result;
}

Truth FormulaPool::Evaluate(Formula formula,
                            absl::FunctionRef<Truth(int32_t)> value) {
  const int64_t of_this = ++stamp_;
  results_.resize(nodes_.size());
  const auto visit = [&](auto& self, Formula f) -> Truth {
    auto& [stamp, truth] = results_[NodeOf(f)];
    if (stamp != of_this) {
      const Node& node = nodes_[NodeOf(f)];
      stamp = of_this;
      truth = node.variable >= 0 ? value(node.variable) : Truth::kTrue;
      for (const Formula part : node.parts) {
        const Truth inner = self(self, part);
        if (inner == Truth::kTrue) continue;
        truth = inner;
        if (inner == Truth::kFalse) break;
      }
    }
    if (!IsNegated(f) || truth == Truth::kUnknown) return truth;
    return truth == Truth::kTrue ? Truth::kFalse : Truth::kTrue;
  };
  return visit(visit, formula);
}

int64_t FormulaPool::NumParts(Formula formula) const {
  std::vector<uint8_t> is_seen(nodes_.size());
  std::vector<int32_t> queue = {NodeOf(formula)};
  is_seen[queue.front()] = 1;
  int64_t num_parts = 0;
  while (!queue.empty()) {
    const Node& node = nodes_[queue.back()];
    queue.pop_back();
    num_parts += std::ssize(node.parts);
    for (const Formula part : node.parts) {
      const int32_t inner = NodeOf(part);
      if (std::exchange(is_seen[inner], 1) == 0) queue.push_back(inner);
    }
  }
  return num_parts;
}

std::vector<int32_t> FormulaPool::VariablesOf(Formula formula) const {
  std::vector<int32_t> variables;
  ForEachPolarity(
      formula, [&](int32_t variable, bool) { variables.push_back(variable); });
  std::ranges::sort(variables);
  variables.erase(std::unique(variables.begin(), variables.end()),
                  variables.end());
  return variables;
}

void FormulaPool::ForEachPolarity(
    Formula formula, absl::FunctionRef<void(int32_t, bool)> visit) const {
  const int64_t stamp = ++stamp_;
  if (seen_.size() < 2 * nodes_.size()) seen_.resize(4 * nodes_.size());
  seen_[formula] = stamp;
  std::vector<Formula> queue = {formula};
  while (!queue.empty()) {
    const Formula f = queue.back();
    queue.pop_back();
    const Node& node = nodes_[NodeOf(f)];
    if (node.variable >= 0) visit(node.variable, !IsNegated(f));
    for (const Formula part : node.parts) {
      const Formula inner = IsNegated(f) ? Not(part) : part;
      if (std::exchange(seen_[inner], stamp) != stamp) queue.push_back(inner);
    }
  }
}

}  // namespace espalier
