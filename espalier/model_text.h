// ModelText: the tokenizer and prompt templates of a model directory, if it has
// them.
//
// Thread safety: constant after Load; any thread may call.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/model_description.h"
#include "request/generation_defaults.h"
#include "request/generation_params.h"
#include "request/request.h"
#include "text/prompt_template.h"
#include "text/tokenizer/incremental_detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

struct Generation;  // espalier/generator.h

struct ModelText {
  // A directory without a tokenizer has no text: both are empty.
  // Errors: as Tokenizer::LoadDirectory and PromptTemplates::Load.
  static absl::StatusOr<ModelText> Load(const std::string& directory);

  // PromptTemplates::AreAnswered; false where there are none.
  bool AreAnswered(std::span<const TokenId> prompt) const {
    return templates.has_value() && templates->AreAnswered(prompt);
  }

  // True if the model family is trained on single sentences, or the template
  // has languages.
  bool TranslatesSentences(const PromptTemplate& prompt_template) const {
    return family_translates_sentences || !prompt_template.to.empty();
  }

  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  std::optional<PromptTemplates> templates = {};
  bool family_translates_sentences = false;
};

// Returns the prompt that `prompt_template`, which belongs to `tokenizer`,
// makes of `text`, for `model`'s context or encoder, and of `max_tokens` tokens
// at most.
// Errors: kInvalidArgument if the text is blank, not UTF-8, or has far more
// tokens, or the model's padding (EncoderDescription::token_without_position).
absl::StatusOr<std::vector<TokenId>> PromptTokens(
    const std::string& text, const PromptTemplate& prompt_template,
    const Tokenizer& tokenizer, const ModelDescription& model, int max_tokens,
    bool parse_special = false);

// Settings to decode a request's result into texts.
struct TextForm {
  // Makes the settings for `request` as it is submitted to an engine of
  // `model`. Without a tokenizer there are no texts.
  static TextForm Of(const Request& request, const ModelDescription& model,
                     std::shared_ptr<const Tokenizer> tokenizer);

  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  GenerationParams params = {};  // what texts depend on; the rest may be large
  std::optional<IncrementalDetokenizer> begin = {};  // if there is a tokenizer
};

// Converts `result` into a Generation with the text of each hypothesis, cut at
// stops; no texts without a tokenizer. `defaults` are the defaults that the
// request took. An error of too few pages ends in `advice`: ", or ...". Throws
// std::bad_alloc.
absl::StatusOr<Generation> MakeGeneration(absl::StatusOr<Result> result,
                                          const TextForm& form,
                                          const NamedValues& defaults,
                                          const std::string& advice);

}  // namespace espalier
