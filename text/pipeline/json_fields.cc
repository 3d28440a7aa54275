#include "text/pipeline/json_fields.h"

#include <algorithm>

namespace espalier {

std::string ItemPlace(std::string_view place, size_t idx) {
  std::string name(place);
  return name.append("[").append(std::to_string(idx)).append("]");
}

absl::StatusOr<JsonFields> JsonFields::Of(const json::value& value,
                                          std::string place) {
  if (value.is_object()) return JsonFields(value.get_object(), place);
  return InvalidArgument(place, place.empty() ? "" : " ",
                         "must be an object, got ", Shown(&value));
}

absl::StatusOr<JsonFields> JsonFields::OfItem(const json::array& list,
                                              size_t idx,
                                              std::string_view place) {
  const json::value& value = list[idx];
  if (value.is_object()) return JsonFields(value.get_object(), place, idx);
  return Of(value, ItemPlace(place, idx));
}

std::string JsonFields::Place(std::string_view field) const {
  std::string name = place();
  if (!name.empty()) name += '.';
  return name.append(field);
}

absl::Status JsonFields::Wrong(std::string_view field,
                               std::string_view what) const {
  const json::value* value = object_->if_contains(field);
  return InvalidArgument(Place(field), " must be ", what, ", got ",
                         Shown(value));
}

absl::Status JsonFields::WrongAs(std::string_view field,
                                 const absl::Status& why) const {
  return Annotate(why, Place(field));
}

absl::Status JsonFields::CheckKnown(
    std::initializer_list<std::string_view> known) const {
  for (const auto& [key, value] : *object_) {
    const std::string_view name(key.data(), key.size());
    if (std::ranges::find(known, name) == known.end()) {
      return InvalidArgument(Place(Shown(name)), " is not known, got ",
                             Shown(&value));
    }
  }
  return absl::OkStatus();
}

const json::value* JsonFields::Find(std::string_view field) const {
  const json::value* value = object_->if_contains(field);
  return value == nullptr || value->is_null() ? nullptr : value;
}

absl::StatusOr<std::string> JsonFields::String(std::string_view field) const {
  const json::value* value = Find(field);
  if (value == nullptr || !value->is_string()) return Wrong(field, "a string");
  return std::string(value->get_string());
}

absl::StatusOr<int64_t> JsonFields::Integer(std::string_view field) const {
  const json::value* value = Find(field);
  if (value == nullptr || !value->is_int64()) return Wrong(field, "an integer");
  return value->get_int64();
}

absl::StatusOr<const json::array*> JsonFields::Array(
    std::string_view field) const {
  const json::value* value = Find(field);
  if (value == nullptr || !value->is_array()) return Wrong(field, "a list");
  return &value->get_array();
}

absl::StatusOr<const json::object*> JsonFields::Object(
    std::string_view field) const {
  const json::value* value = Find(field);
  if (value == nullptr || !value->is_object()) return Wrong(field, "an object");
  return &value->get_object();
}

absl::StatusOr<JsonFields> JsonFields::Inner(std::string_view field) const {
  ASSIGN_OR_RETURN(const json::object* object, Object(field));
  return JsonFields(*object, Place(field));
}

absl::StatusOr<bool> JsonFields::Bool(std::string_view field) const {
  const json::value* value = Find(field);
  if (value == nullptr || !value->is_bool()) {
    return Wrong(field, "true or false");
  }
  return value->get_bool();
}

absl::StatusOr<bool> JsonFields::Bool(std::string_view field,
                                      bool otherwise) const {
  if (Find(field) == nullptr) return otherwise;
  return Bool(field);
}

absl::StatusOr<std::optional<std::string>> JsonFields::OptionalString(
    std::string_view field) const {
  if (Find(field) == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(std::string text, String(field));
  return std::optional(std::move(text));
}

}  // namespace espalier
