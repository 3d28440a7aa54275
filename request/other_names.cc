#include "request/other_names.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/field_error.h"
#include "base/spelling.h"
#include "base/status.h"

namespace espalier {
namespace {

constexpr std::string_view kOfModel = "leave it out: the model has its own";
constexpr std::string_view kNothing = "there is nothing like it";
constexpr std::string_view kSystem = "it is a message of \"role\": \"system\"";
constexpr std::string_view kLanguage =
    "languages are chosen by template, such as \"fr-en\"";

// vLLM's, SGLang's, transformers', CTranslate2's, llama.cpp's, TGI's, OpenAI's
// and Ollama's.
constexpr OtherName kOtherNames[] = {
    // Search.
    {"beam_size", "num_beams"},
    {"beam_width", "num_beams"},
    {"max_beam_width", "num_beams"},
    {"use_beam_search", "num_beams", "beams are `num_beams` N"},
    {"n_samples", "num_return_sequences"},
    {"num_samples", "num_return_sequences"},
    {"num_hypotheses", "num_return_sequences"},
    {"n_best", "num_return_sequences"},
    // Sampling.
    {"temp", "temperature"},
    {"sampling_temperature", "temperature"},
    {"sampling_topk", "top_k"},
    {"sampling_topp", "top_p"},
    {"sampling_seed", "seed"},
    {"random_seed", "seed"},
    {"top_a", "top_k", kNothing},
    {"min_keep", "min_p", kNothing},
    {"mirostat", "temperature", kNothing},
    // Penalties.
    {"repeat_penalty", "repetition_penalty"},
    {"encoder_no_repeat_ngram_size", "no_repeat_ngram_size", kNothing},
    // Constraints.
    {"target_prefix", "decoder_prompt"},
    {"structured_outputs", "constraint"},
    {"regex", "constraint"},
    {"guided_regex", "constraint"},
    {"choice", "constraint"},
    {"guided_choice", "constraint"},
    {"grammar", "constraint"},
    {"guided_grammar", "constraint"},
    {"ebnf", "constraint"},
    {"json_schema", "constraint"},
    {"response_format", "constraint"},
    {"exclude", "constraint"},
    {"bos", "forced_bos_token_id", kOfModel},
    {"bos_token", "forced_bos_token_id", kOfModel},
    {"bos_token_id", "forced_bos_token_id", kOfModel},
    {"decoder_start_token_id", "decoder_prompt_tokens", kOfModel},
    // Stopping.
    {"max_length", "max_new_tokens"},
    {"max_completion_tokens", "max_new_tokens"},
    {"max_output_tokens", "max_new_tokens"},
    {"max_tokens_to_sample", "max_new_tokens"},
    {"max_decoding_length", "max_new_tokens"},
    {"max_gen_len", "max_new_tokens"},
    {"n_predict", "max_new_tokens"},
    {"num_predict", "max_new_tokens"},
    {"predict", "max_new_tokens"},
    {"min_length", "min_new_tokens"},
    {"min_decoding_length", "min_new_tokens"},
    {"eos", "eos_token_id"},
    {"eos_token", "eos_token_id"},
    {"eos_tokens", "eos_token_id"},
    {"end_token", "eos_token_id"},
    {"pad_token", "eos_token_id", kOfModel},
    {"pad_token_id", "eos_token_id", kOfModel},
    {"stop_strings", "stop"},
    {"stop_sequence", "stop"},
    {"stop_sequences", "stop"},
    {"stop_words", "stop"},
    {"include_stop_str_in_output", "include_stop"},
    // Reports.
    {"n_probs", "logprobs"},
    {"return_logprob", "logprobs"},
    {"top_logprobs", "logprobs"},
    {"top_logprobs_num", "logprobs"},
    {"top_n_tokens", "logprobs"},
    {"decoder_input_details", "prompt_logprobs"},
    {"output_scores", "logprobs"},
    // Execution.
    {"max_time", "deadline_ms"},
    {"timeout", "deadline_ms"},
    {"timeout_ms", "deadline_ms"},
    {"t_max_predict_ms", "deadline_ms"},
    {"cache_prompt", "prefix_cache"},
    {"num_assistant_tokens", "speculate"},
    {"num_speculative_tokens", "speculate"},
    {"prompt_lookup_num_tokens", "speculate"},
    // Inputs, and the object of params.
    {"text", "prompt"},
    {"input", "prompt"},
    {"inputs", "prompt"},
    {"content", "prompt"},
    {"encoder_prompt", "prompt"},
    {"tokens", "prompt_tokens"},
    {"token_ids", "prompt_tokens"},
    {"input_ids", "prompt_tokens"},
    {"prompt_token_ids", "prompt_tokens"},
    {"conversation", "messages"},
    {"system", "messages", kSystem},
    {"system_prompt", "messages", kSystem},
    {"instructions", "messages", kSystem},
    {"custom_id", "id",
     "did you mean id? A line is a request itself, without method, url and "
     "body"},
    {"src_lang", "template", kLanguage},
    {"tgt_lang", "template", kLanguage},
    {"source_lang", "template", kLanguage},
    {"target_lang", "template", kLanguage},
    {"sampling_params", "params"},
    {"parameters", "params"},
    {"options", "params"},
    {"extra_body", "params"},
    {"generation_config", "params"},
};

bool IsAmong(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool IsIn(const FieldPlaces& places, std::string_view name) {
  return IsAmong(places.here, name) || IsAmong(places.there, name);
}

std::string Suggest(std::string_view name, const FieldPlaces& places) {
  return Concat("; did you mean ", name,
                IsAmong(places.here, name) ? "" : places.where, "?");
}

std::string HintOf(const OtherName& other, const FieldPlaces& places) {
  if (!IsIn(places, other.ours)) return "";
  if (!other.hint.empty()) {
    return Concat("; ", TextInWordsOf({}, MessageParts(Prose(other.hint))));
  }
  return Suggest(other.ours, places);
}

size_t LettersBetween(std::string_view a, std::string_view b) {
  return EditDistance(NormalizeName(a), NormalizeName(b));
}

// Returns the closest name of another program, or null. The name must be long
// and differ in at most two letters, or in one if the field has no equivalent
// here: the list is long, and nearly every word is close to one of its names.
const OtherName* ClosestOtherName(std::string_view name,
                                  const FieldPlaces& places) {
  constexpr size_t kShortest = 8;  // letters
  constexpr size_t kLongest = 64;
  const OtherName* closest = nullptr;
  size_t fewest = 3;
  if (name.size() < kShortest || name.size() > kLongest) return nullptr;
  for (const OtherName& other : kOtherNames) {
    if (!IsIn(places, other.ours)) continue;
    const size_t letters = LettersBetween(name, other.theirs);
    if (letters >= fewest || (letters > 1 && !other.hint.empty())) continue;
    fewest = letters;
    closest = &other;
  }
  return closest;
}

}  // namespace

std::span<const OtherName> OtherNames() { return kOtherNames; }

const OtherName* FindOtherName(std::string_view name) {
  const auto* const found =
      std::ranges::find(kOtherNames, name, &OtherName::theirs);
  return found == std::end(kOtherNames) ? nullptr : found;
}

std::optional<std::string> HintAtOtherName(std::string_view name,
                                           const FieldPlaces& places) {
  const OtherName* const other = FindOtherName(name);
  if (other == nullptr) return std::nullopt;
  return HintOf(*other, places);
}

std::string HintAtMisspelling(std::string_view name,
                              const FieldPlaces& places) {
  std::vector<std::string_view> names(places.here.begin(), places.here.end());
  names.insert(names.end(), places.there.begin(), places.there.end());
  const std::string nearest = ClosestName(name, names);
  const OtherName* const other = ClosestOtherName(name, places);
  const bool is_others =
      other != nullptr &&
      (nearest.empty() ||
       LettersBetween(name, other->theirs) < LettersBetween(name, nearest));
  if (is_others) return HintOf(*other, places);
  return nearest.empty() ? "" : Suggest(nearest, places);
}

}  // namespace espalier
