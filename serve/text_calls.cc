#include "serve/text_calls.h"

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "base/field_error.h"
#include "base/status.h"
#include "espalier/tokenizer.h"
#include "openai/error.h"
#include "openai/tokenize.h"
#include "serve/prompt_tokens.h"

namespace espalier::serve {
namespace {

absl::StatusOr<std::shared_ptr<const Tokenizer>> TokenizerOf(
    const ServedModel& model) {
  std::shared_ptr<const Tokenizer> tokenizer = model.generator.tokenizer();
  if (tokenizer == nullptr) {
    return FailedPrecondition("the model has no tokenizer");
  }
  return tokenizer;
}

absl::StatusOr<FramedTokens> PromptOf(const openai::Call& call,
                                      const Generator& generator) {
  const PromptTokensOptions options = PromptTokensOptionsOf(call);
  if (call.chat.has_value()) return ChatTokens(*call.chat, options, generator);
  const std::string& text = std::get<std::string>(call.prompts[0]);
  if (call.add_special_tokens == false) {
    // Clients look up the id of a special token by its name this way.
    const Tokenizer& tokenizer = *generator.tokenizer();
    const std::optional<TokenId> token = tokenizer.PieceToId(text);
    if (token && tokenizer.is_special(*token)) return FramedTokens{{*token}};
  }
  return TextTokens(text, options, generator);
}

// The tokens that a call of the same fields would be fed. Adds its warning.
absl::StatusOr<openai::Tokenized> TokensOf(const ServedModel& model,
                                           openai::Call* call) {
  const ModelDescription& description = model.generator.description();
  openai::Tokenized tokenized;
  ASSIGN_OR_RETURN(FramedTokens prompt, PromptOf(*call, model.generator));
  if (!prompt.unparsed.empty()) {
    call->warnings.push_back(UnparsedWarning(prompt.unparsed));
  }
  std::string without_tools = ToolsWarning(*call, model.generator);
  if (!without_tools.empty()) {
    call->warnings.push_back(std::move(without_tools));
  }
  RETURN_IF_ERROR(MakeDecoderPrompt(model.generator, call).status());
  ASSIGN_OR_RETURN(tokenized.tokens,
                   TruncatePrompt(*call, description, std::move(prompt)));
  ASSIGN_OR_RETURN(std::vector<TokenId> decoder_prompt,
                   DecoderTokens(*call, model.defaults, model.generator));
  if (description.encoder) {
    tokenized.decoder_prompt = std::move(decoder_prompt);
  } else {
    tokenized.tokens.insert(tokenized.tokens.end(), decoder_prompt.begin(),
                            decoder_prompt.end());
  }
  return tokenized;
}

}  // namespace

absl::StatusOr<std::string> AnswerTokenize(const ServedModel& model,
                                           std::string_view body,
                                           const openai::Limits& limits) {
  // No text has more tokens than bytes.
  if (std::ssize(body) > limits.max_list_elements) {
    return InvalidField("`prompt` must come in a body of at most ",
                        Limit(limits.max_list_elements),
                        " bytes (--max-list-elements)", Got(body.size()));
  }
  ASSIGN_OR_RETURN(openai::TokenizeCall call,
                   openai::ReadTokenizeCall(body, limits));
  RETURN_IF_ERROR(CheckServed(model, call.call.model));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer,
                   TokenizerOf(model));
  const absl::StatusOr<openai::Tokenized> tokenized =
      TokensOf(model, &call.call);
  if (!tokenized.ok()) {
    return openai::InWordsOf(call.call, tokenized.status());
  }
  return openai::WriteTokenized(
      call, *tokenized, model.generator.description().max_context, *tokenizer);
}

absl::StatusOr<std::string> AnswerDetokenize(const ServedModel& model,
                                             std::string_view body,
                                             const openai::Limits& limits) {
  ASSIGN_OR_RETURN(const openai::DetokenizeCall call,
                   openai::ReadDetokenizeCall(body, limits));
  RETURN_IF_ERROR(CheckServed(model, call.model));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer,
                   TokenizerOf(model));
  // Models pad their vocabularies with tokens that spell nothing.
  const int vocab_size = model.generator.description().vocab_size;
  for (size_t i = 0; i < call.tokens.size(); ++i) {
    if (call.tokens[i] < 0 || call.tokens[i] >= vocab_size) {
      return InvalidField("`tokens`[", i, "] must be in [0, ", vocab_size, ")",
                          Got(call.tokens[i]));
    }
  }
  ASSIGN_OR_RETURN(const std::string text, tokenizer->Decode(call.tokens));
  return openai::WriteDetokenized(call, text);
}

}  // namespace espalier::serve
