// POST /v1/completions/render and /v1/chat/completions/render, as vLLM has
// them: the calls of /inference/v1/generate that a call comes to, one for each
// prompt.
//
// Thread safety: functions without state.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "openai/answer.h"
#include "openai/call.h"

namespace espalier::openai {

// {"model", "request_id", "token_ids", "sampling_params", "stream"}; of
// completions a list of these. `model` is its name. The params are those that
// `body`, which `call` was read from, gives, and the number of tokens that the
// API has by default.
std::string WriteRendered(const Call& call, std::string_view body,
                          std::string_view model,
                          std::span<const PromptParts> prompts);

}  // namespace espalier::openai
