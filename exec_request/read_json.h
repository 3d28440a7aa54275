// Values of the request format and of traces, read from JSON. Every error names
// the field and shows the value: kInvalidArgument, "num_beams must be an
// integer, got \"4\"".
//
// Lists and optional values are read by the Read of what they hold: one of
// these, or one in this namespace that takes a type of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/status.h"
#include "exec_request/generation_params.h"

namespace espalier {

absl::Status WrongType(std::string_view field, std::string_view wanted,
                       const json::value& value);

absl::Status Read(std::string_view field, const json::value& value, bool* out);
absl::Status Read(std::string_view field, const json::value& value,
                  int64_t* out);
absl::Status Read(std::string_view field, const json::value& value,
                  int32_t* out);
absl::Status Read(std::string_view field, const json::value& value,
                  uint64_t* out);
absl::Status Read(std::string_view field, const json::value& value,
                  double* out);
absl::Status Read(std::string_view field, const json::value& value, float* out);
absl::Status Read(std::string_view field, const json::value& value,
                  std::string* out);
absl::Status Read(std::string_view field, const json::value& value,
                  json::object* out);
// false, true or "never".
absl::Status Read(std::string_view field, const json::value& value,
                  EarlyStopping* out);
// "power" or "wu".
absl::Status Read(std::string_view field, const json::value& value,
                  LengthPenaltyForm* out);
// {"token id": number}: JSON has no keys but strings.
absl::Status Read(std::string_view field, const json::value& value,
                  std::vector<std::pair<int64_t, double>>* out);

template <typename Tag, typename Rep>
absl::Status Read(std::string_view field, const json::value& value,
                  Id<Tag, Rep>* out) {
  return Read(field, value, &out->value);
}

template <typename T>
absl::Status Read(std::string_view field, const json::value& value,
                  std::vector<T>* out) {
  if (!value.is_array()) return WrongType(field, "a list", value);
  const json::array& list = value.get_array();
  out->resize(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    RETURN_IF_ERROR(Read(Concat(field, "[", i, "]"), list[i], &(*out)[i]));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status Read(std::string_view field, const json::value& value,
                  std::optional<T>* out) {
  return Read(field, value, &out->emplace());
}

// A token id, or a list of them.
absl::Status ReadIds(std::string_view field, const json::value& value,
                     std::vector<int64_t>* out);
// A string, or a list of them.
absl::Status ReadTexts(std::string_view field, const json::value& value,
                       std::vector<std::string>* out);

}  // namespace espalier
