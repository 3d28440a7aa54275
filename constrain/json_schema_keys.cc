#include "constrain/json_schema_keys.h"

#include <cstddef>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "constrain/json_keywords.h"

namespace espalier {

absl::StatusOr<const std::vector<int64_t>*> JsonSchemaKeys::Of(Id id) {
  const auto known = known_.find(id);
  if (known != known_.end()) return &known->second;
  std::vector<int64_t> keys;
  std::set<int64_t> seen;
  std::set<Id> visited;
  RETURN_IF_ERROR(Add(id, 0, &keys, &seen, &visited));
  return &known_.emplace(id, std::move(keys)).first->second;
}

absl::Status JsonSchemaKeys::Add(Id id, int depth, std::vector<int64_t>* keys,
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
    return Add(subschema, depth + 1, keys, seen, visited);
  };
  if (const json::value* const properties = schema->if_contains("properties");
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
      ASSIGN_OR_RETURN(const Id target, document_.Resolve(id, keyword, value));
      RETURN_IF_ERROR(Add(target, depth + 1, keys, seen, visited));
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
  if (const json::value* const required = schema->if_contains("required");
      required != nullptr && required->is_array()) {
    for (const json::value& key : required->get_array()) {
      if (key.is_string()) add(key.get_string());
    }
  }
  return absl::OkStatus();
}

}  // namespace espalier
