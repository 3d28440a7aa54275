#include "python/src/transcribe_options.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <type_traits>

#include "base/field_error.h"
#include "base/spelling.h"
#include "python/src/errors.h"

namespace espalier::python {
namespace nb = nanobind;

namespace {

// A value and the name that the caller has for its option.
struct Given {
  std::string name;
  nb::handle value;
};

[[noreturn]] void RaiseWrong(const Given& given, std::string_view problem) {
  const nb::object shown =
      nb::module_::import_("reprlib").attr("repr")(given.value);
  Raise(InvalidField(FieldName{given.name}, Prose(problem),
                     Got(nb::cast<std::string>(shown))));
}

// Readers of values. Each writes to its last argument, or raises.

void Read(const Given& given, bool* value) {
  if (!nb::isinstance<nb::bool_>(given.value)) {
    RaiseWrong(given, " must be True or False");
  }
  *value = nb::cast<bool>(given.value);
}

template <typename Number>
requires std::is_arithmetic_v<Number>
void Read(const Given& given, Number* value) {
  if (!nb::isinstance<nb::bool_>(given.value) &&
      nb::try_cast(given.value, *value)) {
    return;
  }
  RaiseWrong(given, std::is_floating_point_v<Number> ? " must be a number"
                    : std::is_signed_v<Number>       ? " must be an integer"
                                               : " must be an integer from 0");
}

// None is no text.
void Read(const Given& given, std::string* value) {
  value->clear();
  if (given.value.is_none() || nb::try_cast(given.value, *value)) return;
  RaiseWrong(given, " must be a text");
}

// None is unset.
template <typename Number>
void Read(const Given& given, std::optional<Number>* value) {
  value->reset();
  if (!given.value.is_none()) Read(given, &value->emplace());
}

// None is an empty list, and a number a list of one.
template <typename Number>
void Read(const Given& given, std::vector<Number>* values) {
  values->clear();
  if (given.value.is_none()) return;
  if (!nb::isinstance<nb::list>(given.value) &&
      !nb::isinstance<nb::tuple>(given.value)) {
    return Read(given, &values->emplace_back());
  }
  for (const nb::handle item : nb::cast<nb::sequence>(given.value)) {
    const std::string name =
        Concat(given.name, "[", std::to_string(values->size()), "]");
    Read({name, item}, &values->emplace_back());
  }
}

void Read(const Given& given, SpeechTask* task) {
  std::string name;
  Read(given, &name);
  if (name != "transcribe" && name != "translate") {
    RaiseWrong(given, " must be \"transcribe\" or \"translate\"");
  }
  *task =
      name == "translate" ? SpeechTask::kTranslate : SpeechTask::kTranscribe;
}

using Options = TranscribeOptions;

// Readers of options.

template <auto kMember>
void Option(const Given& given, GivenTranscribeOptions* options) {
  Read(given, &(options->options.*kMember));
}
template <auto kMember>
void Threshold(const Given& given, GivenTranscribeOptions* options) {
  Read(given, &(options->options.thresholds.*kMember));
}
template <auto kMember>
void Vad(const Given& given, GivenTranscribeOptions* options) {
  Read(given, &(options->options.vad_options.*kMember));
}
void VadFilter(const Given& given, GivenTranscribeOptions* options) {
  Read(given, &options->vad_filter);
}

struct OptionEntry {
  std::string_view name;
  void (*read)(const Given& given, GivenTranscribeOptions* options);
};

constexpr OptionEntry kOptions[] = {
    {"language", Option<&Options::language>},
    {"task", Option<&Options::task>},
    {"temperature", Option<&Options::temperature>},
    {"compression_ratio_threshold",
     Threshold<&FallbackThresholds::compression_ratio>},
    {"logprob_threshold", Threshold<&FallbackThresholds::logprob>},
    {"no_speech_threshold", Threshold<&FallbackThresholds::no_speech>},
    {"eager_fallback", Option<&Options::eager_fallback>},
    {"num_beams", Option<&Options::num_beams>},
    {"best_of", Option<&Options::best_of>},
    {"patience", Option<&Options::patience>},
    {"length_penalty", Option<&Options::length_penalty>},
    {"seed", Option<&Options::seed>},
    {"condition_on_previous_text",
     Option<&Options::condition_on_previous_text>},
    {"prompt_reset_on_temperature",
     Option<&Options::prompt_reset_on_temperature>},
    {"initial_prompt", Option<&Options::initial_prompt>},
    {"carry_initial_prompt", Option<&Options::carry_initial_prompt>},
    {"hotwords", Option<&Options::hotwords>},
    {"prefix", Option<&Options::prefix>},
    {"suppress_tokens", Option<&Options::suppress_tokens>},
    {"suppress_blank", Option<&Options::suppress_blank>},
    {"max_new_tokens", Option<&Options::max_new_tokens>},
    {"without_timestamps", Option<&Options::without_timestamps>},
    {"max_initial_timestamp", Option<&Options::max_initial_timestamp>},
    {"clip_timestamps", Option<&Options::clip_timestamps>},
    {"word_timestamps", Option<&Options::word_timestamps>},
    {"prepend_punctuations", Option<&Options::prepend_punctuations>},
    {"append_punctuations", Option<&Options::append_punctuations>},
    {"hallucination_silence_threshold",
     Option<&Options::hallucination_silence_threshold>},
    {"language_detection_threshold",
     Option<&Options::language_detection_threshold>},
    {"language_detection_segments",
     Option<&Options::language_detection_segments>},
    {"multilingual", Option<&Options::multilingual>},
    {"num_alternatives", Option<&Options::num_alternatives>},
    {"vad_filter", VadFilter},
    {"vad_threshold", Vad<&VadOptions::threshold>},
    {"vad_neg_threshold", Vad<&VadOptions::neg_threshold>},
    {"vad_min_speech_duration_ms", Vad<&VadOptions::min_speech_duration_ms>},
    {"vad_max_speech_duration_s", Vad<&VadOptions::max_speech_duration_s>},
    {"vad_min_silence_duration_ms", Vad<&VadOptions::min_silence_duration_ms>},
    {"vad_speech_pad_ms", Vad<&VadOptions::speech_pad_ms>},
    {"batch_size", Option<&Options::batch_size>},
};

// Other names of options, as of the command and the server, and ours.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"beam_size", "num_beams"},
    {"log_prob_threshold", "logprob_threshold"},
};

std::string_view OurNameOf(std::string_view name) {
  for (const auto& [other, ours] : kOtherNames) {
    if (name == other) return ours;
  }
  return name;
}

[[noreturn]] void RaiseUnknown(const Given& given) {
  std::vector<std::string_view> names;
  for (const OptionEntry& entry : kOptions) names.push_back(entry.name);
  for (const auto& [other, ours] : kOtherNames) names.push_back(other);
  Raise(InvalidField(FieldName{given.name}, " is no option of transcribe",
                     DidYouMean(given.name, names)));
}

}  // namespace

