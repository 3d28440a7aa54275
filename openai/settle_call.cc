#include "openai/settle_call.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <variant>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "openai/error.h"
#include "openai/server_defaults.h"
#include "text/chat/final_message.h"

namespace espalier::openai {
namespace {

// A param of a call and its limit.
struct Limited {
  std::string_view param;
  int64_t value;
  int64_t limit;
  std::string_view flag;
};

// The tighter of `limit` and --max-choices: one prompt makes no more sequences
// than all prompts may.
Limited LimitOfSequences(std::string_view param, int64_t value, int64_t limit,
                         std::string_view flag, const Limits& limits) {
  if (limits.max_choices < limit) {
    return {param, value, limits.max_choices, "--max-choices"};
  }
  return {param, value, limit, flag};
}

// `server` is null where no defaults have been taken.
absl::Status CheckLimit(const Limited& limited, const Call& call,
                        const ServerDefaults* server) {
  const auto& [param, value, limit, flag] = limited;
  if (value >= 1 && value <= limit) return absl::OkStatus();
  const std::string range =
      MessageParts(FieldName{call.NameOf(param)}, " must be in [1, ",
                   Limit(limit), "] (", flag, ")");
  if (server == nullptr || call.Gives(param)) {
    return InvalidField(range, Got(value));
  }
  bool is_servers = false;
  for (const auto& [name, json] : server->values()) {
    if (name == param) is_servers = true;
  }
  std::string option(param);
  std::ranges::replace(option, '_', '-');
  return InvalidField(
      range,
      Got(is_servers ? "the server's" : "the model's", " default, ", value),
      ": give another, here or as --", option, " of the server");
}

// vLLM's: beams as many as n, or as best_of.
absl::Status SettleBeams(CallDraft* draft) {
  if (!draft->use_beam_search) return absl::OkStatus();
  constexpr std::string_view kName = "use_beam_search";
  Call& call = draft->call;
  GenerationParams& params = call.params;
  if (!*draft->use_beam_search) {
    if (IsBeamSearch(params)) {
      return InvalidField(
          FieldName{kName}, " must be true with ",
          params.stochastic ? "`stochastic`" : "`num_beams` above 1",
          Got("false"));
    }
    if (!call.Gives("num_beams")) MarkGiven("num_beams", kName, draft);
    return absl::OkStatus();
  }
  if (!call.Gives("num_beams")) {
    params.num_beams = params.best_of.value_or(params.num_return_sequences);
    const bool is_best_of = params.best_of.has_value();
    const std::string_view name =
        call.NameOf(is_best_of ? "best_of" : "num_return_sequences");
    MarkGiven("num_beams", name, draft);
    params.best_of.reset();
    std::erase_if(call.given, [](const GivenParam& given) {
      return given.param == "best_of";
    });
  }
  if (!call.Gives("do_sample")) MarkGiven("do_sample", kName, draft);
  return absl::OkStatus();
}

// Takes fields of draws off a search, with a warning: clients send a
// temperature with everything, and vLLM and transformers search all the same. A
// strict call keeps them, and the engine refuses it.
void IgnoreSampling(CallDraft* draft) {
  Call& call = draft->call;
  GenerationParams& params = call.params;
  const bool has_beams =
      IsBeamSearch(params) || draft->use_beam_search.value_or(false);
  if (!has_beams || params.stochastic || params.do_sample || draft->strict) {
    return;
  }
  for (const ParamField& field : ParamFields()) {
    // Greedy draws are a search.
    const bool is_greedy =
        field.name == "temperature" && params.temperature <= 0;
    if (!field.Is(kSampledOnly) || field.IsDefault(params) || is_greedy) {
      continue;
    }
    call.warnings.push_back(
        Concat(call.NameOf(field.name), " ", field.member.show(params),
               " is ignored: beams are searched, not drawn; do_sample true ",
               "draws them"));
    field.member.copy(GenerationParams(), &params);
  }
}

// Log-probabilities of a chat: whether, and how many at a place.
absl::Status SettleChatLogProbs(CallDraft* draft) {
  const bool has = draft->has_logprobs.value_or(false);
  const int64_t top = draft->top_logprobs.value_or(0);
  if (!has && top != 0) {
    return InvalidField("`top_logprobs` needs `logprobs` true", Got(top));
  }
  if (has) {
    draft->call.params.logprobs = top;
    MarkGiven("logprobs", "top_logprobs", draft);
  } else if (draft->has_logprobs) {
    MarkGiven("logprobs", "logprobs", draft);  // false, whatever the default
  }
  return absl::OkStatus();
}

// The prompt in front of the text, and its log-probabilities as well; with
// max_tokens 0 nothing else.
absl::Status SettleEcho(CallDraft* draft) {
  Call& call = draft->call;
  GenerationParams& params = call.params;
  call.shows_prompt_logprobs = call.Gives("prompt_logprobs");
  // Defaults of a server, which have no prompts, have no echo either.
  const bool can_echo = call.api == Api::kCompletions && !call.prompts.empty();
  if (!call.echo && can_echo && params.max_new_tokens == 0) {
    return InvalidField(FieldName{call.NameOf("max_new_tokens")},
                        " must be at least 1 without echo", Got("0"));
  }
  if (!call.echo) return absl::OkStatus();
  if (call.api == Api::kChat) {
    if (call.chat->continue_final_message) return absl::OkStatus();
    return InvalidField(
        "`echo` must be false without continue_final_message, whose message it "
        "is of",
        Got("true"));
  }
  if (params.logprobs && !params.prompt_logprobs) {
    params.prompt_logprobs = params.logprobs;
    MarkGiven("prompt_logprobs", call.NameOf("logprobs"), draft);
  }
  if (params.max_new_tokens != 0) return absl::OkStatus();
  if (params.num_return_sequences != 1) {
    return InvalidField(FieldName{call.NameOf("num_return_sequences")},
                        " must be 1 with echo and ",
                        FieldName{call.NameOf("max_new_tokens")}, " 0",
                        Got(params.num_return_sequences));
  }
  if (IsBeamSearch(params) || params.best_of) {
    return InvalidField(FieldName{call.NameOf("max_new_tokens")},
                        " must be at least 1 with beams and `best_of`",
                        Got("0"));
  }
  call.prompt_only = true;
  // Without log-probabilities there is nothing to compute; a token is, and is
  // not shown.
  if (!params.prompt_logprobs) params.max_new_tokens = 1;
  for (const std::string_view param :
       {"num_beams", "num_return_sequences", "do_sample"}) {
    if (!call.Gives(param)) MarkGiven(param, param, draft);
  }
  return absl::OkStatus();
}

// A response has one answer, the best, whatever the defaults return.
absl::Status SettleResponse(CallDraft* draft) {
  constexpr std::string_view kN = "num_return_sequences";
  const Call& call = draft->call;
  const int64_t n = call.params.num_return_sequences;
  if (n != 1) {
    return InvalidField(
        FieldName{call.NameOf(kN)},
        " must be 1 in /v1/responses, whose answer is the best alone", Got(n));
  }
  if (!call.Gives(kN)) MarkGiven(kN, kN, draft);
  return absl::OkStatus();
}

absl::Status CheckStops(const Call& call) {
  const int64_t num_stops = std::ssize(call.params.stop);
  const int64_t limit = call.limits.max_stop;
  if (num_stops <= limit) return absl::OkStatus();
  return InvalidField("`stop` must have at most ", Limit(limit),
                      " strings (--max-stop)", Got(num_stops));
}

absl::Status CheckStream(const CallDraft& draft) {
  const Call& call = draft.call;
  if (draft.has_stream_options && !call.stream) {
    return InvalidField("`stream_options` needs stream true, and it is false");
  }
  if (call.stream_beams && !call.stream) {
    return InvalidField("`stream_beams` needs stream true, and it is false");
  }
  return absl::OkStatus();
}

absl::Status CheckTextOptions(const Call& call) {
  const bool is_text =
      std::ranges::any_of(call.prompts, [](const auto& prompt) {
        return std::holds_alternative<std::string>(prompt);
      });
  if (!call.template_name.empty() && !is_text) {
    return InvalidField("`template` needs a prompt that is a text",
                        Got(ShownInQuotes(call.template_name)));
  }
  if (call.parse_special && !is_text) {
    return InvalidField("`parse_special` needs a prompt that is a text",
                        Got("true"));
  }
  if (call.split_sentences.value_or(false) && !is_text) {
    return InvalidField("`split_sentences` needs a prompt that is a text",
                        Got("true"));
  }
  if (!call.template_name.empty() && call.add_special_tokens == false) {
    return InvalidField("`add_special_tokens` must be true with template",
                        Got("false"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckLimits(const Call& call, const GenerationParams& params,
                         const ServerDefaults* server) {
  const Limits& limits = call.limits;
  const bool has_beams = IsBeamSearch(params);
  const Limited beams =
      LimitOfSequences("num_beams", params.num_beams, limits.max_num_beams,
                       "--max-num-beams", limits);
  const Limited returned =
      LimitOfSequences("num_return_sequences", params.num_return_sequences,
                       has_beams ? limits.max_num_beams : limits.max_n,
                       has_beams ? "--max-num-beams" : "--max-n", limits);
  // Default beams are at least the call's n, so an error names n.
  if (call.Gives("num_return_sequences") && !call.Gives("num_beams")) {
    RETURN_IF_ERROR(CheckLimit(returned, call, server));
  }
  RETURN_IF_ERROR(CheckLimit(beams, call, server));
  RETURN_IF_ERROR(CheckLimit(returned, call, server));
  if (params.best_of) {
    RETURN_IF_ERROR(
        CheckLimit(LimitOfSequences("best_of", *params.best_of, limits.max_n,
                                    "--max-n", limits),
                   call, server));
  }
  if (params.max_new_tokens && !call.prompt_only) {
    RETURN_IF_ERROR(CheckLimit({"max_new_tokens", *params.max_new_tokens,
                                limits.max_tokens, "--max-tokens-limit"},
                               call, server));
  }
  const int64_t width = std::max({params.num_beams, params.num_return_sequences,
                                  params.best_of.value_or(1)});
  const int64_t num_prompts = call.chat ? 1 : std::ssize(call.prompts);
  if (width * num_prompts <= limits.max_choices) return absl::OkStatus();
  return InvalidField("`prompt` must make at most ", Limit(limits.max_choices),
                      DependsOnPrompts{},
                      " sequences of all prompts (--max-choices)",
                      Got(num_prompts, " times ", width));
}

absl::Status SettleCall(CallDraft* draft) {
  if (!draft->unconstrained_by.empty() && !draft->call.Gives("constraint")) {
    MarkGiven("constraint", draft->unconstrained_by, draft);
  }
  RETURN_IF_ERROR(SettleBeams(draft));
  IgnoreSampling(draft);
  if (draft->call.api == Api::kChat) {
    RETURN_IF_ERROR(SettleChatLogProbs(draft));
  }
  if (draft->call.api == Api::kResponses) {
    RETURN_IF_ERROR(SettleResponse(draft));
  }
  RETURN_IF_ERROR(SettleEcho(draft));
  RETURN_IF_ERROR(CheckStops(draft->call));
  RETURN_IF_ERROR(CheckLimits(draft->call, draft->call.params, nullptr));
  return CheckStream(*draft);
}

absl::Status SettlePrompts(CallDraft* draft) {
  RETURN_IF_ERROR(CheckTextOptions(draft->call));
  if (!draft->call.chat) return absl::OkStatus();
  const auto& adds_prompt = draft->adds_generation_prompt;
  RETURN_IF_ERROR(InWordsOf(
      draft->call, SettleFinalMessage(draft->continue_final_message,
                                      adds_prompt ? &*adds_prompt : nullptr,
                                      &*draft->call.chat)));
  const std::string& decoder_prompt = draft->call.params.decoder_prompt;
  if (!draft->call.chat->continue_final_message || decoder_prompt.empty()) {
    return absl::OkStatus();
  }
  return InvalidField(
      "`decoder_prompt` must be empty where the last message is continued",
      Got(ShownInQuotes(decoder_prompt)));
}

}  // namespace espalier::openai
