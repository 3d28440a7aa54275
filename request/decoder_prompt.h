// The decoder prompt: how the output begins, given by the request
// (GenerationParams::decoder_prompt_tokens, or decoder_prompt as text): a
// translation that a user has begun, or a token that names a language. A
// decoder-only model reads it after the prompt and its template
// (AppendDecoderPrompt). The decoder of an encoder-decoder reads it after what
// it begins with anyway, decoder_start_token_id, and what is generated follows:
//
//   prompt          "Where is the station?"      read by the encoder
//   decoder         decoder_start | decoder prompt | generated
//                   </s>          | Où se trouve   | la gare ?
//
// It is what transformers calls decoder_input_ids, CTranslate2 a target_prefix
// and vLLM a decoder_prompt. As in transformers the decoder's start is put in
// front unless the tokens begin with it; scores and lengths are those of what
// is generated alone, and penalties see all that the decoder has read.
//
// Speech models are the exception, in transformers, too: the tokens are all
// that the decoder begins with, since Whisper's may begin with earlier text
// (speech/whisper_tokens.h).
//
// A text becomes the tokens that the model would write it with
// (Tokenizer::EncodeOutput). Where the model's outputs begin with a forced
// token (forced_bos_token_id, of the request or of its generation_config.json),
// that stands in front of the text, and is not forced any more.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/model_description.h"
#include "request/generation_defaults.h"
#include "request/generation_params.h"
#include "request/request.h"

namespace espalier {

class Tokenizer;

// Encodes `decoder_prompt` into decoder_prompt_tokens and clears it. If the
// model's outputs begin with a forced token, puts it in front and returns the
// forced_bos_token_id of `defaults` as taken. Does not check the tokens
// (ValidateParams does).
// Errors: kInvalidArgument naming the field and the reason: `tokenizer` is
// null, both fields are given, or the text is not UTF-8, has no tokens or
// exceeds the decoder's context. `*params` is unchanged on error.
absl::StatusOr<NamedValues> ResolveDecoderPrompt(
    const Tokenizer* tokenizer, const ModelDescription& model,
    const GenerationDefaults& defaults, GenerationParams* params);

// Checks the tokens that the decoder begins with.
// Errors: kInvalidArgument naming the field and the value.
absl::Status ValidateDecoderPrompt(const ModelDescription& model,
                                   const GenerationParams& params);

// Moves decoder_prompt_tokens to the end of the prompt; texts continue from
// there. Does nothing if the model has an encoder.
// Errors: as ValidateDecoderPrompt; the request is unchanged on error.
absl::Status AppendDecoderPrompt(const ModelDescription& model,
                                 Request* request);

// Returns all tokens that the decoder of a request begins with: the model's
// EncoderDescription::decoder_prompt, then the request's own.
std::vector<TokenId> DecoderPromptOf(const ModelDescription& model,
                                     const GenerationParams& params);

// Returns the part of `decoder_prompt` that the request gave: everything after
// the model's own start, which has no text.
std::span<const TokenId> AfterStart(const ModelDescription& model,
                                    std::span<const TokenId> decoder_prompt);

// Returns the number of tokens of the model's max_context that precede the
// first generated one: the decoder's, and the prompt's if there is no encoder.
int64_t NumContextTokens(const ModelDescription& model,
                         int64_t num_prompt_tokens,
                         const GenerationParams& params);

// Returns the text that decoder_prompt_tokens spell; empty if there are none.
// Errors: as Tokenizer::Decode.
absl::StatusOr<std::string> DecoderPromptText(const Tokenizer& tokenizer,
                                              std::span<const int64_t> tokens);

// Makes `token` the first one of the output, unless the request itself says how
// it begins: forced_bos_token_id, or, with a constraint or allowed_sequences,
// whose texts begin after it, decoder_prompt_tokens. Returns the name of the
// field that it sets; empty if none.
std::string_view ForceFirstOutput(const ModelDescription& model,
                                  std::optional<TokenId> token,
                                  GenerationParams* params);

}  // namespace espalier
