#include "request/text_begin.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "request/decoder_prompt.h"

namespace espalier {

IncrementalDetokenizer TextBeginAfter(const Tokenizer& tokenizer,
                                      const GenerationParams& params,
                                      std::span<const TokenId> context) {
  return IncrementalDetokenizer::After(tokenizer, context,
                                       !params.skip_special_tokens);
}

std::span<const TokenId> ContinuedTokens(const Request& request) {
  const std::span<const TokenId> prompt = request.prompt_tokens;
  const int64_t num_tokens = std::ssize(prompt);
  return prompt.last(std::clamp<int64_t>(
      request.num_continued.value_or(num_tokens), 0, num_tokens));
}

IncrementalDetokenizer TextBegin(const Tokenizer& tokenizer,
                                 const ModelDescription& model,
                                 const Request& request) {
  const GenerationParams& params = request.params;
  if (model.encoder) {
    const std::vector<TokenId> tokens = DecoderPromptOf(model, params);
    return TextBeginAfter(tokenizer, params, AfterStart(model, tokens));
  }
  return TextBeginAfter(tokenizer, params, ContinuedTokens(request));
}

TextOptions TextOptionsOf(const GenerationParams& params) {
  return {.include_stop = params.include_stop,
          .min_new_tokens = params.min_new_tokens};
}

std::string TextBefore(const Tokenizer& tokenizer,
                       const GenerationParams& params,
                       std::span<const TokenId> context) {
  IncrementalDetokenizer detokenizer(tokenizer, /*is_opening=*/true,
                                     !params.skip_special_tokens);
  std::string text;
  for (const TokenId token : context) detokenizer.Feed(token, &text);
  return text;
}

}  // namespace espalier
