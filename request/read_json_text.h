// Values of the request format, read from their text (base/json_scan.h): what
// Read of read_json.h makes of a value, with the same errors, but that they
// show what was given as it was written there, and numbers of lists go into
// their vectors without becoming values before.
//
// REQUIRES: ScanJson found the text right.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "request/read_json.h"

namespace espalier {

template <JsonScalar T>
absl::Status Read(std::string_view field, const JsonText& json, T* out) {
  const bool is_scalar = !json.is_array() && !json.is_object();
  if (is_scalar && Take(ParseChecked(json.text), out)) return absl::OkStatus();
  return WrongType(field, Wanted(out), json.text);
}

// [[token id, ...], number]
absl::Status Read(std::string_view field, const JsonText& json,
                  SequenceBias* out);
// [integer, number]
absl::Status Read(std::string_view field, const JsonText& json,
                  LengthDecay* out);

// {"token id": number}: JSON has no keys but strings.
absl::Status Read(std::string_view field, const JsonText& json,
                  std::vector<std::pair<int64_t, double>>* out);

absl::Status Read(std::string_view field, const JsonText& json,
                  std::vector<int64_t>* out);
absl::Status Read(std::string_view field, const JsonText& json,
                  std::vector<std::vector<int64_t>>* out);

template <typename T>
absl::Status Read(std::string_view field, const JsonText& json,
                  std::vector<T>* out) {
  if (!json.is_array()) return WrongType(field, "a list", json.text);
  out->clear();
  for (JsonItems items(json.text); items.Next();) {
    const JsonText item = {items.value()};
    if (Read(field, item, &out->emplace_back()).ok()) continue;
    return Read(Concat(field, "[", out->size() - 1, "]"), item, &out->back());
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status Read(std::string_view field, const JsonText& json,
                  std::optional<T>* out) {
  return Read(field, json, &out->emplace());
}

// Members that an object in a value of a caller may have. Boost.JSON finds them
// by a hash that has no key, so that they can be chosen to share a bucket: half
// a million of them would take minutes, so many take a millisecond.
inline constexpr int64_t kMaxMembers = 1024;

// Any value, to be made of `json` as it stands.
// Errors: kInvalidArgument if an object in it has more than kMaxMembers.
absl::StatusOr<json::value> ReadAny(std::string_view field,
                                    const JsonText& json);

// A token id, or a list of them.
absl::Status ReadIds(std::string_view field, const JsonText& json,
                     std::vector<int64_t>* out);
// A string, or a list of them.
absl::Status ReadTexts(std::string_view field, const JsonText& json,
                       std::vector<std::string>* out);

}  // namespace espalier
