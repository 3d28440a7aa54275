// Parses and writes JSON with Boost.JSON. Input is checked (UTF-8, depth, no
// trailing text), and errors are statuses. Output has numbers in short form
// (0.1, not 1E-1), so that it is readable.
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

// No request or configuration nests deeper than this.
inline constexpr int kMaxJsonDepth = 32;

// True if `text` is well-formed UTF-8 (no surrogates, no overlong forms).
bool IsUtf8(std::string_view text);

// Checks that `text` is well-formed UTF-8.
// Errors: kInvalidArgument naming the first malformed byte.
absl::Status CheckUtf8(std::string_view text);

// Parses one value.
// Errors: kInvalidArgument naming the fault and its byte.
absl::StatusOr<json::value> ParseJson(std::string_view text);

// Parses JSON written by Python. The numbers NaN, Infinity and -Infinity, which
// JSON lacks, become strings of these names, so that a reader that expects a
// number rejects them by name.
absl::StatusOr<json::value> ParsePythonJson(std::string_view text);

// Returns the value on one line, with spaces only after ',' and ':'. Floats
// have the fewest digits that parse to the same value; NaN and infinities,
// which JSON lacks, become null.
std::string WriteJson(const json::value& value);

// Append a value to `out`, as WriteJson does: a string in quotes, or a number.
// A float is written like JsonFloat().
void AppendJson(std::string_view text, std::string* out);
void AppendJson(double value, std::string* out);
void AppendJson(float value, std::string* out);
void AppendJson(int64_t value, std::string* out);

// Returns `text`, shortened for an error message: at most its first 60 bytes,
// up to a whole character, and "...".
// REQUIRES: well-formed UTF-8.
std::string Shown(std::string_view text);
// Returns WriteJson() of a value, shortened; "nothing" if `value` is nullptr.
std::string Shown(const json::value* value);
// Returns `text` as a JSON string in quotes, shortened.
std::string ShownInQuotes(std::string_view text);

// Returns a JSON number that is written with as few digits as the float32 needs
// (-0.37952831, not -0.37952831387519836).
json::value JsonFloat(float value);

}  // namespace espalier
