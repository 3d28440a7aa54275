#include "request/request.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string_view>

#include "base/field_error.h"
#include "base/model_description.h"
#include "base/status.h"
#include "base/wording.h"
#include "request/decoder_prompt.h"
#include "request/param_checks.h"
#include "request/validate_tokens.h"

namespace espalier {

std::string_view NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
      return "eos";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kDeadline:
      return "deadline";
  }
  return "";
}

namespace {

// Checks that no option of generation is set, beside continuations or an
// alignment. Lengths are the continuations'.
absl::Status CheckParamsOfScoring(std::string_view what,
                                  const GenerationParams& params) {
  if (params.max_new_tokens.value_or(0) != 0) {
    return InvalidField("`max_new_tokens` must be unset with ", Prose(what),
                        Got(*params.max_new_tokens));
  }
  GenerationParams kept;
  kept.max_new_tokens = params.max_new_tokens;
  kept.prompt_logprobs = params.prompt_logprobs;
  kept.logprobs_start = params.logprobs_start;
  kept.decoder_prompt_tokens = params.decoder_prompt_tokens;
  kept.decoder_prompt = params.decoder_prompt;
  kept.deadline_ms = params.deadline_ms;
  kept.prefix_cache = params.prefix_cache;
  kept.cache_salt = params.cache_salt;
  kept.priority = params.priority;
  kept.tenant = params.tenant;
  if (params == kept) return absl::OkStatus();
  return InvalidField(
      "`params` of what is generated must be unset with ", Prose(what),
      ": only `prompt_logprobs`, `logprobs_start`, the decoder prompt, "
      "`deadline_ms` and those of scheduling have a meaning");
}

// Refuses what is too long, in its own name, and sets max_new_tokens to the
// longest: a group takes no more pages than to generate it.
absl::Status ValidateContinuations(const ModelDescription& model,
                                   Request* request) {
  GenerationParams& params = request->params;
  RETURN_IF_ERROR(CheckParamsOfScoring("continuations", params));
  const int64_t num_tokens = NumContinuationTokens(*request);
  if (num_tokens > kMaxScoredTokens) {
    return InvalidField("`continuations` must have at most ",
                        Limit(kMaxScoredTokens), " tokens together",
                        Got(num_tokens));
  }
  RETURN_IF_ERROR(CheckSequences("continuations", request->continuations,
                                 model.vocab_size));
  const int64_t num_before =
      NumContextTokens(model, std::ssize(request->prompt_tokens), params);
  const int64_t room = model.max_context - num_before;
  int64_t longest = 0;
  for (size_t i = 0; i < request->continuations.size(); ++i) {
    const std::vector<int64_t>& tokens = request->continuations[i];
    // To name a list costs more than to check it.
    if (!CheckHavePositions(model, "continuations", tokens).ok()) {
      return CheckHavePositions(model, Concat("continuations[", i, "]"),
                                tokens);
    }
    const int64_t length = std::ssize(tokens);
    longest = std::max(longest, length);
    if (length <= room || room < 1) continue;
    return InvalidField("`continuations`[", i, "] must have at most ",
                        Pluralize(room, "token"), " (a context of ",
                        ContextLimit{model.max_context}, " less ", num_before,
                        " before it)", Got(length));
  }
  params.max_new_tokens = longest;
  if (longest == 1 || model.has_shareable_pages) return absl::OkStatus();
  return InvalidField(
      "`continuations` must have one token each for a model that keeps more of "
      "a sequence than its pages (has_shareable_pages)",
      Got(longest));
}

}  // namespace

bool OnlyScores(const Request& request) {
  return !request.continuations.empty() || request.params.max_new_tokens == 0 ||
         request.alignment != nullptr;
}

int64_t NumContinuationTokens(const Request& request) {
  int64_t count = 0;
  for (const std::vector<int64_t>& tokens : request.continuations) {
    count += std::ssize(tokens);
  }
  return count;
}

int64_t FirstLogprob(const Request& request) {
  return std::max<int64_t>(request.params.logprobs_start, 1);
}

int64_t NumWithoutLogits(const Request& request) {
  const int64_t num_before_last = std::ssize(request.prompt_tokens) - 1;
  if (!request.params.prompt_logprobs) return num_before_last;
  return std::min(FirstLogprob(request) - 1, num_before_last);
}

