#include "request/generation_defaults.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"
#include "request/decoder_prompt.h"
#include "request/validate_params.h"

namespace espalier {
namespace {

// The prompt that the defaults are for.
struct PromptRoom {
  int64_t num_tokens = 0;
  int64_t num_left = 0;  // left in the model's context; >= 1
};

// A field of generation_config.json.
struct DefaultField {
  std::string_view name;
  std::string_view param;  // that it sets, in the request format
  bool (*differs)(const GenerationParams&);
  void (*set)(const GenerationDefaults&, const PromptRoom&, GenerationParams*);
  // Enables the option that this field depends on.
  void (*enable)(GenerationParams*) = [](GenerationParams*) {};
};

using P = GenerationParams;

template <auto Member>
bool Differs(const P& params) {
  return params.*Member != P().*Member;
}

template <auto Member>
void Copy(const GenerationDefaults& defaults, const PromptRoom&, P* params) {
  params->*Member = defaults.params.*Member;
}

void Sample(P* params) { params->do_sample = true; }
void HaveABeamAGroup(P* params) {
  params->num_beams = std::max<int64_t>(1, params->num_beam_groups);
}
void HaveGroups(P* params) { params->num_beams = params->num_beam_groups = 2; }

void SetMaxNewTokens(const GenerationDefaults& defaults, const PromptRoom& room,
                     P* params) {
  params->max_new_tokens =
      std::min(*defaults.params.max_new_tokens, room.num_left);
}

void SetMaxLength(const GenerationDefaults& defaults, const PromptRoom& room,
                  P* params) {
  const int64_t wanted =
      std::max<int64_t>(1, *defaults.max_length - room.num_tokens);
  params->max_new_tokens = std::min(wanted, room.num_left);
}

void SetMinLength(const GenerationDefaults& defaults, const PromptRoom& room,
                  P* params) {
  params->min_new_tokens =
      std::max<int64_t>(0, *defaults.min_length - room.num_tokens);
}

template <auto Member>
constexpr DefaultField Field(std::string_view name,
                             std::string_view param = "") {
  return {name, param.empty() ? name : param, Differs<Member>, Copy<Member>};
}
template <auto Member>
constexpr DefaultField SamplingField(std::string_view name) {
  return {name, name, Differs<Member>, Copy<Member>, Sample};
}

// Fields that others depend on come first.
constexpr DefaultField kFields[] = {
    Field<&P::eos_token_id>("eos_token_id"),
    Field<&P::stop>("stop_strings", "stop"),
    Field<&P::do_sample>("do_sample"),
    Field<&P::num_beams>("num_beams"),
    {"num_beam_groups", "num_beam_groups", Differs<&P::num_beam_groups>,
     Copy<&P::num_beam_groups>, HaveABeamAGroup},
    {"diversity_penalty", "diversity_penalty", Differs<&P::diversity_penalty>,
     Copy<&P::diversity_penalty>, HaveGroups},
    SamplingField<&P::num_return_sequences>("num_return_sequences"),
    Field<&P::length_penalty>("length_penalty"),
    Field<&P::early_stopping>("early_stopping"),
    SamplingField<&P::temperature>("temperature"),
    SamplingField<&P::top_k>("top_k"),
    SamplingField<&P::top_p>("top_p"),
    SamplingField<&P::min_p>("min_p"),
    SamplingField<&P::typical_p>("typical_p"),
    Field<&P::repetition_penalty>("repetition_penalty"),
    Field<&P::no_repeat_ngram_size>("no_repeat_ngram_size"),
    Field<&P::exponential_decay_length_penalty>(
        "exponential_decay_length_penalty"),
    Field<&P::renormalize_logits>("renormalize_logits"),
    Field<&P::sequence_bias>("sequence_bias"),
    Field<&P::bad_words_ids>("bad_words_ids"),
    Field<&P::suppress_tokens>("suppress_tokens"),
    Field<&P::begin_suppress_tokens>("begin_suppress_tokens"),
    Field<&P::forced_bos_token_id>("forced_bos_token_id"),
    Field<&P::forced_eos_token_id>("forced_eos_token_id"),
    {"max_new_tokens", "max_new_tokens", Differs<&P::max_new_tokens>,
     SetMaxNewTokens},
    {"max_length", "max_new_tokens", Differs<&P::max_new_tokens>, SetMaxLength},
    Field<&P::min_new_tokens>("min_new_tokens"),
    {"min_length", "min_new_tokens", Differs<&P::min_new_tokens>, SetMinLength},
};

// Null if there is none.
const DefaultField* FindField(std::string_view name) {
  const auto* const field =
      std::ranges::find(kFields, name, &DefaultField::name);
  return field == std::end(kFields) ? nullptr : field;
}

bool Has(const GenerationDefaults& defaults, std::string_view name) {
  return std::ranges::any_of(
      defaults.fields, [&](const auto& field) { return field.first == name; });
}

// Swaps the params that may be large and that no default depends on. List
// defaults are applied last, when these params are back in place.
void SwapLargeParams(P* a, P* b) {
  a->stop_token_ids.swap(b->stop_token_ids);
  a->stop.swap(b->stop);
  std::swap(a->include_stop, b->include_stop);
  a->eos_token_id.swap(b->eos_token_id);
  a->logit_bias.swap(b->logit_bias);
  a->sequence_bias.swap(b->sequence_bias);
  a->bad_words_ids.swap(b->bad_words_ids);
  a->bad_words.swap(b->bad_words);
  a->suppress_tokens.swap(b->suppress_tokens);
  a->begin_suppress_tokens.swap(b->begin_suppress_tokens);
  a->allowed_token_ids.swap(b->allowed_token_ids);
  a->allowed_sequences.swap(b->allowed_sequences);
  a->cache_salt.swap(b->cache_salt);
  a->tenant.swap(b->tenant);
  a->decoder_prompt_tokens.swap(b->decoder_prompt_tokens);
}

// Returns a copy of `params` without those large params.
P WithoutLargeParams(P* params) {
  P large;
  SwapLargeParams(params, &large);
  P rest = *params;
  SwapLargeParams(params, &large);
  return rest;
}

bool IsList(std::string_view param) {
  return param == "eos_token_id" || param == "stop" ||
         param == "bad_words_ids" || param == "suppress_tokens" ||
         param == "begin_suppress_tokens" || param == "sequence_bias";
}

// True if `param` is redundant with allowed_sequences, which determine how the
// output begins and ends and how long it can be.
bool IsOfAllowedSequences(std::string_view param) {
  return param == "stop" || param == "max_new_tokens" ||
         param == "min_new_tokens" || param == "forced_bos_token_id" ||
         param == "forced_eos_token_id";
}

constexpr std::string_view kSamplingParams[] = {
    "do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p"};

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// True if a request gives num_beams above 1 and no sampling param.
bool AsksForSearch(std::span<const std::string_view> given, const P& params) {
  return Contains(given, "num_beams") && params.num_beams > 1 &&
         !params.stochastic &&
         std::ranges::none_of(kSamplingParams, [&](std::string_view name) {
           return Contains(given, name);
         });
}

// True if a default may set `field`: the request leaves it open.
bool IsOpen(const DefaultField& field, std::span<const std::string_view> given,
            const P& params) {
  if (Contains(given, field.param)) return false;
  if (field.param == "do_sample" && AsksForSearch(given, params)) return false;
  return !params.allowed_sequences || !IsOfAllowedSequences(field.param);
}

// True if a request with these params passes ValidateParams.
bool IsValid(const ModelDescription& model, int64_t num_prompt_tokens,
             P params) {
  params.bad_words.clear();     // has no tokens yet
  params.include_stop = false;  // may belong to a stop that is still open
  return ValidateParams(model, num_prompt_tokens, &params).ok();
}

// Sets num_beams to its default if the request leaves it open and its search is
// invalid without it, so that the error describes the search that the defaults
// would have run.
void TakeBeamsOfWrongSearch(const GenerationDefaults& defaults,
                            std::span<const std::string_view> given,
                            const ModelDescription& model, P* params,
                            std::vector<bool>* is_taken) {
  for (size_t i = 0; i < defaults.fields.size(); ++i) {
    const DefaultField& field = *FindField(defaults.fields[i].first);
    const bool is_left = field.param == "num_beams" && !(*is_taken)[i] &&
                         IsOpen(field, given, *params);
    if (!is_left || ValidateSearch(model, *params).ok()) continue;
    params->num_beams = defaults.params.num_beams;
    (*is_taken)[i] = true;
  }
}

int64_t MostSequences(const P& params) {
  return std::max(
      {params.num_beams, params.num_beam_groups, params.num_return_sequences});
}

// A model takes it from its own files.
absl::Status CheckDecoderStart(const GenerationDefaults& defaults,
                               const ModelDescription& model) {
  const std::optional<std::string>& start = defaults.decoder_start_token_id;
  if (!model.encoder || !start) return absl::OkStatus();
  const std::vector<TokenId>& prompt = model.encoder->decoder_prompt;
  if (prompt.size() == 1 && *start == std::to_string(prompt[0])) {
    return absl::OkStatus();
  }
  return InvalidField(
      "`decoder_start_token_id` must be what the model's decoder begins with, ",
      prompt[0], Got(Shown(*start)));
}

// "top_k 20 and top_p 0.8"
std::string JoinFields(const NamedValues& fields) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : fields) {
    texts.push_back(Concat(name, " ", value));
  }
  return JoinWithAnd(texts);
}

