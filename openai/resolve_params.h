// ResolveParams: which params a call runs with. In order of precedence:
//
//   what the call says
//   the server's defaults: flags, --defaults FILE
//   the model's generation_config.json (request/generation_defaults.h)
//   those of OpenAI's API: tokens are drawn at temperature 1; 16 new tokens in
//     completions, and as many as there is room for elsewhere
//   those of GenerationParams
//
// As everywhere, a default is taken as long as the request with it is a good
// one, so that none makes a good request a bad one.
//
// Search. Who names beams (use_beam_search, num_beams above 1, stochastic) gets
// them, and who says how tokens are drawn (do_sample, best_of, a temperature
// above 0, a filter) or refuses beams (use_beam_search false, num_beams 1) gets
// draws. A call that says neither gets what the server's defaults name, of
// which num_beams 1 takes the place of the model's beams, or else the model's;
// where these name nothing either, draws. Beams by default are at least as many
// as the call's n. Beams that a call names are searched unless it says how
// tokens are drawn, whatever the model's defaults are (SearchWarning).
//
// Thread safety: values; functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "exec_request/model_description.h"
#include "openai/call.h"
#include "openai/limits.h"
#include "request/generation_defaults.h"
#include "request/generation_params.h"

namespace espalier::openai {

// The defaults of a server.
class ServerDefaults {
 public:
  // `json`: an object of params, by the names that calls have for them.
  // `limits` are the server's, as of a call.
  // Errors: kInvalidArgument naming the byte, or the field and the value.
  static absl::StatusOr<ServerDefaults> Read(std::string_view json,
                                             const Limits& limits = {});

  // Whether a request of `model` can have all of them.
  // Errors: kInvalidArgument naming the field, as `json` did, and the value.
  absl::Status Check(const ModelDescription& model) const;

  // Params of the request format, and their values as JSON; those first that
  // others depend on.
  const NamedValues& values() const { return values_; }
  // A call that says nothing else.
  const Call& call() const { return call_; }

 private:
  NamedValues values_;
  Call call_;
};

struct ResolvedParams {
  GenerationParams params;
  // Those that the server and the model gave, and their values as JSON.
  NamedValues defaults;
};

// `model_defaults` are empty where there are none. The result is as good a
// request as the call is: the engine checks it.
ResolvedParams ResolveParams(const Call& call, const ServerDefaults& server,
                             const GenerationDefaults& model_defaults,
                             const ModelDescription& model,
                             int64_t num_prompt_tokens);

// Which sampling defaults of the model a call leaves out because it asks for
// the search, as a warning; empty if there are none.
std::string SearchWarning(const Call& call,
                          const GenerationDefaults& model_defaults);

// Whether a step of `model` has room for the beams that the n of a call makes
// of beams by default. Where the call names them, the engine's check does.
// Errors: kInvalidArgument naming what the call calls n, the value and the
// flag.
absl::Status CheckRoom(const Call& call, const GenerationParams& params,
                       const ModelDescription& model);

// Whether these params of a call, resolved, keep the limits of its server.
// ReadCall has checked those that the call gives. `server` are the defaults
// that they were resolved with; null: none were taken yet.
// Errors: kInvalidArgument naming the field, the value, the flag, and whose
// default it is if it is one.
absl::Status CheckLimits(const Call& call, const GenerationParams& params,
                         const ServerDefaults* server);

}  // namespace espalier::openai
