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
#include "absl/status/statusor.h"
#include "base/model_description.h"
#include "openai/call.h"
#include "openai/limits.h"
#include "request/generation_defaults.h"
#include "request/generation_params.h"
#include "request/resolve_defaults.h"

namespace espalier::openai {

// The defaults of a server.
class ServerDefaults {
 public:
  // `json`: an object of params, by the names that calls have for them.
  // `limits` are the server's, as of a call.
  // Errors: kInvalidArgument naming the byte, or the field and the value.
  static absl::StatusOr<ServerDefaults> Read(std::string_view json,
                                             const Limits& limits = {});

  // Checks that a request of `model` can have all of them.
  // Errors: kInvalidArgument naming the field, as `json` did, and the value.
  absl::Status Check(const ModelDescription& model) const;

  // Params of the request format, and their values as JSON; dependencies first.
  const NamedValues& values() const { return level_.values; }
  const ServerValues& level() const { return level_; }
  // A call that gives only these params.
  const Call& call() const { return call_; }

 private:
  ServerValues level_;
  Call call_;
};

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

// Checks the resolved params of a call against the limits of its server.
// ReadCall has checked the ones that the call gives. `server` holds the
// defaults that they were resolved with; null: no defaults yet.
// Errors: kInvalidArgument naming the field, the value, the flag, and whose
// default it is if it is one.
absl::Status CheckLimits(const Call& call, const GenerationParams& params,
                         const ServerDefaults* server);

}  // namespace espalier::openai
