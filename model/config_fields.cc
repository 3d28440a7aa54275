#include "model/config_fields.h"

#include "base/status.h"

namespace espalier {

const json::value* FindField(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

absl::StatusOr<int> ReadInt(const json::object& object, std::string_view key,
                            int low, int high, std::optional<int> fallback) {
  const json::value* value = FindField(object, key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) return InvalidArgument(key, " is missing");
  if (!value->is_int64() || value->get_int64() < low ||
      value->get_int64() > high) {
    return InvalidArgument(key, " must be an integer in [", low, ", ", high,
                           "], got ", Shown(value));
  }
  return static_cast<int>(value->get_int64());
}

absl::StatusOr<int> ReadAliasedInt(const json::object& object,
                                   std::string_view key, std::string_view alias,
                                   int low, int high,
                                   std::optional<int> fallback) {
  const json::value* const by_alias = FindField(object, alias);
  if (by_alias == nullptr) return ReadInt(object, key, low, high, fallback);
  const json::value* const value = FindField(object, key);
  if (value != nullptr && *value != *by_alias) {
    return InvalidArgument(alias, " must be ", key, ", ", Shown(value),
                           ", which it is another name of, got ",
                           Shown(by_alias));
  }
  return ReadInt(object, value == nullptr ? alias : key, low, high);
}

absl::StatusOr<double> ReadNumber(const json::object& object,
                                  std::string_view key, double low, double high,
                                  std::optional<double> fallback) {
  const json::value* value = FindField(object, key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) return InvalidArgument(key, " is missing");
  json::error_code error;
  const double number = value->to_number<double>(error);
  if (error || !(number > low && number <= high)) {
    return InvalidArgument(key, " must be a number in (", low, ", ", high,
                           "], got ", Shown(value));
  }
  return number;
}

absl::StatusOr<bool> ReadBool(const json::object& object, std::string_view key,
                              bool fallback) {
  const json::value* value = FindField(object, key);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) {
    return InvalidArgument(key, " must be true or false, got ", Shown(value));
  }
  return value->get_bool();
}

}  // namespace espalier
