#include "constrain/json_schema_reader.h"

#include <array>
#include <cstddef>
#include <utility>

#include "base/status.h"
#include "constrain/json_keywords.h"

namespace espalier {
namespace {

using AssertionKind = JsonAssertion::Kind;

// Values of a list whose items are distinct: a state has a bit for each.
constexpr size_t kMaxDistinctValues = 10;
constexpr size_t kMaxContradictions = 8;

}  // namespace

absl::Status JsonSchemaReader::Error(Id id, std::string_view keyword,
                                     std::string_view message) const {
  return InvalidArgument(document_.PointerOf(id), keyword.empty() ? "" : "/",
                         keyword, ": ", message);
}

absl::StatusOr<Formula> JsonSchemaReader::Read(Id id) {
  const auto known = formulas_.find(id);
  if (known != formulas_.end()) return known->second;
  if (reading_.empty()) value_ = id;
  if (!reading_.insert(id).second) {
    return Error(id, "",
                 "references lead back here for one and the same value");
  }
  if (reading_.size() > kMaxReferenceDepth) {
    return Error(id, "",
                 Concat("more than ", kMaxReferenceDepth,
                        " references and subschemas apply to one value"));
  }
  const json::value& value = document_.ValueOf(id);
  Formula formula = FormulaPool::kTrue;
  if (const json::object* const schema = value.if_object()) {
    ASSIGN_OR_RETURN(formula, ReadObject(id, *schema));
  } else if (value.is_bool()) {
    formula = value.get_bool() ? FormulaPool::kTrue : FormulaPool::kFalse;
  } else {
    return Error(
        id, "",
        Concat("a schema must be an object or a boolean, got ", Shown(&value)));
  }
  if (!assertions_.pool().status().ok()) {
    return Error(id, "", Message(assertions_.pool().status()));
  }
  reading_.erase(id);
  formulas_.emplace(id, formula);
  return formula;
}

absl::StatusOr<Formula> JsonSchemaReader::Expand(Formula formula) {
  absl::Status status;
  const Formula result =
      assertions_.pool().Substitute(formula, [&](int32_t variable) {
        if (!status.ok()) return FormulaPool::kFalse;
        const absl::StatusOr<Formula> read =
            Read(static_cast<Id>(assertions_.Of(variable).index));
        if (!read.ok()) status = read.status();
        return read.ok() ? *read : FormulaPool::kFalse;
      });
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(assertions_.pool().status());
  return result;
}

void JsonSchemaReader::NoteContradiction(Id id, const json::object& schema) {
  const json::value* const type = schema.if_contains("type");
  const bool is_known = contradictions_.size() < kMaxContradictions &&
                        num_conditions_ == 0 && type != nullptr &&
                        type->is_string() &&
                        !(document_.IsOldDraft() && schema.contains("$ref"));
  if (!is_known) return;
  constexpr std::array<std::string_view, 3> kBounds[] = {
      {"string", "minLength", "maxLength"},
      {"array", "minItems", "maxItems"},
      {"object", "minProperties", "maxProperties"},
      {"number", "minimum", "maximum"},
      {"integer", "minimum", "maximum"}};
  for (const auto& [of_type, least, most] : kBounds) {
    const json::value* const min = schema.if_contains(least);
    const json::value* const max = schema.if_contains(most);
    if (type->get_string() != of_type || min == nullptr || max == nullptr ||
        !min->is_number() || !max->is_number() ||
        min->to_number<double>() <= max->to_number<double>()) {
      continue;
    }
    contradictions_.push_back(
        {.value = value_,
         .text = Concat(least, " ", Shown(min), " at ", document_.PointerOf(id),
                        " is above ", most, " ", Shown(max))});
  }
}

absl::StatusOr<Formula> JsonSchemaReader::ReadObject(
    Id id, const json::object& schema) {
  NoteContradiction(id, schema);
  std::vector<Formula> parts;
  for (const auto& [key, value] : schema) {
    const std::string_view keyword = key;
    if (document_.IsOldDraft() && keyword != "$ref" && schema.contains("$ref"))
      continue;
    absl::StatusOr<Formula> part = ReadKeyword(id, schema, keyword, value);
    if (!part.ok()) {
      // An error of a subschema has its own pointer.
      if (Message(part.status()).starts_with("#")) return part.status();
      return Error(id, EscapePointer(keyword), Message(part.status()));
    }
    parts.push_back(*part);
  }
  return assertions_.pool().And(std::move(parts));
}

absl::StatusOr<Formula> JsonSchemaReader::ReadKeyword(
    Id id, const json::object& schema, std::string_view keyword,
    const json::value& value) {
  const bool is_later =
      (document_.draft() < JsonSchemaDraft::k7 && keyword == "if") ||
      (document_.draft() < JsonSchemaDraft::k6 &&
       IsAmong(keyword, {"const", "contains", "propertyNames"}));
  if (is_later) {
    return InvalidArgument("is of a later draft than \"$schema\" names");
  }
  ASSIGN_OR_RETURN(std::optional<Formula> formula,
                   ReadApplicator(id, schema, keyword, value));
  if (formula) return *formula;
  ASSIGN_OR_RETURN(formula, scalars_.Read(id, schema, keyword, value));
  if (formula) return *formula;
  ASSIGN_OR_RETURN(formula, ReadArrayKeyword(id, schema, keyword, value));
  if (formula) return assertions_.IfType(JsonType::kArray, *formula);
  ASSIGN_OR_RETURN(formula, ReadObjectKeyword(id, schema, keyword, value));
  if (formula) return assertions_.IfType(JsonType::kObject, *formula);
  return FormulaPool::kTrue;  // an annotation, or an unknown keyword
}

absl::StatusOr<Formula> JsonSchemaReader::ReadAt(Id id, std::string_view path,
                                                 const json::value& value) {
  ASSIGN_OR_RETURN(const Id subschema, document_.Add(value, id, path));
  return Read(subschema);
}

absl::StatusOr<Formula> JsonSchemaReader::ReadCondition(
    Id id, std::string_view path, const json::value& value) {
  ++num_conditions_;
  absl::StatusOr<Formula> formula = ReadAt(id, path, value);
  --num_conditions_;
  return formula;
}

absl::StatusOr<std::vector<Formula>> JsonSchemaReader::ReadAll(
    Id id, std::string_view keyword, const json::value& value) {
  ASSIGN_OR_RETURN(const json::array* const schemas, ArrayOf(value));
  if (schemas->empty()) return InvalidArgument("must not be empty");
  std::vector<Formula> formulas;
  for (size_t i = 0; i < schemas->size(); ++i) {
    ASSIGN_OR_RETURN(const Formula formula,
                     ReadAt(id, PathOf(keyword, i), (*schemas)[i]));
    formulas.push_back(formula);
  }
  return formulas;
}

absl::StatusOr<Formula> JsonSchemaReader::Child(Id id, std::string_view path,
                                                const json::value& value) {
  if (value.is_bool()) {
    return value.get_bool() ? FormulaPool::kTrue : FormulaPool::kFalse;
  }
  ASSIGN_OR_RETURN(Id subschema, document_.Add(value, id, path));
  // A reference alone is what it refers to.
  for (int i = 0; i < kMaxReferenceDepth; ++i) {
    const json::object* const schema = document_.ValueOf(subschema).if_object();
    if (schema == nullptr || schema->size() != 1 || !schema->contains("$ref")) {
      break;
    }
    const absl::StatusOr<Id> target =
        document_.Resolve(subschema, "$ref", schema->at("$ref"));
    if (!target.ok()) break;  // reading it is an error
    subschema = *target;
  }
  return assertions_.Schema(subschema);
}

// Keywords that apply subschemas to the same value.
absl::StatusOr<std::optional<Formula>> JsonSchemaReader::ReadApplicator(
    Id id, const json::object& schema, std::string_view keyword,
    const json::value& value) {
  FormulaPool& pool = assertions_.pool();
  if (keyword == "$ref" ||
      (keyword == "$dynamicRef" && !document_.IsOldDraft())) {
    ASSIGN_OR_RETURN(const Id target, document_.Resolve(id, keyword, value));
    return Read(target);
  }
  if (keyword == "$recursiveRef" && !document_.IsOldDraft()) {
    return InvalidArgument("is draft 2019-09's, which is not supported");
  }
  if (keyword == "not") {
    ASSIGN_OR_RETURN(const Formula formula, ReadCondition(id, keyword, value));
    return Not(formula);
  }
  if (IsAmong(keyword, {"allOf", "anyOf", "oneOf"})) {
    ASSIGN_OR_RETURN(std::vector<Formula> parts, ReadAll(id, keyword, value));
    if (keyword == "oneOf") return pool.ExactlyOne(parts);
    return keyword == "allOf" ? pool.And(std::move(parts))
                              : pool.Or(std::move(parts));
  }
  if (keyword == "if") {
    Formula yes = FormulaPool::kTrue;
    Formula no = FormulaPool::kTrue;
    const json::value* const then = schema.if_contains("then");
    const json::value* const otherwise = schema.if_contains("else");
    if (then == nullptr && otherwise == nullptr) return FormulaPool::kTrue;
    ASSIGN_OR_RETURN(const Formula condition,
                     ReadCondition(id, keyword, value));
    if (then != nullptr) {
      ASSIGN_OR_RETURN(yes, ReadAt(id, "then", *then));
    }
    if (otherwise != nullptr) {
      ASSIGN_OR_RETURN(no, ReadAt(id, "else", *otherwise));
    }
    return pool.If(condition, yes, no);
  }
  return std::nullopt;
}

absl::StatusOr<Formula> JsonSchemaReader::ReadUnique(
    Id id, const json::object& schema) {
  const json::value* const max_items = schema.if_contains("maxItems");
  int64_t max_size = 0;
  if (max_items != nullptr) {
    ASSIGN_OR_RETURN(max_size, CountOf(*max_items));
    if (max_size <= 1) return FormulaPool::kTrue;
  }
  // All items must be of a short list.
  const bool is_tuple = schema.if_contains("items") != nullptr &&
                        schema.if_contains("items")->is_array();
  const std::string_view prefix_name = is_tuple ? "items" : "prefixItems";
  const std::string_view rest_name = is_tuple ? "additionalItems" : "items";
  std::map<std::string, Id> values;
  const absl::Status error = InvalidArgument(
      "is supported where each item is one of at most ", kMaxDistinctValues,
      " constants, or where maxItems is at most 1");
  const auto add = [&](std::string_view path,
                       const json::value& item) -> absl::Status {
    ASSIGN_OR_RETURN(const Id subschema, document_.Add(item, id, path));
    ASSIGN_OR_RETURN(const JsonSchemaBounds::Bounds* const known,
                     bounds_.Of(subschema));
    if (known->values && known->values->size() > kMaxDistinctValues) {
      return error;
    }
    JsonSchemaBounds::Bounds bounds = *known;
    const std::array<std::pair<JsonType, json::value>, 3> few = {
        {{JsonType::kNull, nullptr},
         {JsonType::kFalse, false},
         {JsonType::kTrue, true}}};
    uint8_t finite = 0;
    for (const auto& [type, constant] : few) finite |= BitOf(type);
    if (!bounds.values && (bounds.types & ~finite) != 0) return error;
    if (!bounds.values) bounds.values.emplace();
    for (const auto& [type, constant] : few) {
      if ((bounds.types & BitOf(type)) == 0) continue;
      bounds.values->insert(CanonicalJson(constant));
    }
    for (const std::string& text : *bounds.values) {
      if (values.contains(text)) continue;
      if (values.size() == kMaxDistinctValues) return error;
      const absl::StatusOr<json::value> constant = ParseJson(text);
      if (!constant.ok()) return error;  // an array or an object
      ASSIGN_OR_RETURN(values[text], document_.AddConst(*constant, id));
    }
    return absl::OkStatus();
  };
  size_t num_prefix = 0;
  const json::value* const prefix = schema.if_contains(prefix_name);
  if (prefix != nullptr && prefix->is_array()) {
    for (; num_prefix < prefix->get_array().size(); ++num_prefix) {
      RETURN_IF_ERROR(add(PathOf(prefix_name, num_prefix),
                          prefix->get_array()[num_prefix]));
    }
  }
  const json::value* const rest = schema.if_contains(rest_name);
  if (rest != nullptr) {
    RETURN_IF_ERROR(add(rest_name, *rest));
  } else if (max_items == nullptr ||
             max_size > static_cast<int64_t>(num_prefix)) {
    return error;
  }
  std::vector<Id> list;
  for (const auto& [text, value] : values) list.push_back(value);
  lists_.push_back(std::move(list));
  return assertions_.Add({.kind = AssertionKind::kDistinct,
                          .index = static_cast<int64_t>(lists_.size()) - 1});
}

absl::StatusOr<Formula> JsonSchemaReader::ReadContains(
    Id id, const json::object& schema, const json::value& value) {
  int64_t min_count = 1;
  std::optional<int64_t> max_count;
  const json::value* const min_value = schema.if_contains("minContains");
  const json::value* const max_value = schema.if_contains("maxContains");
  if (!document_.IsOldDraft() && min_value != nullptr) {
    ASSIGN_OR_RETURN(min_count, CountOf(*min_value));
  }
  if (!document_.IsOldDraft() && max_value != nullptr) {
    ASSIGN_OR_RETURN(max_count, CountOf(*max_value));
  }
  ASSIGN_OR_RETURN(const Formula child, Child(id, "contains", value));
  std::vector<Formula> parts;
  if (min_count > 0) {
    parts.push_back(assertions_.Add({.kind = AssertionKind::kContains,
                                     .index = min_count,
                                     .child = child}));
  }
  if (max_count) {
    parts.push_back(Not(assertions_.Add({.kind = AssertionKind::kContains,
                                         .index = *max_count + 1,
                                         .child = child})));
  }
  return assertions_.pool().And(std::move(parts));
}

absl::StatusOr<std::optional<Formula>> JsonSchemaReader::ReadArrayKeyword(
    Id id, const json::object& schema, std::string_view keyword,
    const json::value& value) {
  FormulaPool& pool = assertions_.pool();
  if (keyword == "minItems" || keyword == "maxItems") {
    ASSIGN_OR_RETURN(const int64_t count, CountOf(value));
    if (keyword == "maxItems") {
      return Not(assertions_.Add(
          {.kind = AssertionKind::kContains, .index = count + 1}));
    }
    if (count == 0) return FormulaPool::kTrue;
    return assertions_.Add({.kind = AssertionKind::kContains, .index = count});
  }
  if (keyword == "uniqueItems") {
    if (!value.is_bool()) {
      return InvalidArgument("must be a boolean, got ", Shown(&value));
    }
    if (!value.get_bool()) return FormulaPool::kTrue;
    return ReadUnique(id, schema);
  }
  if (keyword == "contains") return ReadContains(id, schema, value);
  if (keyword == "unevaluatedItems" && !document_.IsOldDraft()) {
    return unevaluated_.Items(id, value);
  }
  const bool is_tuple =
      keyword == (document_.IsOldDraft() ? "items" : "prefixItems") &&
      (value.is_array() || !document_.IsOldDraft());
  if (is_tuple) {
    ASSIGN_OR_RETURN(const json::array* const items, ArrayOf(value));
    std::vector<Formula> parts;
    for (size_t i = 0; i < items->size(); ++i) {
      ASSIGN_OR_RETURN(const Formula child,
                       Child(id, PathOf(keyword, i), (*items)[i]));
      if (child == FormulaPool::kTrue) continue;
      parts.push_back(assertions_.Add({.kind = AssertionKind::kItem,
                                       .index = static_cast<int64_t>(i),
                                       .child = child}));
    }
    return pool.And(std::move(parts));
  }
  size_t first = 0;
  if (keyword == "additionalItems") {
    // In draft 2020-12, too, where an array as "items" is an error.
    const json::value* const items = schema.if_contains("items");
    if (items == nullptr || !items->is_array()) return FormulaPool::kTrue;
    first = items->get_array().size();
  } else if (keyword == "items") {
    if (value.is_array()) {
      return InvalidArgument("an array is draft 7's: \"prefixItems\"");
    }
    const json::value* const prefix = schema.if_contains("prefixItems");
    if (!document_.IsOldDraft() && prefix != nullptr && prefix->is_array()) {
      first = prefix->get_array().size();
    }
  } else {
    return std::nullopt;
  }
  ASSIGN_OR_RETURN(const Formula child, Child(id, keyword, value));
  if (child == FormulaPool::kTrue) return FormulaPool::kTrue;
  return assertions_.Add({.kind = AssertionKind::kItemsFrom,
                          .index = static_cast<int64_t>(first),
                          .child = child});
}

absl::StatusOr<Formula> JsonSchemaReader::ReadDependencies(
    Id id, std::string_view keyword, const json::value& value) {
  FormulaPool& pool = assertions_.pool();
  ASSIGN_OR_RETURN(const json::object* const dependencies, ObjectOf(value));
  std::vector<Formula> parts;
  for (const auto& [key, needed] : *dependencies) {
    const Formula has = assertions_.Add(
        {.kind = AssertionKind::kHas, .index = assertions_.AddKey(key)});
    Formula formula = FormulaPool::kTrue;
    const bool has_names = keyword == "dependentRequired" ||
                           (keyword == "dependencies" && needed.is_array());
    if (has_names) {
      ASSIGN_OR_RETURN(const json::array* const names, ArrayOf(needed));
      std::vector<Formula> all;
      for (const json::value& name : *names) {
        ASSIGN_OR_RETURN(const std::string text, StringOf(name));
        all.push_back(assertions_.Add(
            {.kind = AssertionKind::kHas, .index = assertions_.AddKey(text)}));
      }
      formula = pool.And(std::move(all));
    } else {
      ASSIGN_OR_RETURN(formula, ReadAt(id, PathOf(keyword, key), needed));
    }
    parts.push_back(pool.Or({Not(has), formula}));
  }
  return pool.And(std::move(parts));
}

absl::StatusOr<std::optional<Formula>> JsonSchemaReader::ReadObjectKeyword(
    Id id, const json::object& schema, std::string_view keyword,
    const json::value& value) {
  FormulaPool& pool = assertions_.pool();
  std::vector<Formula> parts;
  if (keyword == "properties") {
    ASSIGN_OR_RETURN(const json::object* const properties, ObjectOf(value));
    for (const auto& [key, subschema] : *properties) {
      ASSIGN_OR_RETURN(const Formula child,
                       Child(id, PathOf(keyword, key), subschema));
      // One without a condition still has its place in the order of keys.
      parts.push_back(assertions_.Add({.kind = AssertionKind::kProperty,
                                       .index = assertions_.AddKey(key),
                                       .child = child}));
    }
  } else if (keyword == "patternProperties") {
    ASSIGN_OR_RETURN(const json::object* const patterns, ObjectOf(value));
    for (const auto& [pattern, subschema] : *patterns) {
      ASSIGN_OR_RETURN(const Formula keys, scalars_.KeysLike(id, pattern));
      ASSIGN_OR_RETURN(const Formula child,
                       Child(id, PathOf(keyword, pattern), subschema));
      if (child == FormulaPool::kTrue) continue;
      parts.push_back(assertions_.Add(
          {.kind = AssertionKind::kMembers, .child = child, .keys = keys}));
    }
  } else if (keyword == "additionalProperties") {
    ASSIGN_OR_RETURN(const Formula child, Child(id, keyword, value));
    if (child == FormulaPool::kTrue) return FormulaPool::kTrue;
    ASSIGN_OR_RETURN(const Formula keys, scalars_.OtherKeys(id, schema));
    return assertions_.Add(
        {.kind = AssertionKind::kMembers, .child = child, .keys = keys});
  } else if (keyword == "propertyNames") {
    ASSIGN_OR_RETURN(const Formula names, ReadAt(id, keyword, value));
    const Formula strings = assertions_.ForType(names, JsonType::kString);
    if (strings == FormulaPool::kTrue) return FormulaPool::kTrue;
    return assertions_.Add({.kind = AssertionKind::kMembers,
                            .child = FormulaPool::kFalse,
                            .keys = Not(strings)});
  } else if (keyword == "required") {
    ASSIGN_OR_RETURN(const json::array* const names, ArrayOf(value));
    for (const json::value& name : *names) {
      ASSIGN_OR_RETURN(const std::string text, StringOf(name));
      parts.push_back(assertions_.Add(
          {.kind = AssertionKind::kHas, .index = assertions_.AddKey(text)}));
    }
  } else if (keyword == "minProperties" || keyword == "maxProperties") {
    const bool is_min = keyword == "minProperties";
    ASSIGN_OR_RETURN(const int64_t count, CountOf(value));
    if (is_min && count == 0) return FormulaPool::kTrue;
    const Formula at_least =
        assertions_.Add({.kind = AssertionKind::kMinMembers,
                         .index = is_min ? count : count + 1});
    return is_min ? at_least : Not(at_least);
  } else if (keyword == "dependencies" ||
             (!document_.IsOldDraft() &&
              IsAmong(keyword, {"dependentRequired", "dependentSchemas"}))) {
    // Draft 2020-12 has "dependencies" for compatibility.
    return ReadDependencies(id, keyword, value);
  } else if (!document_.IsOldDraft() && keyword == "unevaluatedProperties") {
    return unevaluated_.Members(id, value);
  } else {
    return std::nullopt;
  }
  return pool.And(std::move(parts));
}

}  // namespace espalier
