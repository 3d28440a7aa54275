// POST /tokenize and /detokenize, as vLLM has them: text to token ids and back.
//
// Thread safety: values; functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "openai/call.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::openai {

// {"prompt"} or {"messages"}, "return_token_strs", and all that calls that
// generate have to make a prompt of these, decoder prompts included. What else
// those have says nothing here: their bodies may be sent as they are.
struct TokenizeCall {
  // Of Api::kCompletions with one prompt, a text, or of Api::kChat.
  Call call = {};
  bool return_token_strs = false;
};

// Errors: kInvalidArgument naming the byte or the field, and the value.
absl::StatusOr<TokenizeCall> ReadTokenizeCall(std::string_view body,
                                              const Limits& limits = {});

// What a call that generates would be fed.
struct Tokenized {
  std::vector<TokenId> tokens = {};
  // All that the decoder with an encoder begins with; unset without one.
  std::optional<std::vector<TokenId>> decoder_prompt = {};
};

// {"count", "max_model_len", "tokens"}, of a model with an encoder
// "decoder_prompt_tokens", and the strings of these if asked for.
std::string WriteTokenized(const TokenizeCall& call, const Tokenized& tokenized,
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
