// JsonFields: an object of a model's file, read field by field. Every error
// names the field by its place in the file ("normalizer.normalizers[1].type")
// and shows its value.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json.h"
#include "base/status.h"

namespace espalier {

// "PLACE[IDX]", of an item of the list at `place`.
std::string ItemPlace(std::string_view place, size_t idx);

class JsonFields {
 public:
  // `value` at `place` of the file, "" for all of it; it must live as long.
  // Errors: kInvalidArgument if it is no object.
  static absl::StatusOr<JsonFields> Of(const json::value& value,
                                       std::string place);
  // Item `idx` of a list at `place`, whose own place is made when it is needed:
  // lists may be long. `place` must live as long, too.
  // Errors: as Of.
  static absl::StatusOr<JsonFields> OfItem(const json::array& list, size_t idx,
                                           std::string_view place);

  std::string place() const { return idx_ ? ItemPlace(list_, *idx_) : place_; }
  // Returns the place of one of its fields.
  std::string Place(std::string_view field) const;

  // "PLACE must be WHAT, got VALUE".
  absl::Status Wrong(std::string_view field, std::string_view what) const;
  // "PLACE: MESSAGE".
  absl::Status WrongAs(std::string_view field, const absl::Status& why) const;

  // Errors: kInvalidArgument naming the first field that is not among `known`.
  absl::Status CheckKnown(std::initializer_list<std::string_view> known) const;

  // nullptr if the field is missing or null.
  const json::value* Find(std::string_view field) const;

  // Errors: kInvalidArgument if the field is missing or not of that type.
  absl::StatusOr<std::string> String(std::string_view field) const;
  absl::StatusOr<int64_t> Integer(std::string_view field) const;
  absl::StatusOr<const json::array*> Array(std::string_view field) const;
  absl::StatusOr<const json::object*> Object(std::string_view field) const;
  absl::StatusOr<JsonFields> Inner(std::string_view field) const;
  absl::StatusOr<bool> Bool(std::string_view field) const;
  // `otherwise` if it is missing or null.
  absl::StatusOr<bool> Bool(std::string_view field, bool otherwise) const;
  // Nothing if it is missing or null.
  absl::StatusOr<std::optional<std::string>> OptionalString(
      std::string_view field) const;

 private:
  JsonFields(const json::object& object, std::string place)
      : object_(&object), place_(std::move(place)) {}

  JsonFields(const json::object& object, std::string_view list, size_t idx)
      : object_(&object), list_(list), idx_(idx) {}

  const json::object* object_;
  std::string place_;
  std::string_view list_;  // the place of the list, of an item
  std::optional<size_t> idx_;
};

}  // namespace espalier
