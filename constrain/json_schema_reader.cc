#include "constrain/json_schema_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/status.h"
#include "constrain/compile_budget.h"
#include "constrain/json_format.h"
#include "constrain/json_number_language.h"
#include "constrain/json_string_language.h"
#include "constrain/regex_language.h"

namespace espalier {
namespace {

using AssertionKind = JsonAssertion::Kind;

// Subschemas that apply to one value may nest so deep through "$ref".
constexpr int kMaxReferenceDepth = 200;
// Values of a list whose items are distinct: a state has a bit for each.
constexpr size_t kMaxDistinctValues = 10;
// Patterns under a condition that "unevaluatedProperties" depends on: their
// combinations are as many as subsets.
constexpr size_t kMaxConditionalParts = 6;

// Returns the non-negative integer of a keyword, which may be written 2.0.
absl::StatusOr<int64_t> CountOf(const json::value& value) {
  // Greater counts are beyond all limits of states.
  constexpr double kMaxCount = 1e9;
  double count = -1;
  if (value.is_number()) count = value.to_number<double>();
  if (count < 0 || count != std::floor(count)) {
    return InvalidArgument("must be a non-negative integer, got ",
                           Shown(&value));
  }
  return static_cast<int64_t>(std::min(count, kMaxCount));
}

absl::StatusOr<std::string> StringOf(const json::value& value) {
  if (value.is_string()) return std::string(value.get_string());
  return InvalidArgument("must be a string, got ", Shown(&value));
}

absl::StatusOr<const json::object*> ObjectOf(const json::value& value) {
  if (value.is_object()) return &value.get_object();
  return InvalidArgument("must be an object, got ", Shown(&value));
}

absl::StatusOr<const json::array*> ArrayOf(const json::value& value) {
  if (value.is_array()) return &value.get_array();
  return InvalidArgument("must be an array, got ", Shown(&value));
}

std::string PathOf(std::string_view keyword, std::string_view key) {
  return Concat(keyword, "/", EscapePointer(key));
}
std::string PathOf(std::string_view keyword, size_t index) {
  return Concat(keyword, "/", index);
}

JsonType TypeOf(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return JsonType::kNull;
    case json::kind::bool_:
      return value.get_bool() ? JsonType::kTrue : JsonType::kFalse;
    case json::kind::string:
      return JsonType::kString;
    case json::kind::array:
      return JsonType::kArray;
    case json::kind::object:
      return JsonType::kObject;
    default:
      return JsonType::kNumber;
  }
}

uint8_t BitOf(JsonType type) {
  return static_cast<uint8_t>(1U << static_cast<int>(type));
}

// Returns the types of a name in "type"; 0 for an unknown one.
uint8_t TypesOfName(std::string_view name) {
  if (name == "null") return BitOf(JsonType::kNull);
  if (name == "boolean") {
    return BitOf(JsonType::kFalse) | BitOf(JsonType::kTrue);
  }
  if (name == "number" || name == "integer") return BitOf(JsonType::kNumber);
  if (name == "string") return BitOf(JsonType::kString);
  if (name == "array") return BitOf(JsonType::kArray);
  if (name == "object") return BitOf(JsonType::kObject);
  return 0;
}

// Returns the steps of looking each of `texts` up in a set: its comparisons.
int64_t StepsOfLookups(const std::set<std::string>& texts,
                       const std::set<std::string>& set) {
  return static_cast<int64_t>(texts.size() * std::bit_width(set.size()));
}

// Returns the steps of a copy, in proportion to its memory.
int64_t StepsOfCopy(const std::set<std::string>& texts) {
  constexpr size_t kStepsOfText = 16;
  constexpr size_t kBytesOfStep = 4;
  size_t steps = 0;
  for (const std::string& text : texts) {
    steps += kStepsOfText + text.size() / kBytesOfStep;
  }
  return static_cast<int64_t>(steps);
}

// Returns the value of a keyword; null if `schema` lacks it.
const json::value* MemberOf(const json::object& schema, std::string_view name) {
  return schema.if_contains(name);
}

bool IsAmong(std::string_view name,
             std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

absl::Status JsonSchemaReader::Error(Id id, std::string_view keyword,
                                     std::string_view message) const {
  return InvalidArgument(document_.PointerOf(id), keyword.empty() ? "" : "/",
                         keyword, ": ", message);
}

absl::StatusOr<Formula> JsonSchemaReader::Read(Id id) {
  const auto known = formulas_.find(id);
  if (known != formulas_.end()) return known->second;
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

absl::StatusOr<Formula> JsonSchemaReader::ReadObject(
    Id id, const json::object& schema) {
  std::vector<Formula> parts;
  for (const auto& [key, value] : schema) {
    const std::string_view keyword = key;
    if (IsOldDraft() && keyword != "$ref" && schema.contains("$ref")) continue;
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
  ASSIGN_OR_RETURN(formula, ReadScalar(id, schema, keyword, value));
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
        Target(subschema, "$ref", schema->at("$ref"));
    if (!target.ok()) break;  // reading it is an error
    subschema = *target;
  }
  return assertions_.Schema(subschema);
}

absl::StatusOr<JsonSchemaReader::Id> JsonSchemaReader::Target(
    Id id, std::string_view keyword, const json::value& value) {
  ASSIGN_OR_RETURN(const std::string reference, StringOf(value));
  return document_.Resolve(id, reference, keyword == "$dynamicRef");
}

absl::StatusOr<Formula> JsonSchemaReader::Reference(Id id,
                                                    std::string_view keyword,
                                                    const json::value& value) {
  ASSIGN_OR_RETURN(const Id target, Target(id, keyword, value));
  return Read(target);
}

// Keywords that apply subschemas to the same value.
absl::StatusOr<std::optional<Formula>> JsonSchemaReader::ReadApplicator(
    Id id, const json::object& schema, std::string_view keyword,
    const json::value& value) {
  FormulaPool& pool = assertions_.pool();
  if (keyword == "$ref" || (keyword == "$dynamicRef" && !IsOldDraft())) {
    return Reference(id, keyword, value);
  }
  if (keyword == "$recursiveRef" && !IsOldDraft()) {
    return InvalidArgument("is draft 2019-09's, which is not supported");
  }
  if (keyword == "not") {
    ASSIGN_OR_RETURN(const Formula formula, ReadAt(id, keyword, value));
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
    const json::value* const then = MemberOf(schema, "then");
    const json::value* const otherwise = MemberOf(schema, "else");
    if (then == nullptr && otherwise == nullptr) return FormulaPool::kTrue;
    ASSIGN_OR_RETURN(const Formula condition, ReadAt(id, keyword, value));
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

absl::StatusOr<Formula> JsonSchemaReader::ReadType(const json::value& value) {
  std::vector<Formula> parts;
  const auto add = [&](const json::value& name) -> absl::Status {
    ASSIGN_OR_RETURN(const std::string text, StringOf(name));
    const uint8_t types = TypesOfName(text);
    if (types == 0) return InvalidArgument("unknown type ", Shown(&name));
    Formula formula = FormulaPool::kTrue;
    if (text == "integer") {
      ASSIGN_OR_RETURN(formula, assertions_.AddLanguage(
                                    AssertionKind::kNumber, "integer", [&] {
                                      return Integers(assertions_.budget());
                                    }));
    }
    for (int t = 0; t < kNumJsonTypes; ++t) {
      if ((types >> t & 1) == 0) continue;
      parts.push_back(assertions_.pool().And(
          {assertions_.IsType(static_cast<JsonType>(t)), formula}));
    }
    return absl::OkStatus();
  };
  if (!value.is_array()) {
    RETURN_IF_ERROR(add(value));
  } else {
    for (const json::value& name : value.get_array()) {
      RETURN_IF_ERROR(add(name));
    }
  }
  return assertions_.pool().Or(std::move(parts));
}

absl::StatusOr<Formula> JsonSchemaReader::ReadConst(Id id,
                                                    const json::value& value) {
  FormulaPool& pool = assertions_.pool();
  const JsonType type = TypeOf(value);
  std::vector<Formula> parts = {assertions_.IsType(type)};
  const auto child = [&](const json::value& inner) -> absl::StatusOr<Formula> {
    ASSIGN_OR_RETURN(const Id schema, document_.AddConst(inner, id));
    return assertions_.Schema(schema);
  };
  if (type == JsonType::kNumber) {
    ASSIGN_OR_RETURN(const Decimal decimal, DecimalOf(value));
    ASSIGN_OR_RETURN(
        const Formula formula,
        assertions_.AddTexts(AssertionKind::kNumber, {decimal.Text()}));
    parts.push_back(formula);
  } else if (type == JsonType::kString) {
    ASSIGN_OR_RETURN(const Formula formula,
                     assertions_.AddTexts(AssertionKind::kString,
                                          {std::string(value.get_string())}));
    parts.push_back(formula);
  } else if (type == JsonType::kArray) {
    const json::array& items = value.get_array();
    const auto size = static_cast<int64_t>(items.size());
    if (size > 0) {
      parts.push_back(
          assertions_.Add({.kind = AssertionKind::kContains, .index = size}));
    }
    parts.push_back(Not(assertions_.Add(
        {.kind = AssertionKind::kContains, .index = size + 1})));
    for (int64_t i = 0; i < size; ++i) {
      ASSIGN_OR_RETURN(const Formula item, child(items[i]));
      parts.push_back(assertions_.Add(
          {.kind = AssertionKind::kItem, .index = i, .child = item}));
    }
  } else if (type == JsonType::kObject) {
    std::vector<std::string> names;
    for (const auto& [key, member] : value.get_object()) {
      names.emplace_back(key);
      const int64_t index = assertions_.AddKey(key);
      ASSIGN_OR_RETURN(const Formula inner, child(member));
      parts.push_back(
          assertions_.Add({.kind = AssertionKind::kHas, .index = index}));
      parts.push_back(assertions_.Add(
          {.kind = AssertionKind::kProperty, .index = index, .child = inner}));
    }
    ASSIGN_OR_RETURN(
        const Formula keys,
        assertions_.AddTexts(AssertionKind::kString, std::move(names)));
    parts.push_back(assertions_.Add({.kind = AssertionKind::kMembers,
                                     .child = FormulaPool::kFalse,
                                     .keys = Not(keys)}));
  }
  return pool.And(std::move(parts));
}

absl::StatusOr<Formula> JsonSchemaReader::ReadEnum(Id id,
                                                   const json::value& value) {
  ASSIGN_OR_RETURN(const json::array* const values, ArrayOf(value));
  std::vector<std::string> strings;
  std::vector<std::string> numbers;
  std::vector<Formula> parts;
  for (const json::value& one : *values) {
    RETURN_IF_ERROR(assertions_.budget()->Take(4));
    if (one.is_string()) {
      strings.emplace_back(one.get_string());
    } else if (one.is_number()) {
      ASSIGN_OR_RETURN(const Decimal decimal, DecimalOf(one));
      numbers.push_back(decimal.Text());
    } else {
      ASSIGN_OR_RETURN(const Formula part, ReadConst(id, one));
      parts.push_back(part);
    }
  }
  ASSIGN_OR_RETURN(
      const Formula string,
      assertions_.AddTexts(AssertionKind::kString, std::move(strings)));
  ASSIGN_OR_RETURN(
      const Formula number,
      assertions_.AddTexts(AssertionKind::kNumber, std::move(numbers)));
  FormulaPool& pool = assertions_.pool();
  parts.push_back(pool.And({assertions_.IsType(JsonType::kString), string}));
  parts.push_back(pool.And({assertions_.IsType(JsonType::kNumber), number}));
  return pool.Or(std::move(parts));
}

absl::StatusOr<Formula> JsonSchemaReader::ReadBound(const json::object& schema,
                                                    std::string_view keyword,
                                                    const json::value& value) {
  // In draft 4 "exclusiveMinimum" says whether the minimum is excluded.
  const bool is_draft4 = document_.draft() == JsonSchemaDraft::k4;
  if (is_draft4 && keyword.starts_with("exclusive")) {
    if (value.is_bool()) return FormulaPool::kTrue;
    return InvalidArgument("must be a boolean in draft 4, got ", Shown(&value));
  }

  if (!value.is_number()) {
    return InvalidArgument("must be a number, got ", Shown(&value));
  }
  ASSIGN_OR_RETURN(const Decimal bound, DecimalOf(value));
  if (keyword == "multipleOf") {
    if (bound.is_negative || bound.IsZero()) {
      return InvalidArgument("must be positive, got ", Shown(&value));
    }
    return assertions_.AddLanguage(
        AssertionKind::kNumber, "multiples of " + bound.Text(),
        [&] { return MultiplesOf(bound, assertions_.budget()); });
  }
  const bool is_minimum = IsAmong(keyword, {"minimum", "exclusiveMinimum"});
  const json::value* const flag =
      is_draft4 ? MemberOf(schema,
                           is_minimum ? "exclusiveMinimum" : "exclusiveMaximum")
                : nullptr;
  const bool excludes =
      keyword.starts_with("exclusive") ||
      (flag != nullptr && flag->is_bool() && flag->get_bool());
  // A maximum is the complement of what is greater.
  const bool is_included = is_minimum != excludes;
  ASSIGN_OR_RETURN(const Formula from,
                   assertions_.AddLanguage(
                       AssertionKind::kNumber,
                       Concat(is_included ? "numbers from " : "numbers beyond ",
                              bound.Text()),
                       [&] {
                         return NumbersFrom(bound, is_included,
                                            assertions_.budget());
                       }));
  return is_minimum ? from : Not(from);
}

absl::StatusOr<Formula> JsonSchemaReader::ReadFormat(const json::value& value) {
  ASSIGN_OR_RETURN(const std::string name, StringOf(value));
  const JsonFormat* const format = FindJsonFormat(name);
  if (format == nullptr) return FormulaPool::kTrue;
  return assertions_.AddLanguage(
      AssertionKind::kString, Concat("the format \"", name, "\""),
      [&] {
        return CompileRegex(format->pattern, RegexMatching::kWhole,
                            assertions_.budget());
      },
      format->is_complete);
}

absl::StatusOr<std::optional<Formula>> JsonSchemaReader::ReadScalar(
    Id id, const json::object& schema, std::string_view keyword,
    const json::value& value) {
  if (keyword == "type") return ReadType(value);
  if (keyword == "const") return ReadConst(id, value);
  if (keyword == "enum") return ReadEnum(id, value);
  if (IsAmong(keyword, {"minimum", "maximum", "exclusiveMinimum",
                        "exclusiveMaximum", "multipleOf"})) {
    ASSIGN_OR_RETURN(const Formula formula, ReadBound(schema, keyword, value));
    return assertions_.IfType(JsonType::kNumber, formula);
  }
  Formula formula = FormulaPool::kTrue;
  if (keyword == "minLength" || keyword == "maxLength") {
    const bool is_min = keyword == "minLength";
    ASSIGN_OR_RETURN(const int64_t count, CountOf(value));
    if (is_min && count == 0) return FormulaPool::kTrue;
    ASSIGN_OR_RETURN(
        formula,
        assertions_.AddLanguage(
            AssertionKind::kString,
            Concat(is_min ? "length from " : "length to ", count), [&] {
              return StringsOfLength(
                  is_min ? count : 0,
                  is_min ? std::nullopt : std::optional(count),
                  assertions_.budget());
            }));
  } else if (keyword == "pattern") {
    ASSIGN_OR_RETURN(const std::string pattern, StringOf(value));
    ASSIGN_OR_RETURN(formula, KeysLike(pattern));
  } else if (keyword == "format") {
    ASSIGN_OR_RETURN(formula, ReadFormat(value));
  } else {
    return std::nullopt;
  }
  return assertions_.IfType(JsonType::kString, formula);
}

absl::StatusOr<Formula> JsonSchemaReader::KeysLike(std::string_view pattern) {
  return assertions_.AddLanguage(
      AssertionKind::kString, Concat("pattern ", pattern), [&] {
        return CompileRegex(pattern, RegexMatching::kSearch,
                            assertions_.budget());
      });
}

absl::StatusOr<Formula> JsonSchemaReader::ReadUnique(
    Id id, const json::object& schema) {
  const json::value* const max_items = MemberOf(schema, "maxItems");
  int64_t max_size = 0;
  if (max_items != nullptr) {
    ASSIGN_OR_RETURN(max_size, CountOf(*max_items));
    if (max_size <= 1) return FormulaPool::kTrue;
  }
  // All items must be of a short list.
  const bool is_tuple = MemberOf(schema, "items") != nullptr &&
                        MemberOf(schema, "items")->is_array();
  const std::string_view prefix_name = is_tuple ? "items" : "prefixItems";
  const std::string_view rest_name = is_tuple ? "additionalItems" : "items";
  std::map<std::string, Id> values;
  const absl::Status error = InvalidArgument(
      "is supported where each item is one of at most ", kMaxDistinctValues,
      " constants, or where maxItems is at most 1");
  const auto add = [&](std::string_view path,
                       const json::value& item) -> absl::Status {
    ASSIGN_OR_RETURN(const Id subschema, document_.Add(item, id, path));
    ASSIGN_OR_RETURN(const Bounds* const known, BoundsOf(subschema, 0));
    if (known->values && known->values->size() > kMaxDistinctValues) {
      return error;
    }
    Bounds bounds = *known;
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
  const json::value* const prefix = MemberOf(schema, prefix_name);
  if (prefix != nullptr && prefix->is_array()) {
    for (; num_prefix < prefix->get_array().size(); ++num_prefix) {
      RETURN_IF_ERROR(add(PathOf(prefix_name, num_prefix),
                          prefix->get_array()[num_prefix]));
    }
  }
  const json::value* const rest = MemberOf(schema, rest_name);
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
  const json::value* const min_value = MemberOf(schema, "minContains");
  const json::value* const max_value = MemberOf(schema, "maxContains");
  if (!IsOldDraft() && min_value != nullptr) {
    ASSIGN_OR_RETURN(min_count, CountOf(*min_value));
  }
  if (!IsOldDraft() && max_value != nullptr) {
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
  if (keyword == "unevaluatedItems" && !IsOldDraft()) {
    return ReadUnevaluatedItems(id, value);
  }
  const bool is_tuple = keyword == (IsOldDraft() ? "items" : "prefixItems") &&
                        (value.is_array() || !IsOldDraft());
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
    if (!IsOldDraft()) {
      return InvalidArgument("is draft 7's: \"items\" after \"prefixItems\"");
    }
    const json::value* const items = MemberOf(schema, "items");
    if (items == nullptr || !items->is_array()) return FormulaPool::kTrue;
    first = items->get_array().size();
  } else if (keyword == "items") {
    if (value.is_array()) {
      return InvalidArgument("an array is draft 7's: \"prefixItems\"");
    }
    const json::value* const prefix = MemberOf(schema, "prefixItems");
    if (!IsOldDraft() && prefix != nullptr && prefix->is_array()) {
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

absl::StatusOr<Formula> JsonSchemaReader::OtherKeys(
    const json::object& schema) {
  std::vector<Formula> parts;
  const json::value* const properties = MemberOf(schema, "properties");
  if (properties != nullptr && properties->is_object()) {
    std::vector<std::string> names;
    for (const auto& [key, value] : properties->get_object()) {
      names.emplace_back(key);
    }
    ASSIGN_OR_RETURN(
        const Formula named,
        assertions_.AddTexts(AssertionKind::kString, std::move(names)));
    parts.push_back(Not(named));
  }
  const json::value* const patterns = MemberOf(schema, "patternProperties");
  if (patterns != nullptr && patterns->is_object()) {
    for (const auto& [pattern, value] : patterns->get_object()) {
      ASSIGN_OR_RETURN(const Formula like, KeysLike(pattern));
      parts.push_back(Not(like));
    }
  }
  return assertions_.pool().And(std::move(parts));
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
      ASSIGN_OR_RETURN(const Formula keys, KeysLike(pattern));
      ASSIGN_OR_RETURN(const Formula child,
                       Child(id, PathOf(keyword, pattern), subschema));
      if (child == FormulaPool::kTrue) continue;
      parts.push_back(assertions_.Add(
          {.kind = AssertionKind::kMembers, .child = child, .keys = keys}));
    }
  } else if (keyword == "additionalProperties") {
    ASSIGN_OR_RETURN(const Formula child, Child(id, keyword, value));
    if (child == FormulaPool::kTrue) return FormulaPool::kTrue;
    ASSIGN_OR_RETURN(const Formula keys, OtherKeys(schema));
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
  } else if (keyword == "dependencies") {
    if (!IsOldDraft()) {
      return InvalidArgument(
          "is draft 7's: \"dependentRequired\" and \"dependentSchemas\"");
    }
    return ReadDependencies(id, keyword, value);
  } else if (!IsOldDraft() &&
             IsAmong(keyword, {"dependentRequired", "dependentSchemas"})) {
    return ReadDependencies(id, keyword, value);
  } else if (!IsOldDraft() && keyword == "unevaluatedProperties") {
    return ReadUnevaluatedMembers(id, value);
  } else {
    return std::nullopt;
  }
  return pool.And(std::move(parts));
}

absl::Status JsonSchemaReader::AddCoverage(
    Id id, Formula condition, bool is_outer, int depth,
    std::vector<Coverage>* coverage,
    std::set<std::pair<Id, Formula>>* visited) {
  const json::object* const schema = document_.ValueOf(id).if_object();
  if (schema == nullptr || condition == FormulaPool::kFalse) {
    return absl::OkStatus();
  }
  if (depth > kMaxReferenceDepth) {
    return InvalidArgument("references nest too deep");
  }
  // A second visit, as by a repeated reference, would add the same parts.
  if (!visited->emplace(id, condition).second) return absl::OkStatus();
  RETURN_IF_ERROR(assertions_.budget()->Take(16));
  FormulaPool& pool = assertions_.pool();
  // Adds a subschema that is applied to the same value if `applies`.
  const auto add = [&](std::string_view path, const json::value& value,
                       Formula applies) -> absl::Status {
    ASSIGN_OR_RETURN(const Id subschema, document_.Add(value, id, path));
    ASSIGN_OR_RETURN(const Formula formula, Read(subschema));
    return AddCoverage(subschema, pool.And({applies, formula}), false,
                       depth + 1, coverage, visited);
  };
  for (const auto& [key, value] : *schema) {
    const std::string_view keyword = key;
    if (keyword == "properties" && value.is_object()) {
      for (const auto& [name, subschema] : value.get_object()) {
        coverage->push_back(
            {.condition = condition, .key = assertions_.AddKey(name)});
      }
    } else if (keyword == "patternProperties" && value.is_object()) {
      for (const auto& [pattern, subschema] : value.get_object()) {
        ASSIGN_OR_RETURN(const Formula keys, KeysLike(pattern));
        coverage->push_back({.condition = condition, .keys = keys});
      }
    } else if (keyword == "additionalProperties") {
      ASSIGN_OR_RETURN(const Formula keys, OtherKeys(*schema));
      coverage->push_back({.condition = condition, .keys = keys});
    } else if (keyword == "unevaluatedProperties" && !is_outer) {
      coverage->push_back({.condition = condition, .keys = FormulaPool::kTrue});
    } else if (keyword == "prefixItems" && value.is_array()) {
      coverage->push_back(
          {.condition = condition,
           .num_items = static_cast<int64_t>(value.get_array().size())});
    } else if (keyword == "items" ||
               (keyword == "unevaluatedItems" && !is_outer)) {
      coverage->push_back({.condition = condition, .has_all_items = true});
    } else if (keyword == "contains") {
      ASSIGN_OR_RETURN(const Formula child, Child(id, keyword, value));
      coverage->push_back({.condition = condition, .contained = child});
    } else if (IsAmong(keyword, {"allOf", "anyOf", "oneOf"}) &&
               value.is_array()) {
      for (size_t i = 0; i < value.get_array().size(); ++i) {
        RETURN_IF_ERROR(
            add(PathOf(keyword, i), value.get_array()[i], condition));
      }
    } else if (keyword == "if") {
      RETURN_IF_ERROR(add(keyword, value, condition));
      ASSIGN_OR_RETURN(const Formula holds, ReadAt(id, keyword, value));
      const json::value* const then = MemberOf(*schema, "then");
      const json::value* const otherwise = MemberOf(*schema, "else");
      if (then != nullptr) {
        RETURN_IF_ERROR(add("then", *then, pool.And({condition, holds})));
      }
      if (otherwise != nullptr) {
        RETURN_IF_ERROR(
            add("else", *otherwise, pool.And({condition, Not(holds)})));
      }
    } else if (keyword == "dependentSchemas" && value.is_object()) {
      for (const auto& [name, subschema] : value.get_object()) {
        const Formula has = assertions_.Add(
            {.kind = AssertionKind::kHas, .index = assertions_.AddKey(name)});
        RETURN_IF_ERROR(
            add(PathOf(keyword, name), subschema, pool.And({condition, has})));
      }
    } else if (keyword == "$ref" || keyword == "$dynamicRef") {
      ASSIGN_OR_RETURN(const Id target, Target(id, keyword, value));
      RETURN_IF_ERROR(
          AddCoverage(target, condition, false, depth + 1, coverage, visited));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Formula> JsonSchemaReader::ReadUnevaluatedMembers(
    Id id, const json::value& value) {
  FormulaPool& pool = assertions_.pool();
  ASSIGN_OR_RETURN(const Formula child,
                   Child(id, "unevaluatedProperties", value));
  if (child == FormulaPool::kTrue) return FormulaPool::kTrue;
  std::vector<Coverage> coverage;
  std::set<std::pair<Id, Formula>> visited;
  RETURN_IF_ERROR(
      AddCoverage(id, FormulaPool::kTrue, true, 0, &coverage, &visited));
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

absl::StatusOr<Formula> JsonSchemaReader::ReadUnevaluatedItems(
    Id id, const json::value& value) {
  FormulaPool& pool = assertions_.pool();
  ASSIGN_OR_RETURN(const Formula child, Child(id, "unevaluatedItems", value));
  if (child == FormulaPool::kTrue) return FormulaPool::kTrue;
  std::vector<Coverage> coverage;
  std::set<std::pair<Id, Formula>> visited;
  RETURN_IF_ERROR(
      AddCoverage(id, FormulaPool::kTrue, true, 0, &coverage, &visited));
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

absl::StatusOr<const std::vector<int64_t>*> JsonSchemaReader::KeysOf(Id id) {
  const auto known = keys_.find(id);
  if (known != keys_.end()) return &known->second;
  std::vector<int64_t> keys;
  std::set<int64_t> seen;
  std::set<Id> visited;
  RETURN_IF_ERROR(AddKeys(id, 0, &keys, &seen, &visited));
  return &keys_.emplace(id, std::move(keys)).first->second;
}

absl::Status JsonSchemaReader::AddKeys(Id id, int depth,
                                       std::vector<int64_t>* keys,
                                       std::set<int64_t>* seen,
                                       std::set<Id>* visited) {
  const json::object* const schema = document_.ValueOf(id).if_object();
  if (schema == nullptr || depth > kMaxReferenceDepth ||
      !visited->insert(id).second) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(assertions_.budget()->Take(16));
  const auto add = [&](std::string_view key) {
    const int64_t index = assertions_.AddKey(key);
    if (seen->insert(index).second) keys->push_back(index);
  };
  const auto descend = [&](std::string_view path,
                           const json::value& value) -> absl::Status {
    ASSIGN_OR_RETURN(const Id subschema, document_.Add(value, id, path));
    return AddKeys(subschema, depth + 1, keys, seen, visited);
  };
  if (const json::value* const properties = MemberOf(*schema, "properties");
      properties != nullptr && properties->is_object()) {
    for (const auto& [key, value] : properties->get_object()) add(key);
  }
  for (const auto& [name, value] : *schema) {
    const std::string_view keyword = name;
    if (keyword == "const" && value.is_object()) {
      for (const auto& [key, member] : value.get_object()) add(key);
    } else if (keyword == "enum" && value.is_array()) {
      for (const json::value& one : value.get_array()) {
        if (!one.is_object()) continue;
        for (const auto& [key, member] : one.get_object()) add(key);
      }
    } else if (keyword == "$ref" || keyword == "$dynamicRef") {
      ASSIGN_OR_RETURN(const Id target, Target(id, keyword, value));
      RETURN_IF_ERROR(AddKeys(target, depth + 1, keys, seen, visited));
    } else if (IsAmong(keyword, {"allOf", "anyOf", "oneOf"}) &&
               value.is_array()) {
      for (size_t i = 0; i < value.get_array().size(); ++i) {
        RETURN_IF_ERROR(descend(PathOf(keyword, i), value.get_array()[i]));
      }
    } else if (IsAmong(keyword, {"if", "then", "else", "not"})) {
      RETURN_IF_ERROR(descend(keyword, value));
    } else if (IsAmong(keyword, {"dependentSchemas", "dependentRequired",
                                 "dependencies"}) &&
               value.is_object()) {
      for (const auto& [key, needed] : value.get_object()) {
        add(key);
        if (!needed.is_array()) {
          RETURN_IF_ERROR(descend(PathOf(keyword, key), needed));
          continue;
        }
        for (const json::value& inner : needed.get_array()) {
          if (inner.is_string()) add(inner.get_string());
        }
      }
    }
  }
  if (const json::value* const required = MemberOf(*schema, "required");
      required != nullptr && required->is_array()) {
    for (const json::value& key : required->get_array()) {
      if (key.is_string()) add(key.get_string());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<JsonSchemaReader::Bounds> JsonSchemaReader::FindBounds(
    Id id, int depth) {
  const json::value& value = document_.ValueOf(id);
  Bounds bounds = {.types = (1U << kNumJsonTypes) - 1};
  if (value.is_bool() && !value.get_bool()) bounds = {.types = 0};
  const json::object* const schema = value.if_object();
  if (schema == nullptr || depth > kMaxReferenceDepth) return bounds;
  CompileBudget& budget = *assertions_.budget();
  const auto intersect = [&](const Bounds& other) -> absl::Status {
    bounds.types &= other.types;
    if (!other.values) return absl::OkStatus();
    if (bounds.values) {
      RETURN_IF_ERROR(
          budget.Take(StepsOfLookups(*bounds.values, *other.values)));
      std::erase_if(*bounds.values, [&](const std::string& text) {
        return !other.values->contains(text);
      });
    } else {
      RETURN_IF_ERROR(budget.Take(StepsOfCopy(*other.values)));
      bounds.values = other.values;
    }
    return absl::OkStatus();
  };
  const auto constants = [&](const json::array& list) {
    Bounds result = {.types = 0, .values = std::set<std::string>()};
    for (const json::value& one : list) {
      result.types |= BitOf(TypeOf(one));
      result.values->insert(CanonicalJson(one));
    }
    return result;
  };
  for (const auto& [name, member] : *schema) {
    const std::string_view keyword = name;
    if (IsOldDraft() && keyword != "$ref" && schema->contains("$ref")) continue;
    if (keyword == "const") {
      RETURN_IF_ERROR(intersect(constants({member})));
    } else if (keyword == "enum" && member.is_array()) {
      RETURN_IF_ERROR(intersect(constants(member.get_array())));
    } else if (keyword == "type" && member.is_string()) {
      RETURN_IF_ERROR(intersect({.types = TypesOfName(member.get_string())}));
    } else if (keyword == "type" && member.is_array()) {
      uint8_t types = 0;
      for (const json::value& type : member.get_array()) {
        if (type.is_string()) types |= TypesOfName(type.get_string());
      }
      RETURN_IF_ERROR(intersect({.types = types}));
    } else if (keyword == "$ref") {
      const absl::StatusOr<Id> target = Target(id, keyword, member);
      if (!target.ok()) continue;  // reading it is an error
      ASSIGN_OR_RETURN(const Bounds* const inner, BoundsOf(*target, depth + 1));
      RETURN_IF_ERROR(intersect(*inner));
    } else if (IsAmong(keyword, {"allOf", "anyOf", "oneOf"}) &&
               member.is_array()) {
      Bounds joined = {.types = 0, .values = std::set<std::string>()};
      for (size_t i = 0; i < member.get_array().size(); ++i) {
        const absl::StatusOr<Id> part =
            document_.Add(member.get_array()[i], id, PathOf(keyword, i));
        if (!part.ok()) return bounds;
        ASSIGN_OR_RETURN(const Bounds* const inner, BoundsOf(*part, depth + 1));
        if (keyword == "allOf") {
          RETURN_IF_ERROR(intersect(*inner));
          continue;
        }
        joined.types |= inner->types;
        if (!inner->values && inner->types != 0) joined.values.reset();
        if (joined.values && inner->values) {
          RETURN_IF_ERROR(budget.Take(StepsOfCopy(*inner->values)));
          joined.values->insert(inner->values->begin(), inner->values->end());
        }
      }
      if (keyword != "allOf") RETURN_IF_ERROR(intersect(joined));
    }
  }
  return bounds;
}

absl::StatusOr<const JsonSchemaReader::Bounds*> JsonSchemaReader::BoundsOf(
    Id id, int depth) {
  // References that lead back here find that any value may satisfy it.
  const auto [entry, is_new] = bounds_.try_emplace(id);
  if (is_new) {
    ASSIGN_OR_RETURN(entry->second, FindBounds(id, depth));
  }
  return &entry->second;
}

absl::StatusOr<bool> JsonSchemaReader::AreDisjoint(Id a, Id b) {
  ASSIGN_OR_RETURN(const Bounds* first, BoundsOf(a, 0));
  ASSIGN_OR_RETURN(const Bounds* second, BoundsOf(b, 0));
  if ((first->types & second->types) == 0) return true;
  if (!first->values || !second->values) return false;
  if (first->values->size() > second->values->size()) std::swap(first, second);
  RETURN_IF_ERROR(assertions_.budget()->Take(
      StepsOfLookups(*first->values, *second->values)));
  return std::none_of(
      first->values->begin(), first->values->end(),
      [&](const std::string& text) { return second->values->contains(text); });
}

}  // namespace espalier
