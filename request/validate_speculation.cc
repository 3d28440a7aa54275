#include "request/validate_speculation.h"

#include "base/field_error.h"
#include "base/status.h"
#include "request/param_checks.h"

namespace espalier {

namespace {
constexpr Prose kWhenOff = "with `speculate.method` \"off\"";
}  // namespace

absl::Status ValidateSpeculation(const ModelDescription& model,
                                 const GenerationParams& params) {
  if (!params.speculate) return absl::OkStatus();
  const SpeculationParams& speculate = *params.speculate;
  if (speculate.method == SpeculationMethod::kNone) {
    constexpr SpeculationParams kOff;
    RETURN_IF_ERROR(CheckOff("speculate.num_tokens", speculate.num_tokens,
                             kOff.num_tokens, kWhenOff));
    RETURN_IF_ERROR(CheckOff("speculate.mode", NameOf(speculate.mode),
                             NameOf(kOff.mode), kWhenOff));
    return CheckOff("speculate.always_drafts", speculate.always_drafts, false,
                    kWhenOff);
  }
  if (!model.has_shareable_pages) {
    return InvalidField(
        "`speculate.method` must be \"off\" for a model that keeps more of a "
        "sequence than pages",
        Got("\"", NameOf(speculate.method), '"'));
  }
  if (!CanSpeculate(params)) {
    return InvalidField(
        "`speculate.method` must be \"off\" with `do_sample`, `stochastic` or "
        "`num_beam_groups` beside `num_beams`",
        Got("\"", NameOf(speculate.method), '"'));
  }
  if (!CanDraftBy(speculate.method, params)) {
    return InvalidField("`speculate.method` must not be \"constraint\" ",
                        IsBeamSearch(params)
                            ? Prose("with `num_beams`: beams draft nothing of "
                                    "a constraint")
                            : Prose("without `constraint` or "
                                    "`allowed_sequences`"),
                        Got("\"constraint\""));
  }
  if (speculate.method == SpeculationMethod::kDraft && model.encoder) {
    return InvalidField(
        "`speculate.method` must be \"ngram\", \"suffix\", \"constraint\" or "
        "\"off\" for a model with an encoder",
        Got("\"draft\""));
  }
  if (speculate.method == SpeculationMethod::kDraft &&
      model.limits.max_drafted_length == 0) {
    return InvalidField(
        "`speculate.method` must be \"ngram\", \"suffix\", \"constraint\" or "
        "\"off\" without a draft model",
        Got("\"draft\""), OptionHint{"; give one by ", "draft_model", " DIR"});
  }
  return CheckRange("speculate.num_tokens", speculate.num_tokens, 1,
                    kMaxDraftTokens);
}

}  // namespace espalier
