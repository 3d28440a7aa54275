// Answers made up for tests: hypotheses of given tokens, with the texts and
// log-probabilities that an engine would give them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "openai/answer.h"
#include "openai/call.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "text/stop_strings.h"
#include "text/text_stream.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::testing {

inline const openai::AnswerHead kSampleHead = {"cmpl-7", 1700000000, "en-fr"};

inline std::vector<TokenId> EnFrTokens(const std::string& text) {
  return *EnFrTokenizer().Encode(text);
}

// Returns a good call with these additional fields.
inline openai::Call CallOf(openai::Api api, const std::string& fields) {
  const std::string_view inputs =
      api == openai::Api::kCompletions ? R"("prompt": "Hello")"
      : api == openai::Api::kChat
          ? R"("messages": [{"role": "user", "content": "a"}])"
      : api == openai::Api::kResponses ? R"("input": "a")"
                                       : R"("token_ids": [1, 5])";
  absl::StatusOr<openai::Call> call = openai::ReadCall(
      api, Concat("{", inputs, fields.empty() ? "" : ", ", fields, "}"));
  EXPECT_OK(call);
  return *std::move(call);
}

// Makes log-probabilities of `tokens` and of `num_best` others each.
inline std::vector<TokenLogProb> MakeLogProbs(
    const std::vector<TokenId>& tokens, int num_best) {
  std::vector<TokenLogProb> log_probs;
  for (const TokenId token : tokens) {
    TokenLogProb& place = log_probs.emplace_back();
    place.token = token;
    place.log_prob = -0.5f;
    place.rank = 2;
    for (int i = 0; i < num_best; ++i) {
      place.best.push_back({TokenId{300 + i}, -0.25f * (i + 1)});
    }
  }
  return log_probs;
}

// A hypothesis, and its text, cut at the stops of `params`.
inline std::pair<Hypothesis, std::string> MakeHypothesis(
    std::vector<TokenId> tokens, FinishReason reason,
    const GenerationParams& params, const Tokenizer& tokenizer) {
  Hypothesis hypothesis;
  hypothesis.score = -0.25f * static_cast<float>(tokens.size());
  hypothesis.cum_log_prob = -1.5f;
  hypothesis.finish_reason = reason;
  if (params.logprobs) {
    hypothesis.logprobs =
        MakeLogProbs(tokens, static_cast<int>(*params.logprobs));
  }
  const auto stops = StopStrings::Create(params.stop);
  std::string text =
      TextOf(tokens, tokenizer, *stops, {.include_stop = params.include_stop});
  hypothesis.tokens = std::move(tokens);
  return {std::move(hypothesis), std::move(text)};
}

// The answer that has these hypotheses, to a prompt.
inline openai::PromptAnswer MakeAnswer(
    const openai::PromptParts& prompt,
    std::vector<std::pair<Hypothesis, std::string>> hypotheses) {
  openai::PromptAnswer answer;
  Usage& usage = answer.result.usage;
  usage.num_prompt_tokens = static_cast<int64_t>(prompt.tokens.size());
  usage.num_cached_tokens = 1;
  for (auto& [hypothesis, text] : hypotheses) {
    usage.num_generated_tokens +=
        static_cast<int64_t>(hypothesis.tokens.size());
    usage.num_steps = std::max<int64_t>(
        usage.num_steps, static_cast<int64_t>(hypothesis.tokens.size()));
    answer.result.hypotheses.push_back(std::move(hypothesis));
    answer.texts.push_back(std::move(text));
  }
  if (prompt.params.prompt_logprobs) {
    answer.result.prompt_logprobs =
        MakeLogProbs({prompt.tokens.begin() + 1, prompt.tokens.end()},
                     static_cast<int>(*prompt.params.prompt_logprobs));
  }
  return answer;
}

}  // namespace espalier::testing
