// Fields of POST /v1/responses that are shaped otherwise than those of a chat,
// read into what a chat has.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "base/json_scan.h"
#include "openai/call.h"
#include "openai/limits.h"

namespace espalier::openai {

struct CallDraft;  // openai/call_draft.h

// "input": a text, which the user says, or a list of messages, whose parts are
// of type input_text and output_text, and whose role is user, assistant, system
// or developer; calls of functions, and their outputs. An item of another type
// is refused. Each item becomes a message.
// Errors: kInvalidArgument naming the field ("input[0].type") and the value.
absl::Status ReadInput(std::string_view name, const JsonText& json,
                       const Limits& limits, CallDraft* draft);

// "text": {"format": {"type": "text"}, "verbosity": "medium"}; another format
// is refused.
absl::Status ReadTextOptions(std::string_view name, const JsonText& json,
                             const Limits& limits, CallDraft* draft);

// "reasoning": its "effort" is an argument of the chat template.
absl::Status ReadReasoning(std::string_view name, const JsonText& json,
                           const Limits& limits, CallDraft* draft);

// Puts the call's instructions in front of its messages, as the system's, and
// joins calls of functions with the message of the assistant before them, as a
// chat has them.
void JoinMessages(Call* call);

}  // namespace espalier::openai
