// The fields of calls that restrict the text of the answer: response_format,
// vLLM's structured_outputs, SGLang's regex and ebnf, llama.cpp's grammar,
// and json_schema as SGLang and llama.cpp have it.
//
//   "response_format": {"type": "json_object"}
//   "response_format": {"type": "json_schema", "json_schema": {"name": "a",
//                       "schema": {...}}}
//   "structured_outputs": {"json": {...}}
//   "structured_outputs": {"regex": "[0-9]+"}
//   "structured_outputs": {"choice": ["yes", "no"]}
//   "structured_outputs": {"grammar": "root ::= [0-9]+"}
//   "regex": "[0-9]+"
//   "grammar": "root ::= [0-9]+"
//   "json_schema": {...}
//
// Each sets the param `constraint`. Other kinds of structured outputs are
// refused by name.
//
// Thread safety: functions without state.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/json_scan.h"
#include "openai/limits.h"

namespace espalier::openai {

struct CallDraft;  // openai/call_draft.h

// Errors: kInvalidArgument naming the field and the value, also if two fields
// set the constraint.
// {"type": "text"} sets none, whatever the server's default is. "strict" is
// read and changes nothing: a schema is always enforced.
absl::Status ReadResponseFormat(std::string_view name, const JsonText& json,
                                const Limits& limits, CallDraft* draft);
absl::Status ReadStructuredOutputs(std::string_view name, const JsonText& json,
                                   const Limits& limits, CallDraft* draft);
absl::Status ReadRegex(std::string_view name, const JsonText& json,
                       const Limits& limits, CallDraft* draft);
absl::Status ReadGrammar(std::string_view name, const JsonText& json,
                         const Limits& limits, CallDraft* draft);
// The value of response_format, or of text.format in /v1/responses, which has
// the members of json_schema itself. `path` is its name, `name` the field's.
absl::Status ReadFormat(std::string_view name, const std::string& path,
                        const JsonText& json, const Limits& limits,
                        CallDraft* draft);
// The schema, or a string that has it.
absl::Status ReadJsonSchema(std::string_view name, const JsonText& json,
                            const Limits& limits, CallDraft* draft);

// Refuses vLLM's older names of the above, with the new one.
absl::Status RefuseGuided(std::string_view name, const JsonText& json,
                          const Limits& limits, CallDraft* draft);

}  // namespace espalier::openai