absl::Status CheckDefault(const DefaultField& field,
                          const GenerationDefaults& defaults,
                          const ModelDescription& model) {
  P probe;
  field.set(defaults, {1, std::max(1, model.max_context - 1)}, &probe);
  field.enable(&probe);
  return ValidateParams(WithAnyBeams(model), 1, &probe);
}

}  // namespace

std::string NameUnsupported(const GenerationDefaults& defaults) {
  return Concat(defaults.path, ": ", JoinFields(defaults.unsupported),
                defaults.unsupported.size() == 1 ? " is" : " are",
                " not supported");
}

std::string UnsupportedWarning(const GenerationDefaults& defaults) {
  if (defaults.unsupported.empty()) return "";
  return NameUnsupported(defaults) + ", and ignored";
}

std::vector<DefaultName> DefaultNames() {
  std::vector<DefaultName> names;
  for (const DefaultField& field : kFields) {
    names.push_back({field.name, field.param});
  }
  return names;
}

std::vector<std::string_view> DefaultParams() {
  std::vector<std::string_view> names;
  for (const DefaultField& field : kFields) names.push_back(field.param);
  return names;
}

std::vector<std::string_view> DifferingParams(const GenerationParams& params) {
  std::vector<std::string_view> names;
  for (const DefaultField& field : kFields) {
    if (field.differs(params)) names.push_back(field.param);
  }
  return names;
}

