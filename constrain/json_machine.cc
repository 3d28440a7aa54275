#include "constrain/json_machine.h"

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <set>
#include <string_view>

#include "base/status.h"
#include "constrain/regex_language.h"

namespace espalier {
namespace {

using AssertionKind = JsonAssertion::Kind;

// Groups of other keys by their first characters, in the order that they have
// if none may come twice.
constexpr std::array<std::string_view, 6> kKeyGroups = {
    "^(?:$|[\\u0000-\\u0060])", "^[a-e]", "^[f-j]", "^[k-o]", "^[p-t]",
    "^[u-\\u{10FFFF}]"};
// Each of them is a level of recursion.
constexpr size_t kMaxSchemasOfValue = 1000;
constexpr int kAnyGroup = -2;
constexpr int kNoGroup = -1;  // before the first of them
constexpr int kLastGroup = static_cast<int>(kKeyGroups.size()) - 1;

// Finds or adds the number of a state that is yet to be built.
template <typename Key>
int NumberOf(const Key& key, std::map<Key, int>* numbers,
             std::vector<Key>* queue) {
  const auto [entry, is_new] =
      numbers->try_emplace(key, static_cast<int>(queue->size()));
  if (is_new) queue->push_back(key);
  return entry->second;
}

}  // namespace

absl::StatusOr<JsonShape> JsonShapeBuilder::Build(Formula schemas) {
  ASSIGN_OR_RETURN(const Formula formula, reader_.Expand(schemas));
  const auto of_type = [&](JsonType type) {
    return assertions_.ForType(formula, type);
  };
  JsonShape shape = {
      .has_null = of_type(JsonType::kNull) == FormulaPool::kTrue,
      .has_false = of_type(JsonType::kFalse) == FormulaPool::kTrue,
      .has_true = of_type(JsonType::kTrue) == FormulaPool::kTrue,
      .number = of_type(JsonType::kNumber),
      .string = of_type(JsonType::kString)};
  const Formula array = of_type(JsonType::kArray);
  const Formula object = of_type(JsonType::kObject);
  RETURN_IF_ERROR(assertions_.pool().status());
  if (array != FormulaPool::kFalse) {
    ASSIGN_OR_RETURN(shape.array, BuildArray(array));
  }
  if (object != FormulaPool::kFalse) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> keys,
                     OrderedKeys(schemas, object));
    ASSIGN_OR_RETURN(shape.object, BuildObject(object, keys));
  }
  RETURN_IF_ERROR(assertions_.pool().status());
  return shape;
}

Formula JsonShapeBuilder::AfterItem(Formula formula) {
  FormulaPool& pool = assertions_.pool();
  return pool.Substitute(formula, [&](int32_t variable) -> Formula {
    const JsonAssertion assertion = assertions_.Of(variable);
    JsonAssertion next = assertion;
    --next.index;
    switch (assertion.kind) {
      case AssertionKind::kItem:
        return assertion.index == 0 ? assertion.child : assertions_.Add(next);
      case AssertionKind::kItemsFrom:
        return assertion.index == 0
                   ? pool.And({assertion.child, pool.Variable(variable)})
                   : assertions_.Add(next);
      case AssertionKind::kContains:
        return pool.If(
            assertion.child,
            next.index == 0 ? FormulaPool::kTrue : assertions_.Add(next),
            pool.Variable(variable));
      case AssertionKind::kDistinct: {
        std::vector<Formula> ways;
        const auto& list = reader_.ListOf(assertion.index);
        for (size_t i = 0; i < list.size(); ++i) {
          const uint32_t bit = uint32_t{1} << i;
          if ((assertion.seen & bit) != 0) continue;
          next = assertion;
          next.seen |= bit;
          ways.push_back(
              pool.And({assertions_.Schema(list[i]), assertions_.Add(next)}));
        }
        return pool.Or(std::move(ways));
      }
      default:
        return FormulaPool::kFalse;  // not about arrays
    }
  });
}

