#include "openai/answer_parts.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/status.h"
#include "request/text_begin.h"
#include "text/text_stream.h"

namespace espalier::openai {
namespace {

std::string_view ObjectOf(Api api, bool is_chunk) {
  if (api == Api::kCompletions) return "text_completion";
  return is_chunk ? "chat.completion.chunk" : "chat.completion";
}

// The stop string that ended a text; empty if none did.
std::string StopStringOf(std::span<const TokenId> tokens,
                         const PromptParts& prompt,
                         const Tokenizer& tokenizer) {
  const GenerationParams& params = prompt.params;
  if (params.stop.empty()) return {};
  const StopStrings stops = MakeStops(params.stop, tokenizer);
  TextStream stream(TextBeginOf(prompt, tokenizer), stops,
                    TextOptionsOf(params));
  std::optional<int> stop_idx;
  for (const TokenId token : tokens) {
    stop_idx = stream.Feed(token).stop_idx;
    if (stop_idx) break;
  }
  if (!stop_idx) stop_idx = stream.Finish().stop_idx;
  return stop_idx ? stops.stops()[*stop_idx] : std::string();
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

void AppendStopReason(const Hypothesis& hypothesis, const PromptParts& prompt,
                      const Tokenizer* tokenizer, std::string* out) {
  if (hypothesis.finish_reason != FinishReason::kStop) {
    *out += "null";
    return;
  }
  const std::vector<int64_t>& stop_ids = prompt.params.stop_token_ids;
  const int64_t last =
      hypothesis.tokens.empty() ? -1 : int64_t{hypothesis.tokens.back()};
  if (std::ranges::find(stop_ids, last) != stop_ids.end()) {
    AppendJson(last, out);
    return;
  }
  std::string stop;
  if (tokenizer != nullptr) {
    stop = StopStringOf(hypothesis.tokens, prompt, *tokenizer);
  }
  if (stop.empty()) {
    *out += "null";
  } else {
    AppendJson(std::string_view(stop), out);
  }
}

FinishReason ReasonOf(const Call& call, const Hypothesis& hypothesis,
                      const PromptParts& prompt, const Tokenizer* tokenizer,
                      bool has_tool_calls) {
  const FinishReason reason = hypothesis.finish_reason;
  const bool may_be_cut = call.calls_may_be_text && !has_tool_calls &&
                          reason == FinishReason::kStop;
  if (!may_be_cut) return reason;
  std::string stop_reason;
  AppendStopReason(hypothesis, prompt, tokenizer, &stop_reason);
  return stop_reason == "null" ? FinishReason::kLength : reason;
}

void AppendScores(const Hypothesis& hypothesis, std::string* out) {
  AppendField(R"(,"score":)", hypothesis.score, out);
  AppendField(R"(,"cum_log_prob":)", hypothesis.cum_log_prob, out);
  if (hypothesis.legal_log_mass) {
    AppendField(R"(,"legal_log_mass":)", *hypothesis.legal_log_mass, out);
    *out += R"(,"legal_log_masses":)";
    AppendList(
        hypothesis.logprobs,
        [&](const TokenLogProb& token) {
          AppendJson(*token.legal_log_mass, out);
        },
        out);
  }
  if (!hypothesis.beam_indices.empty()) {
    *out += R"(,"beam_indices":)";
    AppendList(
        hypothesis.beam_indices,
        [&](int index) { AppendJson(int64_t{index}, out); }, out);
  }
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
  if (result.weights_version > 0) {
    AppendField(R"(,"weights_version":)", result.weights_version, out);
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

std::vector<size_t> OrderOfChoices(const PromptParts& prompt,
                                   std::span<const Hypothesis> hypotheses) {
  const GenerationParams& params = prompt.params;
  std::vector<size_t> order(hypotheses.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const int64_t n = params.num_return_sequences;
  if (IsBeamSearch(params) || params.best_of.value_or(n) > n) return order;
  std::ranges::stable_sort(order, {},
                           [&](size_t idx) { return hypotheses[idx].sample; });
  return order;
}

int64_t ChoicesPerPrompt(std::span<const PromptParts> prompts) {
  int64_t most = 1;
  for (const PromptParts& prompt : prompts) {
    most = std::max(most, prompt.params.num_return_sequences);
  }
  return most;
}

}  // namespace espalier::openai
