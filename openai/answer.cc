#include "openai/answer.h"

#include <utility>

#include "openai/answer_parts.h"
#include "openai/choice.h"
#include "openai/response.h"

namespace espalier::openai {
namespace {

TokenCounts CountsOf(const Call& call, std::span<const PromptAnswer> answers) {
  TokenCounts counts;
  for (const PromptAnswer& answer : answers) {
    const Usage& usage = answer.result.usage;
    counts.prompt += usage.num_prompt_tokens;
    counts.cached += usage.num_cached_tokens;
    if (!call.prompt_only) counts.generated += usage.num_generated_tokens;
  }
  return counts;
}

void AppendChoices(const Call& call, const PromptParts& prompt,
                   const PromptAnswer& answer, int64_t first_index,
                   const ChoiceWriter& writer, std::string* out) {
  const std::vector<size_t> order =
      OrderOfChoices(prompt, answer.result.hypotheses);
  for (size_t i = 0; i < order.size(); ++i) {
    const Hypothesis& hypothesis = answer.result.hypotheses[order[i]];
    const std::string_view own =
        answer.texts.empty() ? std::string_view() : answer.texts[order[i]];
    std::string text = call.echo ? prompt.text : "";
    if (!call.prompt_only) text += own;
    ToolCallText found;
    if (auto tool_calls = writer.ToolCallsOf(prompt)) {
      tool_calls->Feed(hypothesis.tokens, own, &found);
      tool_calls->Finish(&found);
      writer.DropUnwanted(&found);
      text = std::move(found.content);
    }
    if (i > 0) *out += ',';
    writer.AppendWhole(
        {.index = first_index + static_cast<int64_t>(i),
         .text = text,
         .tool_calls = found.calls,
         .has_tool_calls = !found.calls.empty(),
         .tokens =
             call.prompt_only ? std::span<const TokenId>() : hypothesis.tokens,
         .log_probs = writer.LogProbsOf(prompt, answer.result, hypothesis, own),
         .end = &hypothesis,
         .prompt = &prompt},
        out);
    if (call.api == Api::kCompletions && i == 0) {
      writer.AppendPromptIds(prompt, out);
      writer.AppendPromptLogProbs(answer.result, out);
    }
    *out += '}';
  }
}

}  // namespace

std::string AnswerId(Api api, const std::string& request_id) {
  switch (api) {
    case Api::kCompletions:
      return "cmpl-" + request_id;
    case Api::kChat:
      return "chatcmpl-" + request_id;
    case Api::kResponses:
      return "resp_" + request_id;
    case Api::kTokens:
      return request_id;
  }
  return request_id;
}

IncrementalDetokenizer TextBeginOf(const PromptParts& prompt,
                                   const Tokenizer& tokenizer) {
  return prompt.text_begin.value_or(IncrementalDetokenizer(tokenizer));
}

std::string WriteAnswer(const Call& call, const AnswerHead& head,
                        std::span<const PromptParts> prompts,
                        std::span<const PromptAnswer> answers,
                        const Tokenizer* tokenizer) {
  if (call.api == Api::kResponses) {
    return WriteResponse(call, head, prompts[0], answers[0]);
  }
  const ChoiceWriter writer(call, head, tokenizer);
  const int64_t stride = ChoicesPerPrompt(prompts);
  std::string json;
  AppendHead(call.api, head, /*is_chunk=*/false, &json);
  json += R"(,"choices":[)";
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (i > 0) json += ',';
    AppendChoices(call, prompts[i], answers[i],
                  static_cast<int64_t>(i) * stride, writer, &json);
  }
  json += ']';
  if (call.api != Api::kCompletions) {
    writer.AppendPromptIds(prompts[0], &json);
    writer.AppendPromptLogProbs(answers[0].result, &json);
  }
  json += R"(,"usage":)";
  AppendUsage(CountsOf(call, answers), &json);
  AppendWarnings(call.warnings, &json);
  AppendRuns(prompts, answers, &json);
  json += '}';
  return json;
}

}  // namespace espalier::openai
