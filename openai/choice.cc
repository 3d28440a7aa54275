#include "openai/choice.h"

#include <optional>

#include "openai/answer_parts.h"

namespace espalier::openai {

void ChoiceWriter::AppendTokens(const ChoicePart& part,
                                std::string* out) const {
  if (shows_tokens()) {
    *out += R"(,"token_ids":)";
    AppendIds(part.tokens, out);
  }
  *out += R"(,"logprobs":)";
}

void ChoiceWriter::AppendEnd(const ChoicePart& part, std::string* out) const {
  *out += R"(,"finish_reason":)";
  if (part.end == nullptr) {
    *out += "null";
    return;
  }
  if (call_.prompt_only) {
    *out += R"("length","stop_reason":null)";
    return;
  }
  AppendFinishReason(
      ReasonOf(call_, *part.end, *part.prompt, tokenizer_, part.has_tool_calls),
      out, part.has_tool_calls);
  *out += R"(,"stop_reason":)";
  AppendStopReason(*part.end, *part.prompt, tokenizer_, out);
  AppendScores(*part.end, out);
}

void ChoiceWriter::AppendWholeBegin(const ChoicePart& part,
                                    std::string* out) const {
  AppendField(R"({"index":)", part.index, out);
  if (call_.api == Api::kChat) {
    *out += R"(,"message":{"role":"assistant","content":)";
    if (part.text.empty() && part.has_tool_calls) {
      *out += "null";
    } else {
      AppendJson(part.text, out);
    }
    if (part.has_tool_calls) {
      *out += R"(,"tool_calls":)";
      AppendToolCalls(part.tool_calls, head_, part.index, /*is_chunk=*/false,
                      out);
    }
    *out += '}';
  } else if (call_.shows_text) {
    AppendField(R"(,"text":)", part.text, out);
  }
  AppendTokens(part, out);
}

void ChoiceWriter::AppendDelta(const ChoicePart& part, std::string* out) const {
  AppendField(R"({"index":)", part.index, out);
  if (call_.api == Api::kChat) {
    *out += R"(,"delta":{)";
    if (!part.text.empty()) AppendField(R"("content":)", part.text, out);
    if (!part.tool_calls.empty()) {
      *out += part.text.empty() ? R"("tool_calls":)" : R"(,"tool_calls":)";
      AppendToolCalls(part.tool_calls, head_, part.index, /*is_chunk=*/true,
                      out);
    }
    *out += '}';
  } else if (call_.shows_text) {
    AppendField(R"(,"text":)", part.text, out);
  }
  AppendTokens(part, out);
  if (part.log_probs.empty()) {
    *out += "null";
  } else {
    AppendLogProbs(call_, part.log_probs, names_, out);
  }
  AppendEnd(part, out);
}

std::vector<PlacedLogProb> ChoiceWriter::LogProbsOf(
    const PromptParts& prompt, const Result& result,
    const Hypothesis& hypothesis, std::string_view text) const {
  std::vector<PlacedLogProb> placed;
  if (!prompt.params.logprobs) return placed;
  // The first `skipped` tokens have no log-probabilities.
  const auto place = [&](std::span<const TokenId> tokens, size_t skipped,
                         std::span<const TokenLogProb> log_probs,
                         std::string_view whole, size_t base,
                         const std::optional<IncrementalDetokenizer>& begin) {
    const std::vector<size_t> offsets =
        call_.api == Api::kCompletions ? TextOffsets(tokens, whole, base, begin)
                                       : std::vector<size_t>(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const TokenLogProb* const log_prob =
          i < skipped ? nullptr : &log_probs[i - skipped];
      placed.push_back({tokens[i], log_prob, offsets[i]});
    }
  };
  std::optional<IncrementalDetokenizer> opening, begin;
  if (tokenizer_ != nullptr) {
    opening.emplace(*tokenizer_, /*is_opening=*/true,
                    !prompt.params.skip_special_tokens);
    begin = TextBeginOf(prompt, *tokenizer_);
  }
  const bool is_completion = call_.api == Api::kCompletions;
  if (is_completion && call_.echo && result.prompt_logprobs) {
    const size_t num_without =
        prompt.tokens.size() - result.prompt_logprobs->size();
    place(prompt.tokens, num_without, *result.prompt_logprobs, prompt.text, 0,
          opening);
  }
  if (!call_.prompt_only) {
    const size_t base = call_.echo ? CountCharacters(prompt.text) : 0;
    place(hypothesis.tokens, 0, hypothesis.logprobs, text, base, begin);
  }
  return placed;
}

void ChoiceWriter::AppendPromptIds(const PromptParts& prompt,
                                   std::string* out) const {
  if (!call_.return_token_ids) return;
  *out += R"(,"prompt_token_ids":)";
  AppendIds(prompt.tokens, out);
}

void ChoiceWriter::AppendPromptLogProbs(const Result& result,
                                        std::string* out) const {
  if (!call_.shows_prompt_logprobs || !result.prompt_logprobs) return;
  *out += R"(,"prompt_logprobs":)";
  openai::AppendPromptLogProbs(*result.prompt_logprobs,
                               result.usage.num_prompt_tokens, names_, out);
}

}  // namespace espalier::openai