void LeaveOut(std::string_view param, GenerationDefaults* defaults) {
  const auto is_it = [&](const auto& field) {
    return FindField(field.first)->param == param;
  };
  std::ranges::copy_if(defaults->fields,
                       std::back_inserter(defaults->unsupported), is_it);
  std::erase_if(defaults->fields, is_it);
}

void LeaveOutHostSelection(const ModelDescription& model,
                           GenerationDefaults* defaults) {
  for (const std::string_view param : {"renormalize_logits", "sequence_bias"}) {
    P probe;
    probe.num_beams = 2;
    const DefaultField& field = *FindField(param);
    field.set(*defaults, {}, &probe);
    if (!ValidateHostSelection(model, probe).ok()) LeaveOut(param, defaults);
  }
}

NamedValues LeftOutForSearch(const GenerationDefaults& defaults,
                             std::span<const std::string_view> given,
                             const GenerationParams& params) {
  NamedValues left;
  if (!defaults.params.do_sample || !AsksForSearch(given, params)) return left;
  for (const auto& field : defaults.fields) {
    if (Contains(kSamplingParams, field.first)) left.push_back(field);
  }
  return left;
}

std::string SearchNote(const GenerationDefaults& defaults,
                       std::span<const std::string_view> given,
                       const GenerationParams& params,
                       std::string_view num_beams, std::string_view do_sample) {
  const NamedValues left = LeftOutForSearch(defaults, given, params);
  if (left.empty()) return "";
  return Concat(num_beams, " asks for the search: ", JoinFields(left), " of ",
                defaults.path, left.size() == 1 ? " is" : " are", " left out; ",
                do_sample, " draws beams");
}

