#include "exec_request/generation_params.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "base/status.h"
#include "exec_request/model.h"
#include "exec_request/request.h"

namespace espalier {
namespace {

// More beams than any use has, few enough that candidates per step fit an int.
constexpr int64_t kMaxBeams = 1 << 20;

constexpr std::string_view kPerStep = " (what a step has room for)";

absl::Status CheckRange(std::string_view field, int64_t value, int64_t low,
                        int64_t high, std::string_view why_high) {
  if (value < low) {
    return InvalidArgument(field, " must be at least ", low, ", got ", value);
  }
  if (value > high) {
    return InvalidArgument(field, " must be at most ", high, why_high, ", got ",
                           value);
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(std::string_view field,
                         const std::vector<int64_t>& tokens, int vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size) {
      return InvalidArgument(field, "[", i, "] must be a token id in [0, ",
                             vocab_size, "), got ", tokens[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateBeams(const ModelDescription& model,
                           const GenerationParams& params) {
  RETURN_IF_ERROR(CheckRange("num_beams", params.num_beams, 1, kMaxBeams, ""));
  RETURN_IF_ERROR(CheckRange("num_beams", params.num_beams, 1,
                             model.limits.max_beams, kPerStep));
  return CheckRange("num_return_sequences", params.num_return_sequences, 1,
                    params.num_beams, " (num_beams)");
}

// Sets max_new_tokens if unset.
absl::Status ValidateLengths(const ModelDescription& model,
                             int64_t num_prompt_tokens,
                             GenerationParams* params) {
  const int64_t room = model.max_context - num_prompt_tokens;
  if (room < 1) {
    return InvalidArgument("prompt_tokens: the prompt has ", num_prompt_tokens,
                           " tokens, which leaves no room in the model's "
                           "context of ",
                           model.max_context);
  }
  if (!params->max_new_tokens) {
    params->max_new_tokens =
        std::min<int64_t>(model.default_max_new_tokens, room);
  }
  RETURN_IF_ERROR(
      CheckRange("max_new_tokens", *params->max_new_tokens, 1, room,
                 Concat(" (a context of ", model.max_context, " less ",
                        num_prompt_tokens, " prompt tokens)")));
  if (params->min_new_tokens < 0) {
    return InvalidArgument("min_new_tokens must be at least 0, got ",
                           params->min_new_tokens);
  }
  return absl::OkStatus();
}

// Sets eos_token_id if unset; each id once.
absl::Status ValidateEos(const ModelDescription& model,
                         GenerationParams* params) {
  if (!params->eos_token_id) {
    params->eos_token_id.emplace(model.eos_token_ids.begin(),
                                 model.eos_token_ids.end());
  }
  std::vector<int64_t>& ids = *params->eos_token_id;
  RETURN_IF_ERROR(CheckTokens("eos_token_id", ids, model.vocab_size));
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  const int64_t num_ids = ids.size();
  if (num_ids > model.limits.max_eos_token_ids) {
    return InvalidArgument("eos_token_id must have at most ",
                           model.limits.max_eos_token_ids, " ids", kPerStep,
                           ", got ", num_ids);
  }
  return absl::OkStatus();
}

absl::Status ValidatePenalties(const GenerationParams& params) {
  const float repetition = static_cast<float>(params.repetition_penalty);
  if (!(repetition > 0.0f) || !std::isfinite(repetition)) {
    return InvalidArgument(
        "repetition_penalty must be positive and within float32, got ",
        params.repetition_penalty);
  }
  const float divisor = static_cast<float>(std::pow(
      static_cast<double>(*params.max_new_tokens), params.length_penalty));
  if (!std::isnormal(divisor)) {
    return InvalidArgument("length_penalty must keep length^length_penalty ",
                           "within float32 up to ", *params.max_new_tokens,
                           " tokens (max_new_tokens), got ",
                           params.length_penalty);
  }
  return absl::OkStatus();
}

absl::Status ValidateBans(const ModelDescription& model,
                          const GenerationParams& params) {
  if (params.no_repeat_ngram_size < 0) {
    return InvalidArgument("no_repeat_ngram_size must be at least 0, got ",
                           params.no_repeat_ngram_size);
  }
  for (size_t i = 0; i < params.bad_words_ids.size(); ++i) {
    const std::string field = Concat("bad_words_ids[", i, "]");
    if (params.bad_words_ids[i].empty()) {
      return InvalidArgument(field, " must not be empty, got []");
    }
    RETURN_IF_ERROR(
        CheckTokens(field, params.bad_words_ids[i], model.vocab_size));
  }
  return CheckTokens("suppress_tokens", params.suppress_tokens,
                     model.vocab_size);
}

}  // namespace

absl::Status ValidateParams(const ModelDescription& model,
                            int64_t num_prompt_tokens,
                            GenerationParams* params) {
  RETURN_IF_ERROR(ValidateBeams(model, *params));
  RETURN_IF_ERROR(ValidateLengths(model, num_prompt_tokens, params));
  RETURN_IF_ERROR(ValidateEos(model, params));
  RETURN_IF_ERROR(ValidatePenalties(*params));
  return ValidateBans(model, *params);
}

std::string_view NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
      return "eos";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
  }
  return "";
}

absl::Status ValidateRequest(const ModelDescription& model, Request* request) {
  if (request->prompt_tokens.empty()) {
    return InvalidArgument("prompt_tokens must not be empty, got []");
  }
  RETURN_IF_ERROR(
      CheckTokens("prompt_tokens",
                  std::vector<int64_t>(request->prompt_tokens.begin(),
                                       request->prompt_tokens.end()),
                  model.vocab_size));
  return ValidateParams(model, request->prompt_tokens.size(), &request->params);
}

}  // namespace espalier
