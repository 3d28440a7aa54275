// JSON in and out, over Boost.JSON: input is checked (UTF-8, depth, nothing
// after the value) and errors are values; output writes numbers the short way
// (0.1, not 1E-1), so that what we print reads well.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier {

namespace json = boost::json;

// Nesting deeper than this is no request and no configuration of ours.
inline constexpr int kMaxJsonDepth = 32;

// Whether `text` is well-formed UTF-8 (no surrogates, no overlong forms).
bool IsUtf8(std::string_view text);

// Errors: kInvalidArgument naming the first byte that is not.
absl::Status CheckUtf8(std::string_view text);

// Errors: kInvalidArgument naming what is wrong and at which byte.
absl::StatusOr<json::value> ParseJson(std::string_view text);

// As ParseJson, of a text that Python wrote: the numbers NaN, Infinity and
// -Infinity, which JSON lacks, are read as the strings of their names, so that
// a reader that wants a number there refuses them by name.
absl::StatusOr<json::value> ParsePythonJson(std::string_view text);

// One line, no spaces after separators except after ',' and ':'. A float is
// written with the fewest digits that read back to the same value; NaN and
// infinities, which JSON lacks, as null.
std::string WriteJson(const json::value& value);

// The same, after what `out` has, of a text (in quotes) and of numbers; a
// float is written as JsonFloat writes it.
void AppendJson(std::string_view text, std::string* out);
void AppendJson(double value, std::string* out);
void AppendJson(float value, std::string* out);
void AppendJson(int64_t value, std::string* out);

// What an error message shows of a text that may be long: `text`, or its first
// 60 bytes, less a character that would be cut, and "...".
// REQUIRES: well-formed UTF-8.
std::string Shown(std::string_view text);
// The same of a value as WriteJson gives it; "nothing" if `value` is nullptr.
std::string Shown(const json::value* value);
// The same of a text as JSON writes it, in quotes.
std::string ShownInQuotes(std::string_view text);

// A float32 as a JSON number that writes as shortly as the float32 does
// (-0.37952831, not -0.37952831387519836).
json::value JsonFloat(float value);

}  // namespace espalier
