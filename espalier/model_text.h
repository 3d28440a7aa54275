// ModelText: how a model directory turns text into prompts and results into
// text: its tokenizer and prompt templates, if it has them.
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
#include "exec_request/model_description.h"
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

  // True for a model family that is trained on single sentences, and where the
  // template has languages.
  bool TranslatesSentences(const PromptTemplate& prompt_template) const {
    return family_translates_sentences || !prompt_template.from.empty();
  }

  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  std::optional<PromptTemplates> templates = {};
  bool family_translates_sentences = false;
};

// The prompt that `text` makes by `prompt_template`, which belongs to
// `tokenizer`: for the model's context, or for its encoder, which have room for
// `max_tokens`.
// Errors: kInvalidArgument if it is blank, not UTF-8, or of far more tokens.
absl::StatusOr<std::vector<TokenId>> PromptTokens(
    const std::string& text, const PromptTemplate& prompt_template,
    const Tokenizer& tokenizer, int max_tokens, bool is_for_encoder,
    bool parse_special = false);

// How the texts of a request are made of tokens, once its result is there.
struct TextForm {
  // Of `request` as it is submitted to an engine of `model`; no texts without a
  // tokenizer.
  static TextForm Of(const Request& request, const ModelDescription& model,
                     std::shared_ptr<const Tokenizer> tokenizer);

  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  GenerationParams params = {};  // what texts depend on; the rest may be large
  std::optional<IncrementalDetokenizer> begin = {};  // if there is a tokenizer
};

// The answer that `result` is, with the text of each hypothesis, cut at stops;
// none without a tokenizer. `defaults` are those that its params have taken.
// Where pages were too few the error ends in `advice`: ", or ...". Throws
// std::bad_alloc.
absl::StatusOr<Generation> MakeGeneration(absl::StatusOr<Result> result,
                                          const TextForm& form,
                                          const NamedValues& defaults,
                                          const std::string& advice);

}  // namespace espalier
