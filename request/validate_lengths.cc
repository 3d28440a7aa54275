#include "request/validate_lengths.h"

#include <algorithm>
#include <string>

#include "base/field_error.h"
#include "base/status.h"
#include "base/wording.h"
#include "request/decoder_prompt.h"
#include "request/param_checks.h"
#include "request/validate_tokens.h"

namespace espalier {
namespace {

// Returns the error of a context with no room after `num_tokens` tokens: the
// prompt's, or the decoder prompt's of an encoder-decoder.
absl::Status NoRoom(const ModelDescription& model, int64_t num_tokens) {
  if (model.encoder) {
    const int64_t num_start = std::ssize(model.encoder->decoder_prompt);
    return InvalidField("`decoder_prompt_tokens` must have at most ",
                        Pluralize(model.max_context - num_start - 1, "token"),
                        " (the decoder's context of ",
                        ContextLimit{model.max_context}, " less ",
                        Pluralize(num_start, "token"),
                        " that it begins with and one to generate)",
                        Got(num_tokens - num_start));
  }
  // The tokens may have been given, or a text that they are of.
  return InvalidField("`the prompt` has ", Pluralize(num_tokens, "token"),
                      ", which leaves no room in the model's context of ",
                      ContextLimit{model.max_context});
}

// Why there is room for so many.
std::string WhyRoom(const ModelDescription& model, int64_t num_tokens) {
  if (model.encoder) {
    return MessageParts(
        " (the decoder's context of ", ContextLimit{model.max_context},
        " less ", Pluralize(num_tokens, "token"), " that it begins with)");
  }
  return MessageParts(" (a context of ", ContextLimit{model.max_context},
                      " less ", Pluralize(num_tokens, "prompt token"), ")",
                      DependsOnPrompt{});
}

// Checks a request that generates nothing.
absl::Status ValidateNoNewTokens(const GenerationParams& params) {
  constexpr Prose kWith = "with `max_new_tokens` 0";
  RETURN_IF_ERROR(CheckOff<int64_t>("num_beams", params.num_beams, 1, kWith));
  RETURN_IF_ERROR(CheckOff("stochastic", params.stochastic, false, kWith));
  RETURN_IF_ERROR(CheckOff<int64_t>("num_return_sequences",
                                    params.num_return_sequences, 1, kWith));
  if (params.best_of) {
    return InvalidField("`best_of` must be unset ", kWith,
                        Got(*params.best_of));
  }
  return CheckAtLeast("min_new_tokens", params.min_new_tokens, 0);
}

}  // namespace

absl::Status ValidateLengths(const ModelDescription& model,
                             int64_t num_prompt_tokens,
                             GenerationParams* params) {
  const int64_t num_before =
      NumContextTokens(model, num_prompt_tokens, *params);
  const int64_t room = model.max_context - num_before;
  // Prompt log-probabilities need no room after the prompt.
  if (params->max_new_tokens == 0 && params->prompt_logprobs && room >= 0) {
    return ValidateNoNewTokens(*params);
  }
  if (room < 1) return NoRoom(model, num_before);
  if (!params->max_new_tokens) {
    int64_t wanted = model.default_max_new_tokens;
    if (params->allowed_sequences) {
      wanted =
          std::max<int64_t>(1, LengthOfLongest(*params->allowed_sequences));
    }
    params->max_new_tokens = std::min(wanted, room);
  }
  // The explanation is built only on error: it costs as much as all other
  // checks.
  if (*params->max_new_tokens < 1 || *params->max_new_tokens > room) {
    return CheckRange("max_new_tokens", *params->max_new_tokens, 1, room,
                      Prose(std::string_view(WhyRoom(model, num_before))));
  }
  return CheckAtLeast("min_new_tokens", params->min_new_tokens, 0);
}

}  // namespace espalier
