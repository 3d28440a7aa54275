#include "tests/constrain/json_evaluator.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <regex>
#include <string>

namespace espalier::testing {
namespace {

bool Matches(const std::string& text, const std::string& pattern) {
  return std::regex_search(text, std::regex(pattern));
}

bool AreEqual(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) {
    return a.to_number<double>() == b.to_number<double>();
  }
  if (a.is_array() && b.is_array()) {
    return std::equal(a.get_array().begin(), a.get_array().end(),
                      b.get_array().begin(), b.get_array().end(), AreEqual);
  }
  if (!a.is_object() || !b.is_object()) return a == b;
  const json::object& first = a.get_object();
  const json::object& second = b.get_object();
  return first.size() == second.size() &&
         std::all_of(first.begin(), first.end(), [&](const auto& member) {
           const json::value* const other = second.if_contains(member.key());
           return other != nullptr && AreEqual(member.value(), *other);
         });
}

bool IsOfType(const json::value& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  return value.is_number() &&
         std::floor(value.to_number<double>()) == value.to_number<double>();
}

size_t NumCodePoints(const json::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (c & 0xC0) != 0x80; });
}

bool NumberSatisfies(double number, const std::string& keyword,
                     const json::value& value) {
  if (!value.is_number()) return true;
  const auto limit = value.to_number<double>();
  if (keyword == "minimum") return number >= limit;
  if (keyword == "maximum") return number <= limit;
  if (keyword == "exclusiveMinimum") return number > limit;
  if (keyword == "exclusiveMaximum") return number < limit;
  if (keyword == "multipleOf") return std::fmod(number, limit) == 0;
  return true;
}

bool StringSatisfies(const json::string& text, const std::string& keyword,
                     const json::value& value) {
  if (keyword == "minLength") {
    return NumCodePoints(text) >= value.to_number<size_t>();
  }
  if (keyword == "maxLength") {
    return NumCodePoints(text) <= value.to_number<size_t>();
  }
  return keyword != "pattern" ||
         Matches(std::string(text), std::string(value.as_string()));
}

bool ArraySatisfies(const json::array& items, const json::object& schema,
                    const std::string& keyword, const json::value& value) {
  if (keyword == "minItems") return items.size() >= value.to_number<size_t>();
  if (keyword == "maxItems") return items.size() <= value.to_number<size_t>();
  if (keyword == "prefixItems") {
    for (size_t i = 0; i < items.size() && i < value.as_array().size(); ++i) {
      if (!Satisfies(items[i], value.as_array()[i])) return false;
    }
  }
  if (keyword == "items") {
    const size_t first = schema.contains("prefixItems")
                             ? schema.at("prefixItems").as_array().size()
                             : 0;
    for (size_t i = first; i < items.size(); ++i) {
      if (!Satisfies(items[i], value)) return false;
    }
  }
  if (keyword == "contains") {
    const auto count = static_cast<size_t>(std::count_if(
        items.begin(), items.end(),
        [&](const json::value& item) { return Satisfies(item, value); }));
    const size_t min = schema.contains("minContains")
                           ? schema.at("minContains").to_number<size_t>()
                           : 1;
    if (count < min) return false;
    if (!schema.contains("maxContains")) return true;
    return count <= schema.at("maxContains").to_number<size_t>();
  }
  return true;
}

bool IsAdditional(const std::string& key, const json::object& schema) {
  if (schema.contains("properties") &&
      schema.at("properties").as_object().contains(key)) {
    return false;
  }
  if (!schema.contains("patternProperties")) return true;
  for (const auto& member : schema.at("patternProperties").as_object()) {
    if (Matches(key, std::string(member.key()))) return false;
  }
  return true;
}

bool MembersSatisfy(const json::object& object, const json::object& schema,
                    const std::string& keyword, const json::value& value) {
  for (const auto& member : object) {
    const std::string key(member.key());
    if (keyword == "properties" && value.as_object().contains(key) &&
        !Satisfies(member.value(), value.at(key))) {
      return false;
    }
    if (keyword == "additionalProperties" && IsAdditional(key, schema) &&
        !Satisfies(member.value(), value)) {
      return false;
    }
    if (keyword == "propertyNames" && !Satisfies(json::value(key), value)) {
      return false;
    }
    if (keyword != "patternProperties") continue;
    for (const auto& pattern : value.as_object()) {
      if (Matches(key, std::string(pattern.key())) &&
          !Satisfies(member.value(), pattern.value())) {
        return false;
      }
    }
  }
  return true;
}

bool HasAll(const json::object& object, const json::value& names) {
  return std::all_of(names.as_array().begin(), names.as_array().end(),
                     [&](const json::value& name) {
                       return object.contains(name.as_string());
                     });
}

bool ObjectSatisfies(const json::object& object, const json::object& schema,
                     const std::string& keyword, const json::value& value) {
  if (keyword == "minProperties") {
    return object.size() >= value.to_number<size_t>();
  }
  if (keyword == "maxProperties") {
    return object.size() <= value.to_number<size_t>();
  }
  if (keyword == "required") return HasAll(object, value);
  if (keyword == "dependentRequired") {
    for (const auto& [key, names] : value.as_object()) {
      if (object.contains(key) && !HasAll(object, names)) return false;
    }
  }
  if (keyword == "dependentSchemas") {
    for (const auto& [key, inner] : value.as_object()) {
      if (object.contains(key) && !Satisfies(object, inner)) return false;
    }
  }
  return MembersSatisfy(object, schema, keyword, value);
}

bool KeywordHolds(const json::value& value, const json::object& schema,
                  const std::string& keyword, const json::value& argument) {
  const auto satisfies = [&](const json::value& inner) {
    return Satisfies(value, inner);
  };
  if (keyword == "allOf" || keyword == "anyOf" || keyword == "oneOf") {
    const json::array& list = argument.as_array();
    const auto count = std::count_if(list.begin(), list.end(), satisfies);
    if (keyword == "allOf") return count == static_cast<int>(list.size());
    return keyword == "anyOf" ? count > 0 : count == 1;
  }
  if (keyword == "not") return !satisfies(argument);
  if (keyword == "if") {
    const char* const branch = satisfies(argument) ? "then" : "else";
    return !schema.contains(branch) || satisfies(schema.at(branch));
  }
  if (keyword == "const") return AreEqual(value, argument);
  if (keyword == "enum") {
    const json::array& list = argument.as_array();
    return std::any_of(list.begin(), list.end(), [&](const json::value& one) {
      return AreEqual(value, one);
    });
  }
  if (keyword == "type") {
    return IsOfType(value, std::string(argument.as_string()));
  }
  if (value.is_number()) {
    return NumberSatisfies(value.to_number<double>(), keyword, argument);
  }
  if (value.is_string()) {
    return StringSatisfies(value.get_string(), keyword, argument);
  }
  if (value.is_array()) {
    return ArraySatisfies(value.get_array(), schema, keyword, argument);
  }
  return !value.is_object() ||
         ObjectSatisfies(value.get_object(), schema, keyword, argument);
}

}  // namespace

bool Satisfies(const json::value& value, const json::value& schema) {
  if (schema.is_bool()) return schema.get_bool();
  const json::object& keywords = schema.as_object();
  return std::all_of(keywords.begin(), keywords.end(), [&](const auto& member) {
    return KeywordHolds(value, keywords, std::string(member.key()),
                        member.value());
  });
}

}  // namespace espalier::testing
