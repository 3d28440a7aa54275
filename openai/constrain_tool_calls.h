// Calls of tools that are enforced: the param `constraint` of a chat whose
// tool_choice forces or restricts calls, or which has a strict function.
//
//   tool_choice "required"     calls alone, one or more
//   tool_choice of a function  one call of it
//   "auto", with a function that has "strict": true, or with allowed_tools
//                              text, and then calls: those of strict functions
//                              have arguments of their schemas, others objects
// "auto", with a schema as     JSON of that schema, or calls, where these have
// response_format              marks, which tell them from JSON
//
// Thread safety: functions without state.
#pragma once

#include "absl/status/status.h"
#include "openai/call.h"

namespace espalier::openai {

// Sets the constraint, after `call->tool_calls.format` is set. A
// response_format gives way where the answer must be a call. Where it need not
// be one, no constraint is set if another field restricts the tokens, nor, with
// a warning, if the model's format of calls is not known.
// Errors: kInvalidArgument naming the field: no format of calls is known,
// another field says what the text is, or two tools have one name.
absl::Status ConstrainToolCalls(Call* call);

}  // namespace espalier::openai
