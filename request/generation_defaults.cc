#include "request/generation_defaults.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "base/wording.h"
#include "request/decoder_prompt.h"
#include "request/param_fields.h"
#include "request/validate_host_selection.h"

namespace espalier {
namespace {

// A field of generation_config.json. It sets a param of the request format as
// it stands, or by `set`, which depends on the prompt.
struct DefaultField {
  std::string_view name;
  std::string_view param = name;
  void (*set)(const GenerationDefaults&, const PromptRoom&,
              GenerationParams*) = nullptr;
  // Enables the option that this field depends on.
  void (*enable)(GenerationParams*) = [](GenerationParams*) {};
};

using P = GenerationParams;

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

// Fields that others depend on come first.
constexpr DefaultField kDefaultFields[] = {
    {"eos_token_id"},
    {"stop_strings", "stop"},
    {"do_sample"},
    {"num_beams"},
    {.name = "num_beam_groups", .enable = HaveABeamAGroup},
    {.name = "diversity_penalty", .enable = HaveGroups},
    {.name = "num_return_sequences", .enable = Sample},
    {"length_penalty"},
    {"early_stopping"},
    {.name = "temperature", .enable = Sample},
    {.name = "top_k", .enable = Sample},
    {.name = "top_p", .enable = Sample},
    {.name = "min_p", .enable = Sample},
    {.name = "typical_p", .enable = Sample},
    {"repetition_penalty"},
    {"no_repeat_ngram_size"},
    {"exponential_decay_length_penalty"},
    {"renormalize_logits"},
    {"sequence_bias"},
    {"bad_words_ids"},
    {"suppress_tokens"},
    {"begin_suppress_tokens"},
    {"forced_bos_token_id"},
    {"forced_eos_token_id"},
    {"max_new_tokens", "max_new_tokens", SetMaxNewTokens},
    {"max_length", "max_new_tokens", SetMaxLength},
    {"min_new_tokens"},
    {"min_length", "min_new_tokens", SetMinLength},
};

// Null if there is none.
const DefaultField* FindField(std::string_view name) {
  const auto* const field =
      std::ranges::find(kDefaultFields, name, &DefaultField::name);
  return field == std::end(kDefaultFields) ? nullptr : field;
}

bool Has(const GenerationDefaults& defaults, std::string_view name) {
  return std::ranges::any_of(
      defaults.fields, [&](const auto& field) { return field.first == name; });
}

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// True for do_sample and the fields that it enables.
bool IsOfSampling(std::string_view param) {
  const ParamField* const field = FindParamField(param);
  return param == "do_sample" || (field != nullptr && field->Is(kSampledOnly));
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
  const PromptRoom room = {1, std::max(1, model.max_context - 1)};
  P probe;
  probe.max_new_tokens = MaxNewTokensOf(defaults, room);
  SetDefault(field.name, defaults, room, &probe);
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
  for (const DefaultField& field : kDefaultFields) {
    names.push_back({field.name, field.param});
  }
  return names;
}

std::vector<TokenId> EndIdsByDefault(const GenerationDefaults& defaults,
                                     const ModelDescription& model) {
  if (!Has(defaults, "eos_token_id")) return model.eos_token_ids;
  const SharedList<int64_t>& ids = *defaults.params.eos_token_id;
  return {ids.begin(), ids.end()};
}

std::vector<std::string_view> DefaultParams() {
  std::vector<std::string_view> names;
  for (const DefaultField& field : kDefaultFields) names.push_back(field.param);
  return names;
}

std::vector<std::string_view> DifferingParams(const GenerationParams& params) {
  std::vector<std::string_view> names;
  for (const DefaultField& field : kDefaultFields) {
    if (!ParamNamed(field.param).IsDefault(params)) {
      names.push_back(field.param);
    }
  }
  return names;
}

std::string_view ParamOfDefault(std::string_view name) {
  return FindField(name)->param;
}

void SetDefault(std::string_view name, const GenerationDefaults& defaults,
                const PromptRoom& room, GenerationParams* params) {
  const DefaultField& field = *FindField(name);
  if (field.set != nullptr) return field.set(defaults, room, params);
  ParamNamed(field.param).member.copy(defaults.params, params);
}

std::optional<int64_t> MaxNewTokensOf(const GenerationDefaults& defaults,
                                      const PromptRoom& room) {
  GenerationParams params;
  for (const auto& [name, value] : defaults.fields) {
    if (params.max_new_tokens) break;
    if (ParamOfDefault(name) == "max_new_tokens") {
      SetDefault(name, defaults, room, &params);
    }
  }
  return params.max_new_tokens;
}

bool AsksForSearch(std::span<const std::string_view> given,
                   const GenerationParams& params) {
  return Contains(given, "num_beams") && params.num_beams > 1 &&
         !params.stochastic && std::ranges::none_of(given, IsOfSampling);
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
    SetDefault(param, *defaults, {}, &probe);
    // A default must not refuse what a request sets beside it.
    probe.repetition_penalty = 2;
    if (!ValidateHostSelection(model, probe).ok()) LeaveOut(param, defaults);
  }
}

NamedValues LeftOutForSearch(const GenerationDefaults& defaults,
                             std::span<const std::string_view> given,
                             const GenerationParams& params) {
  NamedValues left;
  if (!defaults.params.do_sample || !AsksForSearch(given, params)) return left;
  for (const auto& field : defaults.fields) {
    if (IsOfSampling(FindField(field.first)->param)) left.push_back(field);
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
  for (const DefaultField& field : kDefaultFields) {
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