namespace {

absl::Status ValidateFeatures(const FeatureShape& shape,
                              const Request& request) {
  if (!request.prompt_tokens.empty()) {
    return InvalidField(
        "`the prompt` must be features, which the model's encoder reads in "
        "place of tokens",
        Got(Pluralize(std::ssize(request.prompt_tokens), "token")));
  }
  if (request.features == nullptr) {
    return InvalidField(
        "`features` must be given, which the model's encoder reads");
  }
  const FeatureMatrix& features = *request.features;
  if (!(features.shape == shape)) {
    return InvalidField("`features` must have ", shape.num_rows, " rows of ",
                        shape.num_cols,
                        Got(Concat(features.shape.num_rows, " rows of ",
                                   features.shape.num_cols)));
  }
  if (features.values.size() != size_t(shape.num_rows) * shape.num_cols) {
    return InvalidField("`features` must have ",
                        int64_t{shape.num_rows} * shape.num_cols, " values",
                        Got(std::ssize(features.values)));
  }
  for (size_t i = 0; i < features.values.size(); ++i) {
    if (std::isfinite(features.values[i])) continue;
    return InvalidField("`features` must be finite: row ", i / shape.num_cols,
                        ", column ", i % shape.num_cols,
                        Got(features.values[i]));
  }
  return absl::OkStatus();
}

absl::Status ValidatePrompt(const ModelDescription& model, Request* request) {
  if (model.encoder && model.encoder->features) {
    return ValidateFeatures(*model.encoder->features, *request);
  }
  if (request->features != nullptr) {
    return InvalidField(
        "`features` must be unset for a model that reads tokens");
  }
  if (request->prompt_tokens.empty()) {
    return InvalidField("`prompt_tokens` must not be empty", Got("[]"));
  }
  RETURN_IF_ERROR(
      CheckTokens("prompt_tokens", request->prompt_tokens, model.vocab_size));
  RETURN_IF_ERROR(AppendDecoderPrompt(model, request));
  const int64_t num_tokens = std::ssize(request->prompt_tokens);
  if (model.encoder && num_tokens > model.encoder->max_source_tokens) {
    return InvalidField("`the prompt` has ", Pluralize(num_tokens, "token"),
                        ", and the model's encoder reads at most ",
                        ContextLimit{model.encoder->max_source_tokens});
  }
  return CheckHavePositions(model, "prompt_tokens", request->prompt_tokens);
}

// A group takes its tokens as those of a prompt whose log-probabilities are
// reported: both need all its rows of logits, and nothing after it.
//   num_source_tokens  positions of the encoder's output
absl::Status ValidateAlignment(const ModelDescription& model,
                               int64_t num_source_tokens, Request* request) {
  const AlignmentQuery& query = *request->alignment;
  if (!model.encoder || !model.encoder->reported_attention) {
    return InvalidField(
        "`alignment` must be unset for a model or device whose steps report no "
        "cross-attention");
  }
  if (!request->continuations.empty()) {
    return InvalidField(
        "`alignment` must be unset with `continuations`",
        Got(Pluralize(std::ssize(request->continuations), "continuation")));
  }
  const AttentionShape& shape = *model.encoder->reported_attention;
  const int64_t num_heads = int64_t{shape.num_layers} * shape.num_heads;
  if (query.heads.empty() || std::ssize(query.heads) > num_heads) {
    return InvalidField("`alignment` must be of 1 to ", num_heads, " heads",
                        Got(query.heads.size()));
  }
  for (const AttentionHead& head : query.heads) {
    if (head.layer >= 0 && head.layer < shape.num_layers && head.head >= 0 &&
        head.head < shape.num_heads) {
      continue;
    }
    return InvalidField("`alignment` must be of heads below [",
                        shape.num_layers, ", ", shape.num_heads, "]",
                        Got("[", head.layer, ", ", head.head, "]"));
  }
  RETURN_IF_ERROR(CheckRange("alignment.num_positions", query.num_positions, 1,
                             num_source_tokens));
  RETURN_IF_ERROR(CheckRange("alignment.num_text_tokens", query.num_text_tokens,
                             1, model.vocab_size));
  GenerationParams& params = request->params;
  RETURN_IF_ERROR(CheckParamsOfScoring("an alignment", params));
  // Checks the decoder prompt and what is left.
  params.max_new_tokens = 1;
  RETURN_IF_ERROR(ValidateParams(model, num_source_tokens, &params));
  params.max_new_tokens = 0;
  params.prompt_logprobs = 0;
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateRequest(const ModelDescription& model, Request* request) {
  RETURN_IF_ERROR(ValidatePrompt(model, request));
  const int64_t num_tokens = request->features != nullptr
                                 ? model.encoder->max_source_tokens
                                 : std::ssize(request->prompt_tokens);
  if (request->alignment != nullptr) {
    return ValidateAlignment(model, num_tokens, request);
  }
  if (!request->continuations.empty()) {
    RETURN_IF_ERROR(ValidateContinuations(model, request));
  }
  return ValidateParams(model, num_tokens, &request->params);
}

void GiveSeed(Request* request) {
  GenerationParams& params = request->params;
  if (params.seed || !DrawsAtRandom(params)) return;
  std::random_device device;
  const uint64_t bits = uint64_t{device()} << 32 | device();
  params.seed = bits % kMaxDrawnSeed;
}

}  // namespace espalier
