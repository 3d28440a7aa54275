// Reads values of a JSON Schema's keywords.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "constrain/json_assertions.h"

namespace espalier {

// Errors: kInvalidArgument with the value if it is of another type.
absl::StatusOr<std::string> StringOf(const json::value& value);
absl::StatusOr<const json::object*> ObjectOf(const json::value& value);
absl::StatusOr<const json::array*> ArrayOf(const json::value& value);
// Reads a non-negative integer, which may be written 2.0. One that is greater
// than kMaxKeywordCount, which is beyond all limits of states, becomes it.
inline constexpr int64_t kMaxKeywordCount = 1'000'000'000;
absl::StatusOr<int64_t> CountOf(const json::value& value);

// Sets of types have a bit for each.
uint8_t BitOf(JsonType type);
JsonType TypeOf(const json::value& value);
// Returns the types of a name in "type"; 0 for an unknown one.
uint8_t TypesOfName(std::string_view name);

bool IsAmong(std::string_view name,
             std::initializer_list<std::string_view> names);

}  // namespace espalier
