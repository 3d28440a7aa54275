// The whole JSON answer to a call. openai/chunk_writer.h writes streams.
//
// Thread safety: values; functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "openai/call.h"
#include "request/generation_defaults.h"
#include "request/request.h"
#include "text/tokenizer/incremental_detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::openai {

// First members of the answer to a call, and of every event of a stream.
struct AnswerHead {
  std::string id;       // "cmpl-..."; of the tokens' API the request's own id
  int64_t created = 0;  // seconds since 1970
  std::string model;    // as the server calls it
};

// Returns the id of an answer: `request_id` with the API's prefix.
std::string AnswerId(Api api, const std::string& request_id);

// A prompt of a call.
struct PromptParts {
  std::vector<TokenId> tokens;
  // Text that the output continues, used by echo only: the prompt as the call
  // gave it, or the text of its tokens; with an encoder the decoder prompt.
  std::string text = {};
  // Start of the output's text (request/text_begin.h); unset: no context.
  std::optional<IncrementalDetokenizer> text_begin = {};
  // As resolved by ResolveParams: stops, and the reports that were requested.
  GenerationParams params = {};
  // Params that the call left open, from ResolveParams.
  NamedValues defaults = {};
};

// Returns the start of the texts of a prompt.
IncrementalDetokenizer TextBeginOf(const PromptParts& prompt,
                                   const Tokenizer& tokenizer);

// The answer to one prompt.
struct PromptAnswer {
  Result result;
  std::vector<std::string> texts;  // [hypotheses]; empty without a tokenizer
};

// Writes the answer. The choices of a prompt are adjacent: index prompt * n + i
// is its i-th sample, or with beams or best_of its i-th best. `tokenizer` may
// be null; then log-probabilities name tokens "token_id:7".
std::string WriteAnswer(const Call& call, const AnswerHead& head,
                        std::span<const PromptParts> prompts,
                        std::span<const PromptAnswer> answers,
                        const Tokenizer* tokenizer);

}  // namespace espalier::openai
