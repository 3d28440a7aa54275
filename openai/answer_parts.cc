#include "openai/answer_parts.h"

#include <algorithm>
#include <optional>

#include "base/status.h"
#include "request/decoder_prompt.h"
#include "text/tokenizer/incremental_detokenizer.h"

namespace espalier::openai {
namespace {

std::string_view ObjectOf(Api api, bool is_chunk) {
  if (api == Api::kCompletions) return "text_completion";
  return is_chunk ? "chat.completion.chunk" : "chat.completion";
}

// That of all tokens, whatever stops there are.
std::string WholeText(std::span<const TokenId> tokens,
                      const Tokenizer& tokenizer,
                      const GenerationParams& params) {
  IncrementalDetokenizer detokenizer(tokenizer, OpensText(tokenizer, params));
  std::string text;
  for (const TokenId token : tokens) detokenizer.Feed(token, &text);
  detokenizer.Finish(&text);
  return text;
}

// The stop string that ended `text`, whose tokens spell `whole`; empty if it
// cannot be told.
std::string_view StopStringOf(std::string_view text, std::string_view whole,
                              const GenerationParams& params) {
  std::string_view found;
  for (const std::string_view stop : params.stop) {
    const bool is_it = params.include_stop
                           ? text.ends_with(stop)
                           : whole.size() >= text.size() &&
                                 whole.substr(text.size()).starts_with(stop);
    if (is_it && (found.empty() || stop.size() < found.size())) found = stop;
  }
  return found;
}

}  // namespace

void AppendIds(std::span<const TokenId> tokens, std::string* out) {
  AppendList(
      tokens, [&](TokenId token) { AppendJson(int64_t{token}, out); }, out);
}

void AppendHead(Api api, const AnswerHead& head, bool is_chunk,
                std::string* out) {
  if (api == Api::kTokens) {
    AppendField(R"({"request_id":)", std::string_view(head.id), out);
  } else {
    AppendField(R"({"id":)", std::string_view(head.id), out);
    AppendField(R"(,"object":)", ObjectOf(api, is_chunk), out);
  }
  AppendField(R"(,"created":)", head.created, out);
  AppendField(R"(,"model":)", std::string_view(head.model), out);
}

void AppendWarnings(std::span<const std::string> warnings, std::string* out) {
  if (warnings.empty()) return;
  *out += R"(,"warnings":)";
  AppendList(
      warnings,
      [&](const std::string& warning) {
        AppendJson(std::string_view(warning), out);
      },
      out);
}

void AppendUsage(const TokenCounts& counts, std::string* out) {
  AppendField(R"({"prompt_tokens":)", counts.prompt, out);
  AppendField(R"(,"completion_tokens":)", counts.generated, out);
  AppendField(R"(,"total_tokens":)", counts.prompt + counts.generated, out);
  AppendField(R"(,"prompt_tokens_details":{"cached_tokens":)", counts.cached,
              out);
  *out += "}}";
}

void AppendFinishReason(FinishReason reason, std::string* out,
                        bool has_tool_calls) {
  const bool is_end =
      reason == FinishReason::kEos || reason == FinishReason::kStop;
  const std::string_view stop = has_tool_calls ? "tool_calls" : "stop";
  AppendJson(is_end ? stop : NameOf(reason), out);
}

void AppendStopReason(const Hypothesis& hypothesis, std::string_view text,
                      const GenerationParams& params,
                      const Tokenizer* tokenizer, std::string* out) {
  if (hypothesis.finish_reason != FinishReason::kStop) {
    *out += "null";
    return;
  }
  std::string_view stop;
  std::string whole;
  if (tokenizer != nullptr && !params.stop.empty()) {
    whole = WholeText(hypothesis.tokens, *tokenizer, params);
    stop = StopStringOf(text, whole, params);
  }
  const int64_t last =
      hypothesis.tokens.empty() ? -1 : int64_t{hypothesis.tokens.back()};
  if (std::ranges::find(params.stop_token_ids, last) !=
      params.stop_token_ids.end()) {
    AppendJson(last, out);
  } else if (!stop.empty()) {
    AppendJson(stop, out);
  } else {
    *out += "null";
  }
}

void AppendScores(const Hypothesis& hypothesis, std::string* out) {
  AppendField(R"(,"score":)", hypothesis.score, out);
  AppendField(R"(,"cum_log_prob":)", hypothesis.cum_log_prob, out);
}

void AppendRun(const PromptParts& prompt, const Result& result,
               std::string* out) {
  const Usage& usage = result.usage;
  AppendField(R"({"steps":)", usage.num_steps, out);
  if (result.seed) *out += R"(,"seed":)" + std::to_string(*result.seed);
  if (result.deadline_passed) *out += R"(,"deadline_passed":true)";
  if (result.threshold) {
    AppendField(R"(,"threshold":)", *result.threshold, out);
  }
  if (usage.num_drafted_tokens > 0) {
    AppendField(R"(,"drafted_tokens":)", usage.num_drafted_tokens, out);
    AppendField(R"(,"accepted_tokens":)", usage.num_accepted_tokens, out);
  }
  if (!prompt.defaults.empty()) {
    *out += R"(,"defaults":)";
    char before = '{';
    for (const auto& [name, value] : prompt.defaults) {
      *out += before;
      before = ',';
      AppendJson(std::string_view(name), out);
      *out += ":" + value;
    }
    *out += '}';
  }
  *out += '}';
}

void AppendRuns(std::span<const PromptParts> prompts,
                std::span<const PromptAnswer> answers, std::string* out) {
  *out += R"(,"espalier":)";
  if (prompts.size() == 1) {
    return AppendRun(prompts[0], answers[0].result, out);
  }
  *out += R"({"prompts":)";
  size_t i = 0;
  AppendList(
      prompts,
      [&](const PromptParts& prompt) {
        AppendRun(prompt, answers[i++].result, out);
      },
      out);
  *out += '}';
}

int64_t ChoicesPerPrompt(std::span<const PromptParts> prompts) {
  int64_t most = 1;
  for (const PromptParts& prompt : prompts) {
    most = std::max(most, prompt.params.num_return_sequences);
  }
  return most;
}

}  // namespace espalier::openai