GivenTranscribeOptions ReadTranscribeOptions(const nb::dict& given) {
  GivenTranscribeOptions read;
  std::vector<std::string> vad_names;  // that need vad_filter
  for (const auto& [key, value] : given) {
    const Given option = {nb::cast<std::string>(key), value};
    const std::string_view name = OurNameOf(option.name);
    const auto* const entry =
        std::ranges::find(kOptions, name, &OptionEntry::name);
    if (entry == std::end(kOptions)) RaiseUnknown(option);
    if (name != option.name) {
      if (given.contains(name.data())) {
        RaiseWrong(option, Concat(" and ", name, " are one option"));
      }
      read.aliases.emplace_back(name, option.name);
    }
    entry->read(option, &read);
    const bool is_set = name != "batch_size" || !value.is_none();
    if ((name.starts_with("vad_") && name != "vad_filter") ||
        (name == "batch_size" && is_set)) {
      vad_names.emplace_back(name);
    }
  }
  if (!read.vad_filter && !vad_names.empty()) {
    RaiseWrong({vad_names[0], given[vad_names[0].c_str()]},
               " needs vad_filter=True");
  }
  if (read.options.batch_size) {
    read.options.vad_options.SetChunkDefaults(
        [&](std::string_view name) { return given.contains(name.data()); });
  }
  return read;
}

absl::Status GivenTranscribeOptions::InWordsOfCaller(
    const absl::Status& error) const {
  const absl::Status named = InWordsOfKeywords(error);
  const std::optional<FieldError> parts = FieldErrorOf(named);
  if (!parts) return named;
  for (const auto& [ours, other] : aliases) {
    if (parts->field == ours) return WithField(named, other);
  }
  return named;
}

}  // namespace espalier::python
