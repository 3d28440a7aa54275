// ModelText: how a model directory turns text into prompts and results into
// text: its tokenizer and prompt templates, if it has them.
//
// Thread safety: constant after Load; any thread may call.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "request/generation_defaults.h"
#include "request/generation_params.h"
#include "request/request.h"
#include "text/prompt_template.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

struct Generation;  // espalier/generator.h

struct ModelText {
  // A directory without a tokenizer has no text: both are empty.
  // Errors: as Tokenizer::LoadDirectory and PromptTemplates::Load.
  static absl::StatusOr<ModelText> Load(const std::string& directory);

  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  std::optional<PromptTemplates> templates = {};
};

// The prompt that `text` makes by `prompt_template`, which belongs to
// `tokenizer`: for the model's context, or for its encoder, which have room for
// `max_tokens`.
// Errors: kInvalidArgument if it is blank, not UTF-8, or of far more tokens.
absl::StatusOr<std::vector<TokenId>> PromptTokens(
    const std::string& text, const PromptTemplate& prompt_template,
    const Tokenizer& tokenizer, int max_tokens, bool is_for_encoder);

// What texts depend on; the whole may be large.
GenerationParams OnlyOfText(const GenerationParams& params);

// The answer that `result` is, with the text of each hypothesis, cut at stops;
// none without a tokenizer. `params` are the request's, or OnlyOfText of them;
// `defaults` those that they have taken.
// Where pages were too few the error ends in `advice`: ", or ...". Throws
// std::bad_alloc.
absl::StatusOr<Generation> MakeGeneration(
    absl::StatusOr<Result> result, const GenerationParams& params,
    const NamedValues& defaults, std::shared_ptr<const Tokenizer> tokenizer,
    const std::string& advice);

}  // namespace espalier
