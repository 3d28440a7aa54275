// Readers of the inputs of calls: prompts and messages.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/json_scan.h"
#include "openai/call.h"
#include "openai/limits.h"
#include "text/chat/chat_template.h"

namespace espalier::openai {

// A text, a list of texts, token ids, or a list of lists of them. Sets
// `prompts` and `prompts_are_list` of `*call`.
// Errors: kInvalidArgument naming the field and the value.
absl::Status ReadPrompts(std::string_view name, const JsonText& json,
                         const Limits& limits, Call* call);

// A text or token ids: one prompt.
// Errors: as ReadPrompts.
absl::Status ReadPrompt(std::string_view name, const JsonText& json,
                        const Limits& limits, TextOrTokens* prompt);

// A list of texts, or of lists of token ids.
// Errors: as ReadPrompts.
absl::Status ReadPromptList(std::string_view name, const JsonText& json,
                            const Limits& limits,
                            std::vector<TextOrTokens>* prompts);

// Token ids, at least one.
absl::Status ReadTokens(std::string_view name, const JsonText& json,
                        const Limits& limits, std::vector<TokenId>* tokens);

// A conversation: objects with a "role". A "content" that is a list of texts
// becomes one text, line after line.
absl::Status ReadMessages(std::string_view name, const JsonText& json,
                          const Limits& limits,
                          std::optional<ChatInputs>* chat);

// Reads a name of something.
// Errors: kInvalidArgument naming the field, for another value than a string
// and for one of more than max_name_bytes.
absl::Status ReadName(std::string_view name, const JsonText& json,
                      const Limits& limits, std::string* out);

}  // namespace espalier::openai
