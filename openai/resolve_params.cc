#include "openai/resolve_params.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/field_error.h"
#include "base/status.h"
#include "request/decoder_prompt.h"
#include "request/idle_fields.h"

namespace espalier::openai {
namespace {

constexpr int64_t kCompletionTokens = 16;

ApiDefaults ApiDefaultsOf(const Call& call) {
  constexpr std::string_view kIncludeStop = "include_stop";
  ApiDefaults api = {.max_tokens = call.limits.max_tokens};
  if (call.api == Api::kCompletions) api.max_new_tokens = kCompletionTokens;
  // By vLLM's name it may stand without stops.
  api.drops_include_stop = call.NameOf(kIncludeStop) != kIncludeStop;
  return api;
}

// True if the default of a param is not for this call. Answers of /v1/responses
// have no log-probabilities, and sentences are not texts of a language.
bool IsLeftOut(const Call& call, std::string_view param) {
  if (param == "constraint") return call.split_sentences.value_or(false);
  return call.api == Api::kResponses &&
         (param == "logprobs" || param == "prompt_logprobs");
}

}  // namespace

ResolvedParams ResolveParams(const Call& call, const ServerDefaults& server,
                             const GenerationDefaults& model_defaults,
                             const ModelDescription& model,
                             int64_t num_prompt_tokens) {
  std::vector<std::string_view> given;
  for (const GivenParam& param : call.given) given.push_back(param.param);
  const ApiDefaults api = ApiDefaultsOf(call);
  const auto is_left_out = [&](const NamedValues::value_type& value) {
    return IsLeftOut(call, value.first);
  };
  std::optional<ServerValues> without;
  if (std::ranges::any_of(server.values(), is_left_out)) {
    std::erase_if(without.emplace(server.level()).values, is_left_out);
  }
  return ResolveDefaults({.server = without ? &*without : &server.level(),
                          .model = &model_defaults,
                          .api = &api},
                         call.params, given, model, num_prompt_tokens);
}

int64_t MostNewTokens(const ModelDescription& model, const Limits& limits) {
  constexpr int kShortestPrompt = 1;  // tokens
  const GenerationParams params;
  const int64_t in_context =
      model.max_context - NumContextTokens(model, kShortestPrompt, params);
  const int64_t in_pages = RoomInPages(model, kShortestPrompt, params);
  return std::max<int64_t>(1,
                           std::min({in_context, in_pages, limits.max_tokens}));
}

std::string SearchWarning(const Call& call,
                          const GenerationDefaults& model_defaults) {
  constexpr std::string_view kDoSample = "do_sample";
  std::vector<std::string_view> given;
  std::string_view asking = "num_beams";
  for (const auto& [param, name] : call.given) {
    // The field that selects the search gives do_sample false.
    const bool asks = param == kDoSample && name != kDoSample;
    if (asks) asking = name;
    if (!asks) given.push_back(param);
  }
  return SearchNote(model_defaults, given, call.params, asking,
                    "do_sample true");
}

std::string SpeculationWarning(const Call& call, const ServerDefaults& server,
                               const GenerationDefaults& model_defaults,
                               const ModelDescription& model) {
  constexpr int kShortestPrompt = 1;  // tokens
  std::vector<std::string_view> given;
  for (const GivenParam& param : call.given) given.push_back(param.param);
  const ApiDefaults api = ApiDefaultsOf(call);
  return SpeculationNote(
      {.server = &server.level(), .model = &model_defaults, .api = &api},
      call.params, given, model, kShortestPrompt);
}

std::string ConstraintWarning(const Call& call, const ServerDefaults& server,
                              const GenerationParams& params) {
  constexpr std::string_view kConstraint = "constraint";
  if (!server.level().params.constraint || params.constraint ||
      call.Gives(kConstraint)) {
    return "";
  }
  const auto warning_for = [](std::string_view name) {
    return Concat("the server's default constraint is left out, because it ",
                  "does not go with ", name);
  };
  if (IsLeftOut(call, kConstraint)) return warning_for("split_sentences true");
  for (const std::string_view param :
       {"allowed_sequences", "allowed_token_ids", "forced_bos_token_id",
        "forced_eos_token_id"}) {
    if (call.Gives(param)) return warning_for(call.NameOf(param));
  }
  return "";
}

std::vector<std::string> IdleWarnings(const Call& call,
                                      const GenerationParams& params) {
  std::vector<std::string_view> given;
  for (const GivenParam& field : call.given) given.push_back(field.param);
  return IdleFieldWarnings(params, given, [&](std::string_view param) {
    return std::string(call.NameOf(param));
  });
}

absl::Status CheckRoom(const Call& call, const GenerationParams& params,
                       const ModelDescription& model) {
  constexpr std::string_view kN = "num_return_sequences";
  const bool makes_beams =
      IsBeamSearch(params) && call.Gives(kN) && !call.Gives("num_beams");
  const int64_t n = call.params.num_return_sequences;
  if (!makes_beams || n <= model.limits.max_beams) return absl::OkStatus();
  return InvalidField(FieldName{call.NameOf(kN)}, " must be at most ",
                      Limit(model.limits.max_beams),
                      " (--max-beams, what a step has room for)", Got(n));
}

}  // namespace espalier::openai
