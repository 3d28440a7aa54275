// The fields of calls that restrict the text of the answer: vLLM's
// structured_outputs, and SGLang's regex.
//
//   "structured_outputs": {"regex": "[0-9]+"}
//   "structured_outputs": {"choice": ["yes", "no"]}
//   "regex": "[0-9]+"
//
// Each sets the param `constraint`. Other kinds of structured outputs are
// refused by name.
//
// Thread safety: functions without state.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "base/json_scan.h"
#include "openai/limits.h"

namespace espalier::openai {

struct CallDraft;  // openai/call_draft.h

// Errors: kInvalidArgument naming the field and the value, also if two fields
// set the constraint.
absl::Status ReadStructuredOutputs(std::string_view name, const JsonText& json,
                                   const Limits& limits, CallDraft* draft);
absl::Status ReadRegex(std::string_view name, const JsonText& json,
                       const Limits& limits, CallDraft* draft);

// Refuses vLLM's older names of the above, with the new one.
absl::Status RefuseGuided(std::string_view name, const JsonText& json,
                          const Limits& limits, CallDraft* draft);

}  // namespace espalier::openai
