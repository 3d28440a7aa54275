#include "openai/server_defaults.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/field_error.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "openai/call_fields.h"
#include "openai/error.h"
#include "openai/object_fields.h"
#include "openai/resolve_params.h"
#include "openai/settle_call.h"
#include "request/other_names.h"
#include "request/param_fields.h"

namespace espalier::openai {
namespace {

// Params that others depend on, which come first.
constexpr std::string_view kFirst[] = {"stochastic", "do_sample", "num_beams",
                                       "num_beam_groups",
                                       "num_return_sequences"};
int PlaceOf(std::string_view param) {
  const auto* const found = std::ranges::find(kFirst, param);
  return static_cast<int>(found - std::begin(kFirst));
}

bool IsDefaultable(const KnownField& field) {
  // As text it is of one source; a token that names a language may be.
  if (field.param != nullptr) return field.param->name != "decoder_prompt";
  const std::string_view name = field.call->name;
  return name == "use_beam_search" || name == "top_k" || name == "seed" ||
         name == "include_stop_str_in_output" || name == "split_sentences";
}

// Returns the error for a field that completions do not have.
std::string AboutUnknown(const ObjectFields& fields) {
  const std::string& name = fields.unknown()[0];
  const OtherName* const other = FindOtherName(name);
  if ((other == nullptr ? name : other->ours) == "params") {
    return Concat("unknown field ", ShownInQuotes(name),
                  "; its fields stand at the top level");
  }
  if (IsInput(name) || IsCallField(name)) {
    return Concat(name, " must not have a default");
  }
  return fields.AboutUnknown(0);
}

// The value of a param that was set in another way than by its own text.
std::string JsonOf(std::string_view param, const GenerationParams& params) {
  if (param == "num_beams") return Concat(params.num_beams);
  if (param == "top_k") return Concat(params.top_k);
  if (param == "seed") return Concat(*params.seed);
  CHECK(param == "do_sample") << param;
  return Concat(params.do_sample);
}

}  // namespace

absl::StatusOr<ServerDefaults> ServerDefaults::Read(std::string_view text,
                                                    const Limits& limits) {
  ObjectFields fields(kInCompletions);
  const auto take = [&](int, std::string_view key, const JsonText& value) {
    fields.Add(key, value);
  };
  ASSIGN_OR_RETURN(const JsonText json, ScanJson(text, 1, take));
  if (!json.is_object()) {
    return InvalidArgument("the defaults must be a JSON object, got ",
                           Shown(json.text));
  }
  ServerDefaults defaults;
  CallDraft draft;
  draft.call.limits = limits;
  draft.strict = true;  // there is no answer to warn in
  for (const ObjectFields::Field& field : fields.Take()) {
    if (!IsDefaultable(field.field)) {
      return InvalidField(FieldName{field.name}, " must not have a default",
                          Got(Shown(field.value.text)));
    }
    RETURN_IF_ERROR(
        ReadCallField(field.field, field.name, field.value, limits, &draft));
  }
  if (!fields.unknown().empty()) {
    return InvalidArgument(AboutUnknown(fields));
  }
  RETURN_IF_ERROR(SettleCall(&draft));
  defaults.call_ = std::move(draft.call);
  for (const auto& [param, name] : defaults.call_.given) {
    const std::string_view own = draft.TextOf(param);
    if (param == "seed" && !defaults.call_.params.seed) continue;  // -1
    defaults.level_.values.emplace_back(
        param, own.empty() || param == "top_k"
                   ? JsonOf(param, defaults.call_.params)
                   : std::string(own));
  }
  std::ranges::stable_sort(defaults.level_.values, {}, [](const auto& value) {
    return PlaceOf(value.first);
  });
  defaults.level_.params = defaults.call_.params;
  return defaults;
}

absl::Status ServerDefaults::Check(const ModelDescription& model) const {
  GenerationParams params =
      ResolveParams(Call(), ServerDefaults(), {}, model, 1).params;
  params.num_beams = 1;
  // An open search runs as samples, whose number is limited separately.
  params.do_sample = SamplesUnlessSelected(level_);
  for (const auto& [param, json] : level_.values) {
    ParamNamed(param).member.copy(level_.params, &params);
  }
  params.bad_words.clear();
  if (params.stop.empty()) params.include_stop = false;
  return InWordsOf(call_, ValidateParams(model, 1, &params));
}

}  // namespace espalier::openai
