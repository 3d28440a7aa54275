// What a call is answered with, as JSON: whole. Streams: openai/chunk_writer.h.
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

// What the answer to a call begins with, all events of a stream, too.
struct AnswerHead {
  std::string id;       // "cmpl-..."; of the tokens' API the request's own id
  int64_t created = 0;  // seconds since 1970
  std::string model;    // as the server calls it
};

// The id of an answer: what is before `request_id` says which API it is of.
std::string AnswerId(Api api, const std::string& request_id);

// A prompt of a call.
struct PromptParts {
  std::vector<TokenId> tokens;
  // What the texts go on from, for echo alone: the prompt, as the call has it
  // or of tokens their text; of an encoder-decoder the decoder prompt.
  std::string text = {};
  // Where texts begin (request/text_begin.h); unset: by themselves.
  std::optional<IncrementalDetokenizer> text_begin = {};
  // As ResolveParams gives them: stops, and what is to be reported.
  GenerationParams params = {};
  // Also of ResolveParams: what the call left open.
  NamedValues defaults = {};
};

// Where the texts of a prompt begin.
IncrementalDetokenizer TextBeginOf(const PromptParts& prompt,
                                   const Tokenizer& tokenizer);

// The answer to one.
struct PromptAnswer {
  Result result;
  std::vector<std::string> texts;  // [hypotheses]; empty without a tokenizer
};

// The choices of a prompt stand together: that of index prompt * n + i is its
// i-th sample, or of beams and of best_of its i-th best. `tokenizer` may be
// null; then log-probabilities name tokens "token_id:7".
std::string WriteAnswer(const Call& call, const AnswerHead& head,
                        std::span<const PromptParts> prompts,
                        std::span<const PromptAnswer> answers,
                        const Tokenizer* tokenizer);

}  // namespace espalier::openai
