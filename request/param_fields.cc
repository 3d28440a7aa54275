#include "request/param_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/field_error.h"
#include "base/status.h"
#include "request/other_names.h"
#include "request/read_constraint.h"
#include "request/read_json.h"
#include "request/read_json_text.h"
#include "request/read_speculation.h"

namespace espalier {
namespace {

using P = GenerationParams;

template <auto Member>
void CopyMember(const P& from, P* to) {
  to->*Member = from.*Member;
}
template <auto Member>
bool EqualMembers(const P& a, const P& b) {
  return a.*Member == b.*Member;
}
template <auto Member>
std::string ShowMember(const P& params) {
  using Value = std::remove_cvref_t<decltype(params.*Member)>;
  if constexpr (std::is_arithmetic_v<Value>) {
    return Concat(params.*Member);
  } else {
    return "";
  }
}

template <auto Member>
json::value MemberToJson(const P& params) {
  using Value = std::remove_cvref_t<decltype(params.*Member)>;
  if constexpr (std::is_arithmetic_v<Value>) {
    return params.*Member;
  } else {
    return nullptr;
  }
}

template <auto Member>
constexpr ParamMember MemberReadBy(decltype(ParamMember::read) read) {
  return {read, CopyMember<Member>, EqualMembers<Member>, ShowMember<Member>,
          MemberToJson<Member>};
}

template <auto Member>
absl::Status SetFrom(std::string_view field, const JsonText& json, P* params) {
  return Read(field, json, &(params->*Member));
}
template <auto Member>
constexpr ParamMember Set = MemberReadBy<Member>(SetFrom<Member>);

// A token id, or a list of them.
template <auto Member>
absl::Status SetIdsFrom(std::string_view field, const JsonText& json,
                        P* params) {
  std::vector<int64_t> ids;
  RETURN_IF_ERROR(ReadIds(field, json, &ids));
  params->*Member = std::move(ids);
  return absl::OkStatus();
}
template <auto Member>
constexpr ParamMember SetIds = MemberReadBy<Member>(SetIdsFrom<Member>);

// A string, or a list of them.
template <auto Member>
absl::Status SetTextsFrom(std::string_view field, const JsonText& json,
                          P* params) {
  std::vector<std::string> texts;
  RETURN_IF_ERROR(ReadTexts(field, json, &texts));
  // The checks of the params would name an element of a list.
  if (!json.is_array() && texts.front().empty()) {
    return InvalidField(FieldName{field}, " must not be empty", Got("\"\""));
  }
  params->*Member = std::move(texts);
  return absl::OkStatus();
}
template <auto Member>
constexpr ParamMember SetTexts = MemberReadBy<Member>(SetTextsFrom<Member>);

absl::Status SetSpeculateFrom(std::string_view field, const JsonText& json,
                              P* params) {
  return ReadSpeculation(field, json, &params->speculate);
}
constexpr ParamMember kSetSpeculate =
    MemberReadBy<&P::speculate>(SetSpeculateFrom);

absl::Status SetConstraintFrom(std::string_view field, const JsonText& json,
                               P* params) {
  return ReadConstraint(field, json, &params->constraint);
}
constexpr ParamMember kSetConstraint =
    MemberReadBy<&P::constraint>(SetConstraintFrom);

// As WriteJson, but an infinity is a number beyond float64, not null.
std::string TextOf(const json::value& value) {
  if (value.is_double() && std::isinf(value.get_double())) {
    return value.get_double() > 0 ? "1e999" : "-1e999";
  }
  std::vector<std::string> texts;
  if (value.is_array()) {
    for (const json::value& item : value.get_array()) {
      texts.push_back(TextOf(item));
    }
    return Concat("[", absl::StrJoin(texts, ", "), "]");
  }
  if (!value.is_object()) return WriteJson(value);
  for (const auto& [key, item] : value.get_object()) {
    texts.push_back(Concat(WriteJson(json::value(key)), ": ", TextOf(item)));
  }
  return Concat("{", absl::StrJoin(texts, ", "), "}");
}

constexpr std::string_view kSearch = "Search";
constexpr std::string_view kSampling = "Sampling";
constexpr std::string_view kPenalties = "Penalties";
constexpr std::string_view kConstraints = "Constraints";
constexpr std::string_view kStopping = "Stopping";
constexpr std::string_view kReports = "Reports";
constexpr std::string_view kSpeculation = "Speculation";
constexpr std::string_view kScheduling = "Scheduling";

constexpr std::string_view kSequences = "an integer in [1, 1048576]";
constexpr std::string_view kNotNegative = "an integer in [0, 2^63)";
constexpr std::string_view kPositive = "an integer in [1, 2^63)";
constexpr std::string_view kLogProbs = "an integer in [0, 64]";

constexpr ParamField kFields[] = {
    // Search.
    {"num_beams", "", kSearch, "N",
     "beams that live at a step; default 1: greedy, or sampling",
     Set<&P::num_beams>, kSequences, kOnPage | kTraced},
    {"num_return_sequences", "n", kSearch, "N",
     "hypotheses returned, best first: at most num_beams, or the number of "
     "samples; default 1",
     Set<&P::num_return_sequences>, kSequences, kOnPage | kTraced},
    {"length_penalty", "", kSearch, "X",
     "exponent on the length that divides a beam's score: > 0 favours longer "
     "ones; default 1",
     Set<&P::length_penalty>, "", kBeamsOnly | kOnPage | kTraced},
    {"length_penalty_form", "", kSearch, "FORM",
     "power, length^X, the default; or wu, ((5 + length) / 6)^X",
     Set<&P::length_penalty_form>, "", kBeamsOnly | kTraced},
    {"length_counts_eos", "", kSearch, "on|off",
     "whether an EOS or stop id counts in the length that divides a score; "
     "default on",
     Set<&P::length_counts_eos>, "", kTraced},
    {"early_stopping", "", kSearch, "WHEN",
     "true, at num_beams hypotheses; false, the default, when no beam is "
     "better now; never, when none can become so",
     Set<&P::early_stopping>, "", kBeamsOnly | kOnPage | kTraced},
    {"patience", "", kSearch, "X",
     "with early_stopping true: round(num_beams * X) hypotheses end the "
     "search; default 1",
     Set<&P::patience>, "", kBeamsOnly | kTraced},
    {"num_beam_groups", "", kSearch, "N",
     "groups of beams that avoid each other's tokens; divides num_beams; "
     "default 1",
     Set<&P::num_beam_groups>, kSequences, kOnPage | kTraced},
    {"diversity_penalty", "", kSearch, "X",
     "what a token costs for each beam of an earlier group that just took it; "
     ">= 0; default 0",
     Set<&P::diversity_penalty>, "", kOnPage | kTraced},
    {"stochastic", "", kSearch, "",
     "stochastic beam search: num_beams different sequences, drawn without "
     "replacement",
     Set<&P::stochastic>, "", kTraced},
    // Sampling.
    {"do_sample", "", kSampling, "",
     "draw tokens, by temperature, top_k, top_p, min_p and typical_p, which "
     "need it, and by seed; without it the best are taken. With num_beams 1 "
     "each of num_return_sequences is a sample of its own; with more, be they "
     "the model's default, beams are drawn, by perturbed scores",
     Set<&P::do_sample>, "", kOnPage},
    {"best_of", "", kSampling, "N",
     "samples drawn, of which the num_return_sequences best by mean "
     "log-probability are returned",
     Set<&P::best_of>, kSequences, kTraced},
    {"temperature", "", kSampling, "X",
     "divides the logits; 0 is greedy; default 1", Set<&P::temperature>, "",
     kSampledOnly | kOnPage | kTraced},
    {"top_k", "", kSampling, "N",
     "only the N likeliest tokens and their equals; 0, the default, is off",
     Set<&P::top_k>, kNotNegative, kFilter | kSampledOnly | kOnPage | kTraced},
    {"top_p", "", kSampling, "P",
     "only the likeliest tokens that have P together; in (0, 1]; default 1",
     Set<&P::top_p>, "", kFilter | kSampledOnly | kOnPage | kTraced},
    {"min_p", "", kSampling, "P",
     "only tokens at least P times as likely as the likeliest; in [0, 1]; "
     "default 0",
     Set<&P::min_p>, "", kFilter | kSampledOnly | kOnPage | kTraced},
    {"typical_p", "", kSampling, "P",
     "only the most typical tokens that have P together; in (0, 1]; default 1",
     Set<&P::typical_p>, "", kFilter | kSampledOnly | kTraced},
    {"seed", "", kSampling, "N",
     "the same request with the same seed gives the same result; default: "
     "drawn, and reported",
     Set<&P::seed>, "", kOnPage | kTraced},
    // Penalties.
    {"repetition_penalty", "", kPenalties, "X",
     "> 1 makes tokens of prompt and output less likely; > 0; default 1",
     Set<&P::repetition_penalty>, "", kOnPage | kTraced},
    {"frequency_penalty", "", kPenalties, "X",
     "subtracted from a token's score for each time the output has it; "
     "default 0",
     Set<&P::frequency_penalty>, "", kTraced},
    {"presence_penalty", "", kPenalties, "X",
     "subtracted from a token's score if the output has it; default 0",
     Set<&P::presence_penalty>, "", kTraced},
    {"no_repeat_ngram_size", "", kPenalties, "N",
     "n-grams of this size appear at most once; 0, the default, is off",
     Set<&P::no_repeat_ngram_size>, kNotNegative, kOnPage | kTraced},
    {"logit_bias", "", kPenalties, "JSON",
     "added to the scores of tokens: {\"7\": -2.5, \"9\": 1}",
     Set<&P::logit_bias>, "", kLarge},
    {"sequence_bias", "", kPenalties, "JSON",
     "added to the score of a sequence's last token where the others stand "
     "before it: [[[7, 8], -2.5], [[9], 1.0]]",
     Set<&P::sequence_bias>, "", kLarge},
    {"exponential_decay_length_penalty", "", kPenalties, "JSON",
     "[N, X] makes EOS likelier beyond N tokens: X^n - 1 times the size of its "
     "score is added after n more; X > 0",
     Set<&P::exponential_decay_length_penalty>},
    {"renormalize_logits", "", kPenalties, "",
     "scores are log-probabilities again after penalties, biases and bans",
     Set<&P::renormalize_logits>, "", kTraced},
    // Constraints.
    {"bad_words", "", kConstraints, "TEXT",
     "word that may not appear where a text or a word begins; several: give it "
     "several times, or as a JSON list",
     SetTexts<&P::bad_words>, "", kLarge},
    {"bad_words_ids", "", kConstraints, "JSON",
     "sequences of token ids that may not appear: [[7], [8, 9]]",
     Set<&P::bad_words_ids>, "", kLarge},
    {"suppress_tokens", "", kConstraints, "ID",
     "token id, or list of ids, that may not appear: [7, 8]",
     SetIds<&P::suppress_tokens>, "", kLarge},
    {"begin_suppress_tokens", "", kConstraints, "ID",
     "token id, or list of ids, that may not come first, or after "
     "forced_bos_token_id: [7, 8]",
     SetIds<&P::begin_suppress_tokens>, "", kLarge},
    {"decoder_prompt", "", kConstraints, "PREFIX",
     "text that the output begins with, and goes on from",
     Set<&P::decoder_prompt>},
    {"decoder_prompt_tokens", "decoder_input_ids", kConstraints, "ID",
     "token id, or list of ids, that the output begins with, after the "
     "decoder's start if there is an encoder: [7, 8]",
     SetIds<&P::decoder_prompt_tokens>, "", kLarge | kTraced},
    {"forced_bos_token_id", "", kConstraints, "ID",
     "token id that alone may come first, with a score of 0",
     Set<&P::forced_bos_token_id>},
    {"forced_eos_token_id", "", kConstraints, "ID",
     "token id, or list of ids, that alone may come as the last of "
     "max_new_tokens, with a score of 0",
     SetIds<&P::forced_eos_token_id>},
    {"allowed_token_ids", "", kConstraints, "ID",
     "token id, or list of ids, that alone may appear: [2, 7, 8]",
     SetIds<&P::allowed_token_ids>, "", kLarge},
    {"constraint", "", kConstraints, "JSON",
     "the text of the output is in a language: {\"regex\": \"[0-9]+\"}, "
     "{\"choice\": [\"yes\", \"no\"]}, {\"json_schema\": {\"type\": "
     "\"object\"}} or {\"grammar\": \"root ::= [0-9]+\"}; or the output is an "
     "item of a catalogue: {\"items\": \"songs\", \"exclude\": [[7, 8]]}",
     kSetConstraint, "", kLarge | kTraced},
    {"start_after", "", kConstraints, "MARKER",
     "text that the constraint of the output begins after, such as </think> of "
     "models that reason first; any text may come before it",
     Set<&P::start_after>},
    {"allowed_sequences", "", kConstraints, "JSON",
     "the output is one of these sequences of token ids: [[7, 8], [7, 9, 9]]",
     Set<&P::allowed_sequences>, "", kLarge},
    // Stopping.
    {"max_new_tokens", "max_tokens", kStopping, "N",
     "tokens generated at most; default the model's, or 256",
     Set<&P::max_new_tokens>, kPositive, kOnPage | kTraced},
    {"min_new_tokens", "min_tokens", kStopping, "N",
     "tokens before which nothing but max_new_tokens ends the output; "
     "default 0",
     Set<&P::min_new_tokens>, kNotNegative, kOnPage | kTraced},
    {"eos_token_id", "", kStopping, "ID",
     "id, or list of ids, that end a sequence; default the model's",
     SetIds<&P::eos_token_id>, "", kLarge},
    {"stop_token_ids", "", kStopping, "ID",
     "id, or list of ids, that end it, too, reported as \"stop\": [7, 8]",
     SetIds<&P::stop_token_ids>, "", kLarge},
    {"ignore_eos", "", kStopping, "", "eos_token_id ends nothing",
     Set<&P::ignore_eos>},
    {"stop", "", kStopping, "TEXT",
     "text that ends the output, which is cut before it; several: give it "
     "several times, or as a JSON list",
     SetTexts<&P::stop>, "", kLarge | kOnPage},
    {"include_stop", "", kStopping, "", "cut after the stop text, not before",
     Set<&P::include_stop>},
    {"skip_special_tokens", "", kStopping, "",
     "whether texts leave special tokens out, the default; false shows their "
     "names, such as </s>",
     Set<&P::skip_special_tokens>},
    {"deadline_ms", "", kStopping, "MS",
     "milliseconds after which the request ends with the best result so far; "
     "this program waits for the step that runs, which is long where beams are "
     "many; default: none",
     Set<&P::deadline_ms>, "an integer in [1, 2147483647]"},
    // Reports.
    {"logprobs", "", kReports, "N",
     "log-probability and rank of each token generated, and the N best at its "
     "place; 0 to 64",
     Set<&P::logprobs>, kLogProbs},
    {"prompt_logprobs", "", kReports, "N",
     "the same of the prompt's tokens, the first excepted; 0 to 64",
     Set<&P::prompt_logprobs>, kLogProbs},
    {"logprobs_mode", "", kReports, "MODE",
     "raw_logprobs, the model's own, the default; or processed_logprobs, after "
     "all that tokens are chosen by: penalties, biases, temperature, filters",
     Set<&P::logprobs_mode>},
    {"legal_log_mass", "", kReports, "",
     "with logprobs, also the logarithm of the model's probability of all "
     "tokens that a constraint allowed at each place, and their sum",
     Set<&P::legal_log_mass>},
    {"beam_indices", "", kReports, "",
     "of beams: for each token which beam it was appended to, by rank from 0",
     Set<&P::beam_indices>},
    {"logprobs_start", "", kReports, "N",
     "first token of the prompt that prompt_logprobs are of, counted from 0; "
     "those before it come from the prefix cache; default 0, which is as 1",
     Set<&P::logprobs_start>, kNotNegative},
    // Speculation.
    {"speculate", "", kSpeculation, "METHOD",
     "verify several drafted tokens in a step: ngram or suffix, from the text "
     "so far and what a constraint forces; constraint, that alone; draft, by "
     "the draft model; or off. ngram:N drafts N at most, 1 to 32, default 5; "
     "ngram:N:coupled, the default, gives the samples of no speculation, "
     "ngram:N:rejection others of the same distribution",
     kSetSpeculate},
    // Scheduling.
    {"prefix_cache", "", kScheduling, "on|off",
     "share pages with requests that begin alike, and keep them for others; "
     "default on",
     Set<&P::prefix_cache>},
    {"cache_salt", "", kScheduling, "SALT",
     "share pages only with requests of the same salt; at most 256 bytes",
     Set<&P::cache_salt>, "", kLarge},
    {"priority", "", kScheduling, "N",
     "lower runs first; who waits moves up; default 0", Set<&P::priority>,
     "an integer in [-2^52, 2^52]"},
    {"tenant", "", kScheduling, "NAME",
     "whose request it is: tenants that wait share the tokens; at most 256 "
     "bytes",
     Set<&P::tenant>, "", kLarge},
};

}  // namespace

absl::Status ParamMember::Read(std::string_view field, const json::value& value,
                               GenerationParams* params) const {
  const std::string text = TextOf(value);
  return read(field, JsonText{text}, params);
}

std::span<const ParamField> ParamFields() { return kFields; }

const ParamField* FindParamField(std::string_view name) {
  const auto it = std::ranges::find_if(kFields, [&](const ParamField& field) {
    return field.name == name || (!name.empty() && field.alias == name);
  });
  return it == std::end(kFields) ? nullptr : &*it;
}

const ParamField& ParamNamed(std::string_view name) {
  const ParamField* const field = FindParamField(name);
  CHECK(field != nullptr) << name;
  return *field;
}

bool HasFilters(const GenerationParams& params) {
  return std::ranges::any_of(kFields, [&](const ParamField& field) {
    return field.Is(kFilter) && !field.IsDefault(params);
  });
}

std::vector<std::string_view> ParamNames() {
  std::vector<std::string_view> names;
  for (const ParamField& field : kFields) {
    names.push_back(field.name);
    if (!field.alias.empty()) names.push_back(field.alias);
  }
  return names;
}

absl::Status ReadParam(const ParamField& field, std::string_view name,
                       const JsonText& json, GenerationParams* params) {
  if (!field.integers.empty() && IsBeyondIntegers(json.text)) {
    return WrongType(name, field.integers, json.text);
  }
  return field.member.read(name, json, params);
}

absl::Status UnknownParam(std::string_view name) {
  const std::vector<std::string_view> params = ParamNames();
  const FieldPlaces places = {params, kRequestFields, " beside params"};
  std::string hint = "; it belongs beside params";
  if (std::ranges::find(kRequestFields, name) == std::end(kRequestFields)) {
    const std::optional<std::string> other = HintAtOtherName(name, places);
    hint = other ? *other : HintAtMisspelling(name, places);
  }
  return InvalidArgument("unknown field ", ShownInQuotes(name), " in params",
                         hint);
}

absl::Status SetParam(std::string_view name, const json::value& value,
                      GenerationParams* params) {
  const ParamField* field = FindParamField(name);
  if (field == nullptr) return UnknownParam(name);
  if (!value.is_number()) return field->member.Read(name, value, params);
  const std::string text = WriteJson(value);
  return ReadParam(*field, name, JsonText{text}, params);
}

}  // namespace espalier
