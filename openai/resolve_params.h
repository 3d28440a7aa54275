// ResolveParams: the effective params of a call, by the precedence and the
// rules of ResolveDefaults (request/resolve_defaults.h), of which these are the
// levels of a server:
//
//   what the call says
//   the server's defaults: flags, --defaults FILE
//   the model's generation_config.json
//   those of OpenAI's API: tokens are drawn at temperature 1; 16 new tokens in
//     completions, and as many as there is room for elsewhere
//
// Beams that a call selects are not sampled unless the call has a sampling
// param, regardless of the model's defaults (SearchWarning).
//
// Thread safety: values; functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/model_description.h"
#include "openai/call.h"
#include "openai/limits.h"
#include "openai/server_defaults.h"
#include "request/generation_defaults.h"
#include "request/generation_params.h"
#include "request/resolve_defaults.h"

namespace espalier::openai {

// `model_defaults` may be empty. The result is valid if the call is; the engine
// checks it.
ResolvedParams ResolveParams(const Call& call, const ServerDefaults& server,
                             const GenerationDefaults& model_defaults,
                             const ModelDescription& model,
                             int64_t num_prompt_tokens);

// Returns the most tokens that a sequence can generate: the server's limit, or
// what the model's context and pages leave after a prompt of one token. At
// least 1.
int64_t MostNewTokens(const ModelDescription& model, const Limits& limits);

// Returns a warning naming the model's sampling defaults that a call omits
// because it selects beam search; empty if there are none.
std::string SearchWarning(const Call& call,
                          const GenerationDefaults& model_defaults);

// Returns a warning naming the defaults that the call leaves out because of its
// own `speculate` (SpeculationNote); empty if there are none.
std::string SpeculationWarning(const Call& call, const ServerDefaults& server,
                               const GenerationDefaults& model_defaults,
                               const ModelDescription& model);

// Returns a warning naming the field of the call with which a constraint that
// the server has as a default does not go, so that `params`, with which the
// call runs, have none; empty if there is no such field.
std::string ConstraintWarning(const Call& call, const ServerDefaults& server,
                              const GenerationParams& params);

// Returns warnings about fields that the call gives and that change nothing
// with `params`, which it runs with (IdleFieldWarnings).
std::vector<std::string> IdleWarnings(const Call& call,
                                      const GenerationParams& params);

// Checks that a step of `model` has room for the beams that the call's n adds
// to default beams. The engine checks beams that the call names itself.
// Errors: kInvalidArgument naming what the call calls n, the value and the
// flag.
absl::Status CheckRoom(const Call& call, const GenerationParams& params,
                       const ModelDescription& model);

}  // namespace espalier::openai
