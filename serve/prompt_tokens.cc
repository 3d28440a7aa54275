#include "serve/prompt_tokens.h"

#include "base/status.h"
#include "openai/error.h"

namespace espalier::serve {

absl::StatusOr<std::vector<TokenId>> TextTokens(
    const std::string& text, const PromptTokensOptions& options,
    const Generator& generator) {
  if (!options.add_special_tokens.value_or(true)) {
    return generator.MakePrompt(Prompt::Raw(text), options.max_tokens);
  }
  if (options.template_name.empty()) {
    return generator.MakePrompt(Prompt(text), options.max_tokens);
  }
  absl::StatusOr<std::vector<TokenId>> tokens = generator.MakePrompt(
      Prompt::Templated(text, options.template_name), options.max_tokens);
  if (!absl::IsNotFound(tokens.status())) return tokens;
  return openai::RefuseField("template",
                             "template: " + Message(tokens.status()));
}

absl::StatusOr<std::vector<TokenId>> ChatTokens(
    const ChatInputs& chat, const PromptTokensOptions& options,
    const Generator& generator) {
  ASSIGN_OR_RETURN(const ChatPrompts* prompts, generator.chat_prompts());
  ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                   prompts->Make(chat, options.max_tokens));
  const std::optional<TokenId> bos = generator.tokenizer()->bos_id();
  const bool adds_bos = options.add_special_tokens.value_or(false) &&
                        bos.has_value() &&
                        (tokens.empty() || tokens.front() != *bos);
  if (adds_bos) tokens.insert(tokens.begin(), *bos);
  return tokens;
}

}  // namespace espalier::serve
