// POST /tokenize and /detokenize, as vLLM has them: text to token ids and back.
//
// Thread safety: values; functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "openai/call.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer.h"

namespace espalier::openai {

// {"prompt"} or {"messages"}, "add_special_tokens", "return_token_strs".
struct TokenizeCall {
  std::string model = {};
  // One of the two.
  std::optional<std::string> prompt = {};
  std::optional<ChatInputs> chat = {};
  // Whether special tokens are added: the model's prompt template to a prompt,
  // BOS to a chat. Unset: true for a prompt, false for a chat.
  std::optional<bool> add_special_tokens = {};
  bool return_token_strs = false;
  std::vector<std::string> warnings = {};
};

// Errors: kInvalidArgument naming the byte or the field, and the value.
absl::StatusOr<TokenizeCall> ReadTokenizeCall(std::string_view body,
                                              const Limits& limits = {});

// {"count", "max_model_len", "tokens"}, and "token_strs" if asked for.
std::string WriteTokenized(const TokenizeCall& call,
                           std::span<const TokenId> tokens,
                           int64_t max_model_len, const Tokenizer& tokenizer);

// {"tokens"}.
struct DetokenizeCall {
  std::string model = {};
  std::vector<TokenId> tokens = {};
  std::vector<std::string> warnings = {};
};

// Errors: kInvalidArgument naming the byte or the field, and the value.
absl::StatusOr<DetokenizeCall> ReadDetokenizeCall(std::string_view body,
                                                  const Limits& limits = {});

// {"prompt"}.
std::string WriteDetokenized(const DetokenizeCall& call,
                             const std::string& text);

}  // namespace espalier::openai
