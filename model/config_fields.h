// Reading fields of a JSON object with a range each: the small part of every
// config reader. Errors are kInvalidArgument naming the field and the value.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/json.h"

namespace espalier {

// The field's value, or null if it is missing or JSON null.
const json::value* FindField(const json::object& object, std::string_view key);

// An integer in [low, high]; `fallback` if the field is missing, which is an
// error if there is no fallback.
absl::StatusOr<int> ReadInt(const json::object& object, std::string_view key,
                            int low, int high,
                            std::optional<int> fallback = std::nullopt);

// The same of a field that transformers' configurations know by another name as
// well (`attribute_map`): `alias` may stand in its place, or say the same.
absl::StatusOr<int> ReadAliasedInt(const json::object& object,
                                   std::string_view key, std::string_view alias,
                                   int low, int high,
                                   std::optional<int> fallback = std::nullopt);

// The same for a number in (low, high].
absl::StatusOr<double> ReadNumber(
    const json::object& object, std::string_view key, double low, double high,
    std::optional<double> fallback = std::nullopt);

absl::StatusOr<bool> ReadBool(const json::object& object, std::string_view key,
                              bool fallback);

}  // namespace espalier
