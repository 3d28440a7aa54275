// Text as the tokens of a model, and back: /tokenize and /detokenize.
//
// Thread safety: functions without state.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "openai/call.h"
#include "serve/served_model.h"

namespace espalier::serve {

// The answer to the body of a call.
// Errors: kInvalidArgument naming the field; kFailedPrecondition if the model
// has no tokenizer, or no chat template.
absl::StatusOr<std::string> AnswerTokenize(const ServedModel& model,
                                           std::string_view body,
                                           const openai::Limits& limits);
absl::StatusOr<std::string> AnswerDetokenize(const ServedModel& model,
                                             std::string_view body,
                                             const openai::Limits& limits);

}  // namespace espalier::serve
