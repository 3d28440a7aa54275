// Turns the prompt of a call, a text or a conversation, into tokens, in one way
// for generation and for /tokenize.
//
// Thread safety: functions without state.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "espalier/chat.h"
#include "espalier/generator.h"

namespace espalier::serve {

struct PromptTokensOptions {
  // The model's prompt template, or BOS. Unset: true for a text, false for a
  // conversation.
  std::optional<bool> add_special_tokens = {};
  std::string template_name = {};  // of texts; empty: the model's default
  // A prompt of more tokens is refused.
  int max_tokens = std::numeric_limits<int>::max();
};

// Errors: as Generator::MakePrompt; kInvalidArgument naming the template.
absl::StatusOr<std::vector<TokenId>> TextTokens(
    const std::string& text, const PromptTokensOptions& options,
    const Generator& generator);

// Errors: as Generator::chat_prompts and ChatPrompts::Make.
absl::StatusOr<std::vector<TokenId>> ChatTokens(
    const ChatInputs& chat, const PromptTokensOptions& options,
    const Generator& generator);

}  // namespace espalier::serve
