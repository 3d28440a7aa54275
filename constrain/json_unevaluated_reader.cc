#include "constrain/json_unevaluated_reader.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "constrain/json_keywords.h"
#include "constrain/json_schema_reader.h"

namespace espalier {
namespace {

using AssertionKind = JsonAssertion::Kind;

// Patterns under a condition that "unevaluatedProperties" depends on: their
// combinations are as many as subsets.
constexpr size_t kMaxConditionalParts = 6;

}  // namespace

absl::Status JsonUnevaluatedReader::AddOwn(Id id, const json::object& schema,
                                           Formula condition, bool is_outer,
                                           std::vector<Coverage>* parts) {
  for (const auto& [key, value] : schema) {
    const std::string_view keyword = key;
    if (keyword == "properties" && value.is_object()) {
      for (const auto& [name, subschema] : value.get_object()) {
        parts->push_back(
            {.condition = condition, .key = assertions_.AddKey(name)});
      }
    } else if (keyword == "patternProperties" && value.is_object()) {
      for (const auto& [pattern, subschema] : value.get_object()) {
        ASSIGN_OR_RETURN(const Formula keys, scalars_.KeysLike(id, pattern));
        parts->push_back({.condition = condition, .keys = keys});
      }
    } else if (keyword == "additionalProperties") {
      ASSIGN_OR_RETURN(const Formula keys, scalars_.OtherKeys(id, schema));
      parts->push_back({.condition = condition, .keys = keys});
    } else if (keyword == "unevaluatedProperties" && !is_outer) {
      parts->push_back({.condition = condition, .keys = FormulaPool::kTrue});
    } else if (keyword == "prefixItems" && value.is_array()) {
      parts->push_back(
          {.condition = condition,
           .num_items = static_cast<int64_t>(value.get_array().size())});
    } else if (keyword == "items" ||
               (keyword == "unevaluatedItems" && !is_outer)) {
      parts->push_back({.condition = condition, .has_all_items = true});
    } else if (keyword == "contains") {
      ASSIGN_OR_RETURN(const Formula child, reader_.Child(id, keyword, value));
      parts->push_back({.condition = condition, .contained = child});
    }
  }
  return absl::OkStatus();
}

absl::Status JsonUnevaluatedReader::AddInner(Id id, const json::object& schema,
                                             Formula condition, int depth,
                                             Walk* walk) {
  FormulaPool& pool = assertions_.pool();
  // Adds a subschema that is applied to the same value if `applies`.
  const auto add = [&](std::string_view path, const json::value& value,
                       Formula applies) -> absl::Status {
    ASSIGN_OR_RETURN(const Id subschema, document_.Add(value, id, path));
    ASSIGN_OR_RETURN(const Formula formula, reader_.Read(subschema));
    return Add(subschema, pool.And({applies, formula}), depth + 1, walk);
  };
  for (const auto& [key, value] : schema) {
    const std::string_view keyword = key;
    if (IsAmong(keyword, {"allOf", "anyOf", "oneOf"}) && value.is_array()) {
      for (size_t i = 0; i < value.get_array().size(); ++i) {
        RETURN_IF_ERROR(
            add(PathOf(keyword, i), value.get_array()[i], condition));
      }
    } else if (keyword == "if") {
      RETURN_IF_ERROR(add(keyword, value, condition));
      ASSIGN_OR_RETURN(const Formula holds, reader_.ReadAt(id, keyword, value));
      const json::value* const then = schema.if_contains("then");
      const json::value* const otherwise = schema.if_contains("else");
      if (then != nullptr) {
        RETURN_IF_ERROR(add("then", *then, pool.And({condition, holds})));
      }
      if (otherwise != nullptr) {
        RETURN_IF_ERROR(
            add("else", *otherwise, pool.And({condition, Not(holds)})));
      }
    } else if (IsAmong(keyword, {"dependentSchemas", "dependencies"}) &&
               value.is_object()) {
      for (const auto& [name, subschema] : value.get_object()) {
        if (subschema.is_array()) continue;  // names that are required
        const Formula has = assertions_.Add(
            {.kind = AssertionKind::kHas, .index = assertions_.AddKey(name)});
        RETURN_IF_ERROR(
            add(PathOf(keyword, name), subschema, pool.And({condition, has})));
      }
    } else if (keyword == "$ref" || keyword == "$dynamicRef") {
      ASSIGN_OR_RETURN(const Id target, document_.Resolve(id, keyword, value));
      RETURN_IF_ERROR(Add(target, condition, depth + 1, walk));
    }
  }
  return absl::OkStatus();
}

absl::Status JsonUnevaluatedReader::Add(Id id, Formula condition, int depth,
                                        Walk* walk) {
  const json::object* const schema = document_.ValueOf(id).if_object();
  if (schema == nullptr || condition == FormulaPool::kFalse) {
    return absl::OkStatus();
  }
  if (depth > kMaxReferenceDepth) {
    return InvalidArgument("references nest too deep");
  }
  // A second visit, as by a repeated reference, would add the same parts.
  if (!walk->visited.emplace(id, condition).second) return absl::OkStatus();
  RETURN_IF_ERROR(assertions_.budget()->Take(16));
  RETURN_IF_ERROR(
      AddOwn(id, *schema, condition, /*is_outer=*/depth == 0, &walk->parts));
  return AddInner(id, *schema, condition, depth, walk);
}

absl::StatusOr<std::vector<JsonUnevaluatedReader::Coverage>>
JsonUnevaluatedReader::CoverageOf(Id id) {
  Walk walk;
  RETURN_IF_ERROR(Add(id, FormulaPool::kTrue, /*depth=*/0, &walk));
  return std::move(walk.parts);
}

absl::StatusOr<Formula> JsonUnevaluatedReader::Members(
    Id id, const json::value& value) {
  FormulaPool& pool = assertions_.pool();
  ASSIGN_OR_RETURN(const Formula child,
                   reader_.Child(id, "unevaluatedProperties", value));
  if (child == FormulaPool::kTrue) return FormulaPool::kTrue;
  ASSIGN_OR_RETURN(const std::vector<Coverage> coverage, CoverageOf(id));
  std::set<int64_t> named;
  // Keys that are always evaluated, and those that are under a condition.
  std::vector<Formula> others;
  std::map<Formula, Formula> conditional;
  for (const Coverage& part : coverage) {
    if (part.key) named.insert(*part.key);
    if (!part.keys) continue;
    if (part.condition == FormulaPool::kTrue) {
      others.push_back(Not(*part.keys));
      continue;
    }
    const auto [entry, is_new] =
        conditional.try_emplace(*part.keys, FormulaPool::kFalse);
    entry->second = pool.Or({entry->second, part.condition});
  }
  if (conditional.size() > kMaxConditionalParts) {
    return InvalidArgument("depends on more than ", kMaxConditionalParts,
                           " conditional patterns of keys");
  }
  std::vector<Formula> parts;
  std::vector<std::string> names;
  for (const int64_t key : named) {
    names.push_back(assertions_.KeyOf(key));
    std::vector<Formula> ways = {assertions_.Add(
        {.kind = AssertionKind::kProperty, .index = key, .child = child})};
    for (const Coverage& part : coverage) {
      bool covers = part.key == key;
      if (part.keys) {
        ASSIGN_OR_RETURN(covers,
                         assertions_.HasString(*part.keys, names.back()));
      }
      if (covers) ways.push_back(part.condition);
    }
    parts.push_back(pool.Or(std::move(ways)));
  }
  ASSIGN_OR_RETURN(
      const Formula is_named,
      assertions_.AddTexts(AssertionKind::kString, std::move(names)));
  others.push_back(Not(is_named));
  // Each set of conditional patterns has keys of its own.
  for (uint32_t set = 0; set < uint32_t{1} << conditional.size(); ++set) {
    std::vector<Formula> keys = others;
    std::vector<Formula> ways;
    int i = 0;
    for (const auto& [pattern, condition] : conditional) {
      const bool is_in = (set >> i++ & 1) != 0;
      keys.push_back(is_in ? pattern : Not(pattern));
      if (is_in) ways.push_back(condition);
    }
    ways.push_back(assertions_.Add({.kind = AssertionKind::kMembers,
                                    .child = child,
                                    .keys = pool.And(std::move(keys))}));
    parts.push_back(pool.Or(std::move(ways)));
  }
  return pool.And(std::move(parts));
}

absl::StatusOr<Formula> JsonUnevaluatedReader::Items(Id id,
                                                     const json::value& value) {
  FormulaPool& pool = assertions_.pool();
  ASSIGN_OR_RETURN(const Formula child,
                   reader_.Child(id, "unevaluatedItems", value));
  if (child == FormulaPool::kTrue) return FormulaPool::kTrue;
  ASSIGN_OR_RETURN(const std::vector<Coverage> coverage, CoverageOf(id));
  std::vector<Coverage> containing;
  int64_t num_prefix = 0;
  std::vector<Formula> whole;  // conditions under which all are evaluated
  for (const Coverage& part : coverage) {
    num_prefix = std::max(num_prefix, part.num_items);
    if (part.has_all_items) whole.push_back(part.condition);
    if (part.contained) containing.push_back(part);
  }
  if (containing.size() > kMaxConditionalParts) {
    return InvalidArgument("depends on more than ", kMaxConditionalParts,
                           " \"contains\"");
  }
  std::vector<Formula> parts;
  for (int64_t i = 0; i <= num_prefix; ++i) {
    const bool is_rest = i == num_prefix;
    std::vector<Formula> ways = whole;
    for (const Coverage& part : coverage) {
      if (part.num_items > i) ways.push_back(part.condition);
    }
    // Items that "contains" finds are evaluated, too.
    for (uint32_t set = 0; set < uint32_t{1} << containing.size(); ++set) {
      std::vector<Formula> conditions;
      std::vector<Formula> values = {child};
      for (size_t c = 0; c < containing.size(); ++c) {
        if ((set >> c & 1) == 0) continue;
        conditions.push_back(containing[c].condition);
        values.push_back(*containing[c].contained);
      }
      conditions.push_back(assertions_.Add(
          {.kind = is_rest ? AssertionKind::kItemsFrom : AssertionKind::kItem,
           .index = i,
           .child = pool.Or(std::move(values))}));
      ways.push_back(pool.And(std::move(conditions)));
    }
    parts.push_back(pool.Or(std::move(ways)));
  }
  return pool.And(std::move(parts));
}

}  // namespace espalier
