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

// {"prompt"} or {"messages"}, "return_token_strs", and every field that affects
// how a generating call makes its prompt, decoder prompts included. The other
// fields of such calls are ignored, so that their bodies can be sent unchanged.
struct TokenizeCall {
  // Api::kCompletions with one text prompt, or Api::kChat.
  Call call = {};
  bool return_token_strs = false;
};

// Errors: kInvalidArgument naming the byte or the field, and the value.
absl::StatusOr<TokenizeCall> ReadTokenizeCall(std::string_view body,
                                              const Limits& limits = {});

// Input tokens of the generating call.
struct Tokenized {
  std::vector<TokenId> tokens = {};
  // The whole decoder prompt of an encoder-decoder; unset without an encoder.
  std::optional<std::vector<TokenId>> decoder_prompt = {};
};

// Writes {"count", "max_model_len", "tokens"}, with an encoder
// "decoder_prompt_tokens", and the token strings if requested.
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