absl::StatusOr<Formula> JsonShapeBuilder::AfterKey(Formula formula,
                                                   int64_t key) {
  FormulaPool& pool = assertions_.pool();
  std::set<int32_t> concerned;  // kMembers that have this key
  absl::Status status;
  pool.ForEachPolarity(formula, [&](int32_t variable, bool is_positive) {
    const JsonAssertion& assertion = assertions_.Of(variable);
    if (assertion.kind != AssertionKind::kMembers || !status.ok()) return;
    // kMembers holds of fewer objects the more keys it has. So a key that may
    // be one of them counts as one where kMembers is asserted, and not where it
    // is denied.
    const absl::StatusOr<bool> has = assertions_.HasString(
        is_positive ? Not(assertion.keys) : assertion.keys,
        assertions_.KeyOf(key));
    status = has.status();
    if (has.ok() && *has != is_positive) concerned.insert(variable);
  });
  RETURN_IF_ERROR(status);
  return pool.Substitute(formula, [&](int32_t variable) -> Formula {
    const JsonAssertion assertion = assertions_.Of(variable);
    JsonAssertion next = assertion;
    --next.index;
    if (assertion.kind == AssertionKind::kMinMembers) {
      return next.index == 0 ? FormulaPool::kTrue : assertions_.Add(next);
    }
    if (concerned.contains(variable)) {
      return pool.And({assertion.child, pool.Variable(variable)});
    }
    if (assertion.kind == AssertionKind::kHas && assertion.index == key) {
      return FormulaPool::kTrue;
    }
    if (assertion.kind == AssertionKind::kProperty && assertion.index == key) {
      return assertion.child;
    }
    return pool.Variable(variable);
  });
}

Formula JsonShapeBuilder::WithoutKey(Formula formula, int64_t key) {
  FormulaPool& pool = assertions_.pool();
  return pool.Substitute(formula, [&](int32_t variable) -> Formula {
    const JsonAssertion& assertion = assertions_.Of(variable);
    const bool is_about_key = (assertion.kind == AssertionKind::kHas ||
                               assertion.kind == AssertionKind::kProperty) &&
                              assertion.index == key;
    if (!is_about_key) return pool.Variable(variable);
    return assertion.kind == AssertionKind::kHas ? FormulaPool::kFalse
                                                 : FormulaPool::kTrue;
  });
}

bool JsonShapeBuilder::AcceptsEnd(Formula formula) {
  return assertions_.pool().Evaluate(formula, [&](int32_t variable) {
    const AssertionKind kind = assertions_.Of(variable).kind;
    return kind == AssertionKind::kContains || kind == AssertionKind::kHas ||
                   kind == AssertionKind::kMinMembers
               ? Truth::kFalse
               : Truth::kTrue;
  }) == Truth::kTrue;
}

