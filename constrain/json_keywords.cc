#include "constrain/json_keywords.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"

namespace espalier {

absl::StatusOr<int64_t> CountOf(const json::value& value) {
  double count = -1;
  if (value.is_number()) count = value.to_number<double>();
  if (count < 0 || count != std::floor(count)) {
    return InvalidArgument("must be a non-negative integer, got ",
                           Shown(&value));
  }
  return static_cast<int64_t>(std::min<double>(count, kMaxKeywordCount));
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

bool IsAmong(std::string_view name,
             std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace espalier
