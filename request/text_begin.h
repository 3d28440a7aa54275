// The point at which the text of generated tokens begins. Invariant: the text
// before it, joined with the generated text, is the text of all tokens
// (Tokenizer::Decode).
//
//   a prompt that is continued     after the prompt's tokens
//   an encoder-decoder             after the decoder prompt
//   an answer (a chat's, or that   by itself, as a text of its own, or after
//   of a prompt template)          what it is given to begin with
//
// So a completion begins with the space that divides it from its prompt, and
// with the character whose first bytes the prompt has.
//
// Thread safety: functions without state.
#pragma once

#include <span>
#include <string>

#include "base/ids.h"
#include "base/model_description.h"
#include "request/generation_params.h"
#include "request/request.h"
#include "text/text_stream.h"
#include "text/tokenizer/incremental_detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// Begins after `context`, or independently if that is empty.
IncrementalDetokenizer TextBeginAfter(const Tokenizer& tokenizer,
                                      const GenerationParams& params,
                                      std::span<const TokenId> context);

// Returns the tokens that the texts of `request` continue if the model has no
// encoder.
std::span<const TokenId> ContinuedTokens(const Request& request);

// Returns the begin for a request as it is submitted to an engine of `model`.
IncrementalDetokenizer TextBegin(const Tokenizer& tokenizer,
                                 const ModelDescription& model,
                                 const Request& request);

// Returns the options that decide where stop strings cut the texts.
TextOptions TextOptionsOf(const GenerationParams& params);

// Returns the text of `context` before its continuation: without bytes that a
// further token may complete to a character, and without spaces that are
// dropped at the end of a text.
std::string TextBefore(const Tokenizer& tokenizer,
                       const GenerationParams& params,
                       std::span<const TokenId> context);

}  // namespace espalier
