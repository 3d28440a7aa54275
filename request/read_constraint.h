// The field `constraint` of the request format: an object with one kind of
// language,
//
//   {"regex": "[0-9]+"}
//   {"choice": ["yes", "no"]}
//   {"json_schema": {"type": "integer"}, "whitespace": "none"}
//   {"json_schema": {}, "whitespace": "[ \\n]?",
//    "disable_additional_properties": true}
//   {"grammar": "root ::= \"(\" root \")\" | \"x\""}
//   {"tool_calls": {"format": "hermes", "functions": [{"name": "f"}]}}
//   {"items": "songs", "exclude": [[7, 8], "Yesterday"],
//    "exclude_prefixes": [[9]]}
//
// or with {"must_contain": ["Paris", "2026"]}, which may also be alone.
//
// Thread safety: functions without state.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "base/json_scan.h"
#include "request/constraint_params.h"

namespace espalier {

// Sets `*out`. A part that is null is as if it were not there.
// Errors: kInvalidArgument naming the part, as in constraint.regex, and the
// value. The language is compiled later.
absl::Status ReadConstraint(std::string_view field, const JsonText& json,
                            std::optional<ConstraintParams>* out);

// Checks ConstraintParams::whitespace.
// Errors: kInvalidArgument with `field`, the value, and why it is no pattern of
// white space, where in it.
//   wanted  what else the field may be, '"none" or '
absl::Status CheckWhitespace(std::string_view field, std::string_view pattern,
                             std::string_view wanted = "");

}  // namespace espalier
