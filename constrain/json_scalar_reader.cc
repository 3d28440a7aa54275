#include "constrain/json_scalar_reader.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "constrain/compile_budget.h"
#include "constrain/json_format.h"
#include "constrain/json_keywords.h"
#include "constrain/json_number_language.h"
#include "constrain/regex_language.h"

namespace espalier {
namespace {

using AssertionKind = JsonAssertion::Kind;

}  // namespace

absl::StatusOr<Formula> JsonScalarReader::ReadType(const json::value& value) {
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

absl::StatusOr<Formula> JsonScalarReader::ReadConst(Id id,
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

absl::StatusOr<Formula> JsonScalarReader::ReadEnum(Id id,
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

absl::StatusOr<Formula> JsonScalarReader::ReadBound(const json::object& schema,
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
      is_draft4 ? schema.if_contains(is_minimum ? "exclusiveMinimum"
                                                : "exclusiveMaximum")
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

absl::StatusOr<Formula> JsonScalarReader::ReadFormat(const json::value& value) {
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

absl::StatusOr<std::optional<Formula>> JsonScalarReader::Read(
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
  if (keyword == "minLength") {
    ASSIGN_OR_RETURN(const int64_t count, CountOf(value));
    if (const json::value* const most = schema.if_contains("maxLength")) {
      const absl::StatusOr<int64_t> max_count = CountOf(*most);
      if (max_count.ok() && *max_count < count) {
        return assertions_.IfType(JsonType::kString, FormulaPool::kFalse);
      }
    }
    if (count >= kMaxKeywordCount) {
      return InvalidArgument("must be less than ", kMaxKeywordCount, ", got ",
                             Shown(&value));
    }
    ASSIGN_OR_RETURN(formula, assertions_.AddMinLength(
                                  count, assertions_.max_unrolled_least(),
                                  Concat(keyword, " ", Shown(&value))));
  } else if (keyword == "maxLength") {
    ASSIGN_OR_RETURN(const int64_t count, CountOf(value));
    const bool is_counted = count > assertions_.max_unrolled_length();
    ASSIGN_OR_RETURN(
        const Formula longer,
        assertions_.AddMinLength(count + 1, is_counted ? 0 : count + 1,
                                 Concat(keyword, " ", Shown(&value))));
    formula = Not(longer);
  } else if (keyword == "pattern") {
    ASSIGN_OR_RETURN(const std::string pattern, StringOf(value));
    ASSIGN_OR_RETURN(formula, StringsLike(pattern));
  } else if (keyword == "format") {
    ASSIGN_OR_RETURN(formula, ReadFormat(value));
  } else {
    return std::nullopt;
  }
  return assertions_.IfType(JsonType::kString, formula);
}

absl::StatusOr<Formula> JsonScalarReader::StringsLike(
    std::string_view pattern) {
  return assertions_.AddLanguage(
      AssertionKind::kString, Concat("pattern ", pattern), [&] {
        return CompileRegex(pattern, RegexMatching::kSearch,
                            assertions_.budget());
      });
}

absl::StatusOr<Formula> JsonScalarReader::KeysLike(Id id,
                                                   std::string_view pattern) {
  absl::StatusOr<Formula> keys = StringsLike(pattern);
  if (keys.ok()) return keys;
  return InvalidArgument(document_.PointerOf(id), "/",
                         PathOf("patternProperties", pattern), ": ",
                         Message(keys.status()));
}

absl::StatusOr<Formula> JsonScalarReader::OtherKeys(
    Id id, const json::object& schema) {
  std::vector<Formula> parts;
  const json::value* const properties = schema.if_contains("properties");
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
  const json::value* const patterns = schema.if_contains("patternProperties");
  if (patterns != nullptr && patterns->is_object()) {
    for (const auto& [pattern, value] : patterns->get_object()) {
      ASSIGN_OR_RETURN(const Formula like, KeysLike(id, pattern));
      parts.push_back(Not(like));
    }
  }
  return assertions_.pool().And(std::move(parts));
}

}  // namespace espalier