ModelDescription WithAnyBeams(ModelDescription model) {
  model.limits.max_beams = StepLimits().max_beams;
  return model;
}

absl::Status CheckDefaults(const GenerationDefaults& defaults,
                           const ModelDescription& model) {
  RETURN_IF_ERROR(Annotate(CheckDecoderStart(defaults, model), defaults.path));
  for (const DefaultField& field : kFields) {
    if (!Has(defaults, field.name)) continue;
    RETURN_IF_ERROR(
        Annotate(CheckDefault(field, defaults, model), defaults.path));
  }
  return absl::OkStatus();
}

std::optional<TokenId> ForcedBosByDefault(const GenerationDefaults& defaults,
                                          const ModelDescription& model,
                                          int64_t num_prompt_tokens,
                                          const GenerationParams& params) {
  const std::optional<int64_t>& token = defaults.params.forced_bos_token_id;
  if (!token || NumContextTokens(model, num_prompt_tokens, params) != 1) {
    return std::nullopt;
  }
  return static_cast<TokenId>(*token);
}

NamedValues TakeDefaults(const GenerationDefaults& defaults,
                         std::span<const std::string_view> given,
                         const ModelDescription& steps_model,
                         int64_t num_prompt_tokens, GenerationParams* params) {
  std::optional<ModelDescription> with_any_beams;
  if (MostSequences(defaults.params) > steps_model.limits.max_beams) {
    with_any_beams = WithAnyBeams(steps_model);
  }
  const ModelDescription& model =
      with_any_beams ? *with_any_beams : steps_model;
  const int64_t num_in_context =
      NumContextTokens(model, num_prompt_tokens, *params);
  const PromptRoom room = {num_in_context, model.max_context - num_in_context};
  if (defaults.empty() || room.num_left < 1) return {};
  std::vector<bool> is_taken(defaults.fields.size());
  const auto take_all = [&](bool are_lists, P* rest) {
    for (size_t i = 0; i < defaults.fields.size(); ++i) {
      const DefaultField& field = *FindField(defaults.fields[i].first);
      if (IsList(field.param) != are_lists || !IsOpen(field, given, *params)) {
        continue;
      }
      if (field.param == "forced_bos_token_id" &&
          !ForcedBosByDefault(defaults, model, num_prompt_tokens, *params)) {
        continue;
      }
      P with = *rest;
      field.set(defaults, room, &with);
      if (!IsValid(model, num_prompt_tokens, with)) continue;
      *rest = std::move(with);
      is_taken[i] = true;
    }
  };
  P rest = WithoutLargeParams(params);
  take_all(/*are_lists=*/false, &rest);
  TakeBeamsOfWrongSearch(defaults, given, model, &rest, &is_taken);
  SwapLargeParams(params, &rest);
  *params = std::move(rest);
  take_all(/*are_lists=*/true, params);
  NamedValues taken;
  for (size_t i = 0; i < is_taken.size(); ++i) {
    if (is_taken[i]) taken.push_back(defaults.fields[i]);
  }
  return taken;
}

absl::Status NameDefaults(const absl::Status& error, const NamedValues& taken,
                          std::string_view origin) {
  if (error.ok()) return error;
  std::string origins;
  for (const auto& [name, value] : taken) {
    // max_length makes max_new_tokens, whose name this is not.
    if (!NamesField(error, name == "max_length" ? "max_new_tokens" : name)) {
      continue;
    }
    origins += MessageParts("; ", FieldName{name}, " is ", Shown(value), " by ",
                            origin);
  }
  return origins.empty() ? error : AppendParts(error, origins);
}

}  // namespace espalier
