#include "espalier/model_text.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"
#include "beam/request_text.h"

namespace espalier {

absl::StatusOr<ModelText> ModelText::Load(const std::string& directory) {
  const std::string path = directory + "/tokenizer.model";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return ModelText();
  ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Load(path));
  ASSIGN_OR_RETURN(PromptTemplates templates,
                   PromptTemplates::Load(directory, *tokenizer));
  tokenizer->MarkSpecial(templates.tokens());
  return ModelText{std::move(tokenizer), std::move(templates)};
}

absl::StatusOr<std::vector<TokenId>> PromptTokens(
    const std::string& text, const PromptTemplate& prompt_template,
    const Tokenizer& tokenizer, int max_context) {
  if (!IsUtf8(text)) return InvalidArgument("prompt is not UTF-8");
  absl::StatusOr<std::vector<TokenId>> tokens =
      prompt_template.Apply(text, tokenizer, max_context);
  if (!absl::IsOutOfRange(tokens.status())) return tokens;
  return InvalidArgument("prompt must fit into the model's context of ",
                         Pluralize(max_context, "token"), ": ",
                         Message(tokens.status()));
}

GenerationParams OnlyOfText(const GenerationParams& params) {
  GenerationParams text;
  text.stop = params.stop;
  text.include_stop = params.include_stop;
  text.min_new_tokens = params.min_new_tokens;
  return text;
}

std::vector<std::string> TextsOf(const Result& result,
                                 const GenerationParams& params,
                                 std::shared_ptr<const Tokenizer> tokenizer) {
  std::vector<std::string> texts;
  if (tokenizer == nullptr) return texts;
  const RequestText text(params, std::move(tokenizer));
  for (const Hypothesis& hypothesis : result.hypotheses) {
    texts.push_back(text.Of(hypothesis.tokens));
  }
  return texts;
}

}  // namespace espalier
