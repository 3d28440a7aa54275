// Readers of JSON fields with range checks, for all config readers. Errors are
// kInvalidArgument naming the field and the value.
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

// ReadInt for a field that has a second name in transformers (`attribute_map`).
// If both `key` and `alias` are present, their values must be equal.
absl::StatusOr<int> ReadAliasedInt(const json::object& object,
                                   std::string_view key, std::string_view alias,
                                   int low, int high,
                                   std::optional<int> fallback = std::nullopt);

// A number in (low, high]; `fallback` as in ReadInt.
absl::StatusOr<double> ReadNumber(
    const json::object& object, std::string_view key, double low, double high,
    std::optional<double> fallback = std::nullopt);

absl::StatusOr<bool> ReadBool(const json::object& object, std::string_view key,
                              bool fallback);

}  // namespace espalier
