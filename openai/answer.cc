#include "openai/answer.h"

#include "openai/answer_writer.h"

namespace espalier::openai {

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
  AnswerWriter writer(call, head, prompts, answers, tokenizer);
  std::string json;
  while (writer.Append(size_t{1} << 20, &json)) continue;
  return json;
}

}  // namespace espalier::openai
