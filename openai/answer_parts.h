// The parts that whole answers and events of a stream are written from. Each
// function appends JSON to `*out`, without spaces.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "openai/answer.h"
#include "openai/call.h"
#include "request/request.h"

namespace espalier::openai {

// A list: what `append` appends for each item, with commas between.
template <typename Items, typename AppendItem>
void AppendList(const Items& items, const AppendItem& append,
                std::string* out) {
  *out += '[';
  bool is_first = true;
  for (const auto& item : items) {
    if (!is_first) *out += ',';
    is_first = false;
    append(item);
  }
  *out += ']';
}

// `begin` and a value: AppendField(R"("index":)", i, &out).
template <typename T>
void AppendField(std::string_view begin, const T& value, std::string* out) {
  *out += begin;
  AppendJson(value, out);
}

void AppendIds(std::span<const TokenId> tokens, std::string* out);

// "id", "object", "created", "model"; the opening brace included.
void AppendHead(Api api, const AnswerHead& head, bool is_chunk,
                std::string* out);

// After what is there: ,"warnings":[...]. Nothing if there are none.
void AppendWarnings(std::span<const std::string> warnings, std::string* out);

struct TokenCounts {
  int64_t prompt = 0;
  int64_t generated = 0;
  int64_t cached = 0;  // of the prompt's
};
// {"prompt_tokens", "completion_tokens", "total_tokens",
//  "prompt_tokens_details": {"cached_tokens"}}.
void AppendUsage(const TokenCounts& counts, std::string* out);

// "stop", "length" or "deadline", in quotes; of a choice that stopped with
// calls of tools "tool_calls".
void AppendFinishReason(FinishReason reason, std::string* out,
                        bool has_tool_calls = false);

// Which stop ended a text: the string or the id, or null.
void AppendStopReason(const Hypothesis& hypothesis, const PromptParts& prompt,
                      const Tokenizer* tokenizer, std::string* out);

// ,"score":...,"cum_log_prob":...
void AppendScores(const Hypothesis& hypothesis, std::string* out);

// What the run of a prompt says of itself: {"steps", "seed", "threshold",
// "drafted_tokens", "accepted_tokens", "defaults"}.
void AppendRun(const PromptParts& prompt, const Result& result,
               std::string* out);
// ,"espalier":...; of several prompts {"prompts": [...]}.
void AppendRuns(std::span<const PromptParts> prompts,
                std::span<const PromptAnswer> answers, std::string* out);

// The hypotheses of a prompt, as indices, in the order of its choices: samples
// by their numbers; beams, and the best of more samples, best first.
std::vector<size_t> OrderOfChoices(const PromptParts& prompt,
                                   std::span<const Hypothesis> hypotheses);

// How many choices stand between the first ones of two prompts.
int64_t ChoicesPerPrompt(std::span<const PromptParts> prompts);

}  // namespace espalier::openai