bool JsonShapeBuilder::WantsMoreMembers(Formula formula) {
  FormulaPool& pool = assertions_.pool();
  // With `num_more` members, about which nothing else is known.
  const auto may_hold = [&](int64_t num_more) {
    return pool.Evaluate(formula, [&](int32_t variable) {
      const JsonAssertion& assertion = assertions_.Of(variable);
      if (assertion.kind == AssertionKind::kHas) return Truth::kFalse;
      if (assertion.kind != AssertionKind::kMinMembers) return Truth::kUnknown;
      return assertion.index <= num_more ? Truth::kTrue : Truth::kFalse;
    }) != Truth::kFalse;
  };
  for (const int32_t variable : pool.VariablesOf(formula)) {
    const JsonAssertion& assertion = assertions_.Of(variable);
    if (assertion.kind == AssertionKind::kMinMembers &&
        may_hold(assertion.index)) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<std::vector<JsonShapeBuilder::Branch>> JsonShapeBuilder::Split(
    Formula formula) {
  const auto known = splits_.find(formula);
  if (known != splits_.end()) return known->second;
  ASSIGN_OR_RETURN(std::vector<Branch> branches, SplitUnmemoized(formula));
  RETURN_IF_ERROR(assertions_.pool().status());
  splits_.emplace(formula, branches);
  return branches;
}

absl::StatusOr<std::vector<JsonShapeBuilder::Branch>>
JsonShapeBuilder::SplitUnmemoized(Formula formula) {
  FormulaPool& pool = assertions_.pool();
  if (formula == FormulaPool::kFalse) return std::vector<Branch>();
  std::vector<int32_t> schemas = pool.VariablesOf(formula);
  RETURN_IF_ERROR(
      assertions_.budget()->Take(8 + 4 * static_cast<int64_t>(schemas.size())));
  std::erase_if(schemas, [&](int32_t variable) {
    return assertions_.Of(variable).kind != AssertionKind::kSchema;
  });
  if (schemas.empty()) {
    return std::vector<Branch>{{formula, FormulaPool::kTrue}};
  }
  if (schemas.size() > kMaxSchemasOfValue) {
    return InvalidArgument("more than ", kMaxSchemasOfValue,
                           " subschemas apply to one value");
  }
  // The value satisfies the first subschema, or does not.
  const int32_t first = schemas.front();
  const auto schema_of = [&](int32_t variable) {
    return static_cast<JsonSchemaReader::Id>(assertions_.Of(variable).index);
  };
  std::map<Formula, Formula> values;  // by the state that they lead to
  for (const bool satisfies : {true, false}) {
    std::set<int32_t> excluded;
    for (const int32_t other : schemas) {
      if (!satisfies || other == first) continue;
      ASSIGN_OR_RETURN(const bool is_disjoint,
                       bounds_.AreDisjoint(schema_of(first), schema_of(other)));
      if (is_disjoint) excluded.insert(other);
    }
    const Formula rest =
        pool.Substitute(formula, [&](int32_t variable) -> Formula {
          if (variable == first) {
            return satisfies ? FormulaPool::kTrue : FormulaPool::kFalse;
          }
          return excluded.contains(variable) ? FormulaPool::kFalse
                                             : pool.Variable(variable);
        });
    ASSIGN_OR_RETURN(const std::vector<Branch> branches, Split(rest));
    const Formula literal = pool.Variable(first);
    for (const Branch& branch : branches) {
      const auto [entry, is_new] =
          values.try_emplace(branch.rest, FormulaPool::kFalse);
      if (!satisfies && entry->second == pool.And({literal, branch.value})) {
        entry->second = branch.value;  // on both sides
        continue;
      }
      entry->second = pool.Or(
          {entry->second,
           pool.And({satisfies ? literal : Not(literal), branch.value})});
    }
  }
  std::vector<Branch> result;
  for (const auto& [rest, value] : values) result.push_back({rest, value});
  return result;
}

absl::StatusOr<JsonMachine> JsonShapeBuilder::BuildArray(Formula formula) {
  JsonMachine machine;
  std::map<Formula, int> numbers;
  std::vector<Formula> queue;
  NumberOf(formula, &numbers, &queue);
  for (size_t i = 0; i < queue.size(); ++i) {
    const Formula rest = queue[i];
    RETURN_IF_ERROR(
        assertions_.budget()->CheckStates(static_cast<int64_t>(queue.size())));
    JsonMachine::State state = {.accepts = AcceptsEnd(rest)};
    ASSIGN_OR_RETURN(const std::vector<Branch> branches,
                     Split(AfterItem(rest)));
    for (const Branch& branch : branches) {
      state.edges.push_back({.value = branch.value,
                             .to = NumberOf(branch.rest, &numbers, &queue)});
    }
    machine.states.push_back(std::move(state));
  }
  return machine;
}

absl::StatusOr<std::vector<int64_t>> JsonShapeBuilder::OrderedKeys(
    Formula schemas, Formula formula) {
  std::set<int64_t> used;
  const FormulaPool& pool = assertions_.pool();
  for (const int32_t variable : pool.VariablesOf(formula)) {
    const JsonAssertion& assertion = assertions_.Of(variable);
    if (assertion.kind == AssertionKind::kHas ||
        assertion.kind == AssertionKind::kProperty) {
      used.insert(assertion.index);
    }
  }
  std::vector<int64_t> keys;
  for (const int32_t variable : pool.VariablesOf(schemas)) {
    ASSIGN_OR_RETURN(const std::vector<int64_t>* const ordered,
                     keys_.Of(static_cast<JsonSchemaReader::Id>(
                         assertions_.Of(variable).index)));
    for (const int64_t key : *ordered) {
      if (used.erase(key) > 0) keys.push_back(key);
    }
  }
  keys.insert(keys.end(), used.begin(), used.end());
  return keys;
}

bool JsonShapeBuilder::IsSensitiveToRepeatedKeys(Formula formula) const {
  bool is_sensitive = false;
  // The parser that reads the object takes one of the values of a key. An
  // assertion that all satisfy something holds for it, too; one that some do
  // may not, and keys may be fewer than members.
  assertions_.pool().ForEachPolarity(
      formula, [&](int32_t variable, bool is_positive) {
        const JsonAssertion& assertion = assertions_.Of(variable);
        is_sensitive =
            is_sensitive ||
            (assertion.kind == AssertionKind::kMembers && !is_positive) ||
            (assertion.kind == AssertionKind::kMinMembers && is_positive &&
             assertion.index > 1);
      });
  return is_sensitive;
}

absl::StatusOr<Formula> JsonShapeBuilder::GroupOfKeys(int group) {
  return assertions_.AddLanguage(
      AssertionKind::kString, Concat("key group ", group), [&] {
        return CompileRegex(kKeyGroups[group], RegexMatching::kSearch,
                            assertions_.budget());
      });
}

// `undecided` are sets of keys that assertions of `rest` are about.
absl::Status JsonShapeBuilder::AddKeyClasses(Formula keys, Formula rest,
                                             std::vector<Formula> undecided,
                                             std::vector<KeyClass>* classes) {
  FormulaPool& pool = assertions_.pool();
  if (keys == FormulaPool::kFalse || rest == FormulaPool::kFalse) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const bool has_keys, assertions_.HasStrings(keys));
  if (!has_keys) return absl::OkStatus();
  if (undecided.empty()) {
    classes->push_back({keys, rest});
    return absl::OkStatus();
  }
  const Formula set = undecided.back();
  undecided.pop_back();
  const Formula with = pool.Substitute(rest, [&](int32_t variable) -> Formula {
    const JsonAssertion& assertion = assertions_.Of(variable);
    const bool is_about =
        assertion.kind == AssertionKind::kMembers && assertion.keys == set;
    return is_about ? pool.And({assertion.child, pool.Variable(variable)})
                    : pool.Variable(variable);
  });
  RETURN_IF_ERROR(
      AddKeyClasses(pool.And({keys, set}), with, undecided, classes));
  return AddKeyClasses(pool.And({keys, Not(set)}), rest, std::move(undecided),
                       classes);
}

// Appends classes of the keys that may follow `place`, which is after the keys
// that the formula names, with their groups.
absl::Status JsonShapeBuilder::AddOtherKeys(
    const Place& place, Formula keys,
    std::vector<std::pair<KeyClass, int>>* classes) {
  FormulaPool& pool = assertions_.pool();
  std::set<Formula> sets;
  for (const int32_t variable : pool.VariablesOf(place.rest)) {
    const JsonAssertion& assertion = assertions_.Of(variable);
    if (assertion.kind == AssertionKind::kMembers) sets.insert(assertion.keys);
  }
  const Formula counted =
      pool.Substitute(place.rest, [&](int32_t variable) -> Formula {
        JsonAssertion next = assertions_.Of(variable);
        if (next.kind != AssertionKind::kMinMembers)
          return pool.Variable(variable);
        return --next.index == 0 ? FormulaPool::kTrue : assertions_.Add(next);
      });
  const int num_groups = static_cast<int>(kKeyGroups.size());
  const int first = place.group == kAnyGroup ? num_groups : place.group + 1;
  for (int group = first; group <= num_groups; ++group) {
    Formula of_group = keys;
    if (group < num_groups) {
      ASSIGN_OR_RETURN(const Formula in_group, GroupOfKeys(group));
      of_group = pool.And({keys, in_group});
    } else if (place.group != kAnyGroup) {
      break;
    }
    std::vector<KeyClass> found;
    RETURN_IF_ERROR(
        AddKeyClasses(of_group, counted,
                      std::vector<Formula>(sets.begin(), sets.end()), &found));
    for (const KeyClass& key_class : found) {
      classes->emplace_back(key_class, group < num_groups ? group : kAnyGroup);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<JsonMachine> JsonShapeBuilder::BuildObject(
    Formula formula, const std::vector<int64_t>& keys) {
  std::vector<std::string> names;
  for (const int64_t key : keys) names.push_back(assertions_.KeyOf(key));
  ASSIGN_OR_RETURN(
      const Formula named,
      assertions_.AddTexts(AssertionKind::kString, std::move(names)));
  JsonMachine machine;
  std::map<Place, int> numbers;
  std::vector<Place> queue;
  // Returns the number of a state; other keys begin after the last named one.
  const auto number_of = [&](size_t num_keys, Formula rest, int group) {
    if (num_keys < keys.size()) {
      group = kAnyGroup;
    } else if (group == kAnyGroup && IsSensitiveToRepeatedKeys(rest)) {
      group = kNoGroup;
    }
    return NumberOf(Place{num_keys, rest, group}, &numbers, &queue);
  };
  number_of(0, formula, kAnyGroup);
  for (size_t i = 0; i < queue.size(); ++i) {
    const Place place = queue[i];
    RETURN_IF_ERROR(
        assertions_.budget()->CheckStates(static_cast<int64_t>(queue.size())));
    RETURN_IF_ERROR(assertions_.pool().status());
    JsonMachine::State state;
    const auto add_edges = [&](JsonMachine::Edge edge, Formula after,
                               size_t num_keys, int group) -> absl::Status {
      ASSIGN_OR_RETURN(const std::vector<Branch> branches, Split(after));
      for (const Branch& branch : branches) {
        edge.value = branch.value;
        edge.to = number_of(num_keys, branch.rest, group);
        state.edges.push_back(edge);
      }
      return absl::OkStatus();
    };
    if (place.num_keys < keys.size()) {
      const int64_t key = keys[place.num_keys];
      ASSIGN_OR_RETURN(const Formula after, AfterKey(place.rest, key));
      RETURN_IF_ERROR(
          add_edges({.key = key}, after, place.num_keys + 1, kAnyGroup));
      const Formula without = WithoutKey(place.rest, key);
      if (without != FormulaPool::kFalse) {
        state.skip = number_of(place.num_keys + 1, without, kAnyGroup);
      }
    } else {
      state.accepts = AcceptsEnd(place.rest);
      if (place.group == kLastGroup && !state.accepts) {
        machine.may_lack_keys |= WantsMoreMembers(place.rest);
      }
      std::vector<std::pair<KeyClass, int>> classes;
      RETURN_IF_ERROR(AddOtherKeys(place, Not(named), &classes));
      for (const auto& [key_class, group] : classes) {
        RETURN_IF_ERROR(add_edges({.keys = key_class.keys}, key_class.rest,
                                  place.num_keys, group));
      }
    }
    machine.states.push_back(std::move(state));
  }
  return machine;
}

}  // namespace espalier
