#include "espalier/model_text.h"

#include <algorithm>
#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"
#include "batcher/scheduler/too_few_pages.h"
#include "beam/strategy/request_text.h"
#include "espalier/generator.h"
#include "model/transformer_config.h"
#include "request/text_begin.h"

namespace espalier {
namespace {

// As CheckHavePositions, for a prompt whose tokens the caller has not given.
absl::Status CheckHasNoPadding(const ModelDescription& model,
                               const Tokenizer& tokenizer,
                               std::span<const TokenId> tokens) {
  if (!model.encoder) return absl::OkStatus();
  const std::optional<TokenId> padding = model.encoder->token_without_position;
  if (!padding || std::ranges::find(tokens, *padding) == tokens.end()) {
    return absl::OkStatus();
  }
  return InvalidField(
      "`prompt` must not have the model's padding, which has no position",
      Got(ShownInQuotes(tokenizer.Spelling(*padding))));
}

}  // namespace

absl::StatusOr<ModelText> ModelText::Load(const std::string& directory) {
  ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                   Tokenizer::LoadDirectory(directory));
  if (tokenizer == nullptr) return ModelText();
  ASSIGN_OR_RETURN(PromptTemplates templates,
                   PromptTemplates::Load(directory, *tokenizer));
  tokenizer->MarkSpecial(templates.tokens());
  // Why a config cannot be read loading the model says.
  const auto config = ReadTransformerConfig(directory);
  if (config.ok()) tokenizer->SetModelVocabSize(config->vocab_size);
  return ModelText{std::move(tokenizer), std::move(templates),
                   config.ok() && config->translates_sentences};
}

absl::StatusOr<std::vector<TokenId>> PromptTokens(
    const std::string& text, const PromptTemplate& prompt_template,
    const Tokenizer& tokenizer, const ModelDescription& model, int max_tokens,
    bool parse_special) {
  if (!IsUtf8(text)) return InvalidField("`prompt` is not UTF-8");
  absl::StatusOr<std::vector<TokenId>> tokens =
      prompt_template.Apply(text, tokenizer, max_tokens, parse_special);
  if (tokens.ok()) {
    RETURN_IF_ERROR(CheckHasNoPadding(model, tokenizer, *tokens));
    return tokens;
  }
  if (!absl::IsOutOfRange(tokens.status())) return tokens;
  return InvalidField(
      model.encoder ? "`prompt` is too long: the model's encoder reads "
                      "at most "
                    : "`prompt` must fit into the model's context of ",
      ContextLimit{max_tokens}, max_tokens == 1 ? " token" : " tokens", ": ",
      Message(tokens.status()));
}

TextForm TextForm::Of(const Request& request, const ModelDescription& model,
                      std::shared_ptr<const Tokenizer> tokenizer) {
  TextForm form;
  if (tokenizer == nullptr) return form;
  form.params.stop = request.params.stop;
  form.params.include_stop = request.params.include_stop;
  form.params.min_new_tokens = request.params.min_new_tokens;
  form.begin = TextBegin(*tokenizer, model, request);
  form.tokenizer = std::move(tokenizer);
  return form;
}

absl::StatusOr<Generation> MakeGeneration(absl::StatusOr<Result> result,
                                          const TextForm& form,
                                          const NamedValues& defaults,
                                          const std::string& advice) {
  if (result.status().GetPayload(kTooFewPages).has_value()) {
    return AppendParts(result.status(), advice);
  }
  RETURN_IF_ERROR(result.status());
  Generation generation;
  static_cast<Result&>(generation) = *std::move(result);
  generation.usage.defaults = defaults;
  if (form.tokenizer == nullptr) return generation;
  const RequestText text(form.params, form.tokenizer, form.begin.value());
  for (const Hypothesis& hypothesis : generation.hypotheses) {
    generation.texts.push_back(text.Of(hypothesis.tokens));
  }
  return generation;
}

}  // namespace espalier
