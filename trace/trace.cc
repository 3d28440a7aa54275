#include "trace/trace.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "request/constraint_params.h"
#include "request/param_fields.h"

namespace espalier {

std::string_view Name(CandidateFate fate) {
  switch (fate) {
    case CandidateFate::kKept:
      return "kept";
    case CandidateFate::kPruned:
      return "pruned";
    case CandidateFate::kFinished:
      return "finished";
  }
  return "";
}

namespace {

std::string_view StrategyName(const GenerationParams& params) {
  if (IsBeamSearch(params)) return "beams";
  return params.do_sample ? "samples" : "greedy";
}

json::value ToJson(EarlyStopping early_stopping) {
  if (early_stopping == EarlyStopping::kNever) return "never";
  return early_stopping == EarlyStopping::kTrue;
}

// Adds the fields of a search's width and end, and those of the others that
// are not what they are by default.
class Describer {
 public:
  explicit Describer(json::object* out) : out_(out) {}

  template <typename T>
  void Add(std::string_view name, const T& value) {
    (*out_)[name] = value;
  }
  template <typename T>
  void AddUnless(std::string_view name, const T& value, const T& usual) {
    if (value != usual) Add(name, value);
  }

 private:
  json::object* const out_;
};

void DescribeBeams(const GenerationParams& params, Describer* out) {
  const GenerationParams usual;
  out->Add("num_beams", params.num_beams);
  out->Add("length_penalty", params.length_penalty);
  if (params.length_penalty_form == LengthPenaltyForm::kWu) {
    out->Add("length_penalty_form", "wu");
  }
  out->Add("early_stopping", ToJson(params.early_stopping));
  out->AddUnless("patience", params.patience, usual.patience);
  out->AddUnless("num_beam_groups", params.num_beam_groups,
                 usual.num_beam_groups);
  out->AddUnless("diversity_penalty", params.diversity_penalty,
                 usual.diversity_penalty);
  out->AddUnless("stochastic", params.stochastic, usual.stochastic);
}

void DescribeScores(const GenerationParams& params, Describer* out) {
  const GenerationParams usual;
  out->AddUnless("length_counts_eos", params.length_counts_eos,
                 usual.length_counts_eos);
  out->AddUnless("renormalize_logits", params.renormalize_logits,
                 usual.renormalize_logits);
}

void DescribeSamples(const GenerationParams& params, Describer* out) {
  if (params.best_of) out->Add("best_of", *params.best_of);
  for (const ParamField& field : ParamFields()) {
    if (!field.Is(kTraced) || !field.Is(kSampledOnly)) continue;
    if (field.Is(kFilter) && field.IsDefault(params)) continue;
    out->Add(field.name, field.member.to_json(params));
  }
}

// The schema, or its text if that is long, or nests too deep for a reader of
// the event.
json::value DescribedSchema(const std::string& schema) {
  constexpr size_t kMostBytes = 1 << 14;
  // Objects and lists around it in an answer that has the trace.
  const std::string around(4, '[');
  const std::string behind(4, ']');
  const bool is_small =
      schema.size() <= kMostBytes && ParseJson(around + schema + behind).ok();
  if (is_small) {
    absl::StatusOr<json::value> parsed = ParseJson(schema);
    if (parsed.ok()) return *std::move(parsed);
  }
  return json::value(schema);
}

// A language as the request has it, but only the first of many choices.
json::object DescribedKind(const ConstraintParams& constraint) {
  constexpr size_t kMostChoices = 64;
  if (constraint.regex) return {{"regex", *constraint.regex}};
  if (constraint.grammar) return {{"grammar", *constraint.grammar}};
  if (constraint.json_schema) {
    json::object schema = {
        {"json_schema", DescribedSchema(*constraint.json_schema)}};
    if (constraint.whitespace) {
      schema["whitespace"] = *constraint.whitespace;
    } else if (!constraint.has_spaces) {
      schema["whitespace"] = "none";
    }
    if (constraint.disable_additional_properties) {
      schema["disable_additional_properties"] = true;
    }
    return schema;
  }
  if (constraint.tool_calls) {
    return {{"tool_calls", DescribedSchema(*constraint.tool_calls)}};
  }
  if (constraint.items) return {{"items", *constraint.items}};
  if (!constraint.choice) return {};
  json::array choices;
  for (const std::string& text : *constraint.choice) {
    if (choices.size() == kMostChoices) break;
    choices.emplace_back(text);
  }
  return {{"choice", std::move(choices)}};
}

json::value Described(const ConstraintParams& constraint) {
  json::object described = DescribedKind(constraint);
  const auto& words = constraint.must_contain;
  if (!words.empty()) {
    described["must_contain"] = json::array(words.begin(), words.end());
  }
  return described;
}

}  // namespace

TraceRequest DescribeRequest(RequestId id, const Request& request) {
  const GenerationParams& params = request.params;
  const GenerationParams usual;
  TraceRequest event{.request = id,
                     .strategy = std::string(StrategyName(params)),
                     .prompt_tokens = request.prompt_tokens};
  if (!request.caller_id.empty()) event.caller_id = request.caller_id;
  Describer out(&event.params);
  if (IsBeamSearch(params)) DescribeBeams(params, &out);
  if (params.do_sample || params.stochastic) DescribeSamples(params, &out);
  DescribeScores(params, &out);
  if (params.seed) out.Add("seed", *params.seed);
  out.Add("num_return_sequences", params.num_return_sequences);
  if (params.max_new_tokens) out.Add("max_new_tokens", *params.max_new_tokens);
  out.AddUnless("min_new_tokens", params.min_new_tokens, usual.min_new_tokens);
  out.AddUnless("repetition_penalty", params.repetition_penalty,
                usual.repetition_penalty);
  out.AddUnless("frequency_penalty", params.frequency_penalty,
                usual.frequency_penalty);
  out.AddUnless("presence_penalty", params.presence_penalty,
                usual.presence_penalty);
  out.AddUnless("no_repeat_ngram_size", params.no_repeat_ngram_size,
                usual.no_repeat_ngram_size);
  if (params.constraint) out.Add("constraint", Described(*params.constraint));
  const std::vector<int64_t>& begun = params.decoder_prompt_tokens;
  if (!begun.empty()) {
    out.Add("decoder_prompt_tokens", json::array(begun.begin(), begun.end()));
  }
  return event;
}

RequestId RequestOf(const TraceEvent& event) {
  return std::visit([](const auto& e) { return e.request; }, event);
}

}  // namespace espalier
