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

// Appends a list: one call of `append` per item, with commas between.
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

// Appends `begin` and a value: AppendField(R"("index":)", i, &out).
template <typename T>
void AppendField(std::string_view begin, const T& value, std::string* out) {
  *out += begin;
  AppendJson(value, out);
}

void AppendIds(std::span<const TokenId> tokens, std::string* out);

// "id", "object", "created", "model"; the opening brace included.
void AppendHead(Api api, const AnswerHead& head, bool is_chunk,
                std::string* out);

// Appends ,"warnings":[...]; nothing if there are none.
void AppendWarnings(std::span<const std::string> warnings, std::string* out);

struct TokenCounts {
  int64_t prompt = 0;
  int64_t generated = 0;
  int64_t cached = 0;  // prompt tokens found in the prefix cache
};
// {"prompt_tokens", "completion_tokens", "total_tokens",
//  "prompt_tokens_details": {"cached_tokens"}}.
void AppendUsage(const TokenCounts& counts, std::string* out);

// "stop", "length" or "deadline", in quotes; of a choice that stopped with
// calls of tools "tool_calls".
void AppendFinishReason(FinishReason reason, std::string* out,
                        bool has_tool_calls = false);

// Why a choice ended, as its call sees it: text beside enforced calls of tools
// that nothing but the limit ended has kLength. Calls are whole where the limit
// ends them.
FinishReason ReasonOf(const Call& call, const Hypothesis& hypothesis,
                      const PromptParts& prompt, const Tokenizer* tokenizer,
                      bool has_tool_calls);

// Which stop ended a text: the string or the id, or null.
void AppendStopReason(const Hypothesis& hypothesis, const PromptParts& prompt,
                      const Tokenizer* tokenizer, std::string* out);

// ,"score":...,"cum_log_prob":..., and if it has one "legal_log_mass" with
// "legal_log_masses", those of its tokens, and "beam_indices".
void AppendScores(const Hypothesis& hypothesis, std::string* out);

// Appends statistics of a prompt's run: {"steps", "seed", "threshold",
// "drafted_tokens", "accepted_tokens", "defaults"}.
void AppendRun(const PromptParts& prompt, const Result& result,
               std::string* out);
// Appends ,"espalier":...; for several prompts {"prompts": [...]}.
void AppendRuns(std::span<const PromptParts> prompts,
                std::span<const PromptAnswer> answers, std::string* out);

// Returns the indices of a prompt's hypotheses in the order of its choices:
// samples by number; beams, and the samples that best_of keeps, best first.
std::vector<size_t> OrderOfChoices(const PromptParts& prompt,
                                   std::span<const Hypothesis> hypotheses);

// Returns the distance between the first choices of two adjacent prompts.
int64_t ChoicesPerPrompt(std::span<const PromptParts> prompts);

}  // namespace espalier::openai
