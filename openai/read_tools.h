// Reads the tools of a chat and its options for tool calls.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "base/json_scan.h"
#include "openai/call.h"
#include "openai/limits.h"

namespace espalier::openai {

struct CallDraft;  // openai/call_draft.h

// [{"type": "function", "function": {"name": N, ...}}, ...], which the chat
// template gets as they are; in /v1/responses [{"type": "function", "name": N,
// ...}, ...], which are made the former.
// Errors: kInvalidArgument naming the member ("tools[0].type") and the value.
absl::Status ReadTools(std::string_view name, const JsonText& json,
                       const Limits& limits, CallDraft* draft);

// Returns the member of a tool that has its function: ".function"; in
// /v1/responses "", for the tool itself.
std::string_view MemberOfFunction(Api api);

// A ToolChoice (openai/tool_choice.h).
// Errors: kInvalidArgument naming the member and the value.
absl::Status ReadToolChoice(std::string_view name, const JsonText& json,
                            const Limits& limits, CallDraft* draft);

// Sets the tools of the call, unless it excludes them.
// Errors: kInvalidArgument naming tool_choice: there are no tools, or it names
// none of them.
absl::Status SettleTools(CallDraft* draft);

}  // namespace espalier::openai
