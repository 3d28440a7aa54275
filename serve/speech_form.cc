#include "serve/speech_form.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/field_error.h"
#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/spelling.h"
#include "base/status.h"
#include "openai/error.h"

namespace espalier::serve {
namespace {

constexpr std::string_view kListEnd = "[]";

// Errors name the field as the form does.
template <typename... Parts>
absl::Status Wrong(const SpeechField& field, const Parts&... parts) {
  return openai::RefuseField(field.given, Concat(field.given, parts...));
}

template <typename Number>
std::optional<Number> NumberOf(std::string_view text) {
  text = StripSpace(text);
  Number value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

absl::StatusOr<double> ReadNumber(const SpeechField& field,
                                  std::string_view text) {
  const std::optional<double> value = NumberOf<double>(text);
  if (value && std::isfinite(*value)) return *value;
  return Wrong(field, " must be a number, got ", ShownInQuotes(text));
}

absl::StatusOr<int64_t> ReadInteger(const SpeechField& field,
                                    std::string_view text) {
  const std::optional<int64_t> value = NumberOf<int64_t>(text);
  if (value) return *value;
  return Wrong(field, " must be an integer, got ", ShownInQuotes(text));
}

absl::StatusOr<bool> ReadBool(const SpeechField& field) {
  const std::string text =
      absl::AsciiStrToLower(ToAbsl(StripSpace(field.values[0])));
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  return Wrong(field, " must be true or false, got ",
               ShownInQuotes(field.values[0]));
}

// Returns the numbers of a list: each value has one, or several with commas
// between them, in brackets or not.
template <typename Number>
absl::StatusOr<std::vector<Number>> ReadNumbers(const SpeechField& field) {
  std::vector<Number> numbers;
  for (std::string_view text : field.values) {
    text = StripSpace(text);
    if (text.starts_with('[') && text.ends_with(']')) {
      text = StripSpace(text.substr(1, text.size() - 2));
    }
    for (bool is_last = text.empty(); !is_last;) {
      const size_t comma = text.find(',');
      const std::string_view item = text.substr(0, comma);
      if constexpr (std::is_integral_v<Number>) {
        ASSIGN_OR_RETURN(numbers.emplace_back(), ReadInteger(field, item));
      } else {
        ASSIGN_OR_RETURN(numbers.emplace_back(), ReadNumber(field, item));
      }
      is_last = comma == text.npos;
      if (!is_last) text.remove_prefix(comma + 1);
    }
  }
  return numbers;
}

using Options = TranscribeOptions;

// Readers of one kind of field each.

template <std::string Options::*kMember>
absl::Status Text(const SpeechField& field, SpeechCall* call) {
  call->options.*kMember = field.values[0];
  return absl::OkStatus();
}

template <double Options::*kMember>
absl::Status Number(const SpeechField& field, SpeechCall* call) {
  ASSIGN_OR_RETURN(call->options.*kMember, ReadNumber(field, field.values[0]));
  return absl::OkStatus();
}

template <auto kMember>
absl::Status Integer(const SpeechField& field, SpeechCall* call) {
  ASSIGN_OR_RETURN(call->options.*kMember, ReadInteger(field, field.values[0]));
  return absl::OkStatus();
}

template <bool Options::*kMember>
absl::Status Bool(const SpeechField& field, SpeechCall* call) {
  ASSIGN_OR_RETURN(call->options.*kMember, ReadBool(field));
  return absl::OkStatus();
}

template <auto kMember>
absl::Status List(const SpeechField& field, SpeechCall* call) {
  auto& list = call->options.*kMember;
  using Value = typename std::remove_reference_t<decltype(list)>::value_type;
  ASSIGN_OR_RETURN(list, ReadNumbers<Value>(field));
  return absl::OkStatus();
}

// A number, or None.
absl::Status ReadOptional(const SpeechField& field,
                          std::optional<double>* value) {
  value->reset();
  const std::string text =
      absl::AsciiStrToLower(ToAbsl(StripSpace(field.values[0])));
  if (text == "none" || text == "null") return absl::OkStatus();
  ASSIGN_OR_RETURN(*value, ReadNumber(field, field.values[0]));
  return absl::OkStatus();
}

template <std::optional<double> FallbackThresholds::*kMember>
absl::Status Threshold(const SpeechField& field, SpeechCall* call) {
  return ReadOptional(field, &(call->options.thresholds.*kMember));
}

absl::Status MaxInitialTimestamp(const SpeechField& field, SpeechCall* call) {
  return ReadOptional(field, &call->options.max_initial_timestamp);
}

template <double VadOptions::*kMember>
absl::Status VadNumber(const SpeechField& field, SpeechCall* call) {
  ASSIGN_OR_RETURN(call->options.vad_options.*kMember,
                   ReadNumber(field, field.values[0]));
  return absl::OkStatus();
}

// Infinite is faster-whisper's default.
absl::Status VadMaxSpeech(const SpeechField& field, SpeechCall* call) {
  const std::optional<double> value = NumberOf<double>(field.values[0]);
  if (!value || std::isnan(*value)) {
    return Wrong(field, " must be a number or inf, got ",
                 ShownInQuotes(field.values[0]));
  }
  call->options.vad_options.max_speech_duration_s = *value;
  return absl::OkStatus();
}

absl::Status VadNegThreshold(const SpeechField& field, SpeechCall* call) {
  return ReadOptional(field, &call->options.vad_options.neg_threshold);
}

absl::Status VadFilter(const SpeechField& field, SpeechCall* call) {
  ASSIGN_OR_RETURN(call->vad_filter, ReadBool(field));
  return absl::OkStatus();
}

absl::Status BatchSize(const SpeechField& field, SpeechCall* call) {
  ASSIGN_OR_RETURN(const int64_t size, ReadInteger(field, field.values[0]));
  if (size < 1 || size > kMaxSpeechBatch) {
    return Wrong(field, " must be in [1, ", kMaxSpeechBatch, "], got ", size);
  }
  call->options.batch_size = size;
  return absl::OkStatus();
}

absl::Status ModelName(const SpeechField& field, SpeechCall* call) {
  call->model = field.values[0];
  return absl::OkStatus();
}

// 0 is OpenAI's default: higher ones follow if a window fails.
absl::Status OneTemperature(const SpeechField& field, SpeechCall* call) {
  ASSIGN_OR_RETURN(const double value, ReadNumber(field, field.values[0]));
  if (value != 0) call->options.temperature = {value};
  return absl::OkStatus();
}

absl::Status Seed(const SpeechField& field, SpeechCall* call) {
  ASSIGN_OR_RETURN(const int64_t seed, ReadInteger(field, field.values[0]));
  if (seed < 0) return Wrong(field, " must be at least 0, got ", seed);
  call->options.seed = static_cast<uint64_t>(seed);
  return absl::OkStatus();
}

absl::Status Deadline(const SpeechField& field, SpeechCall* call) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  ASSIGN_OR_RETURN(const int64_t value, ReadInteger(field, field.values[0]));
  if (value < 1 || value > kMost) {
    return Wrong(field, " must be an integer in [1, ", kMost, "], got ", value);
  }
  call->deadline_ms = value;
  return absl::OkStatus();
}

absl::Status Stream(const SpeechField& field, SpeechCall* call) {
  ASSIGN_OR_RETURN(call->stream, ReadBool(field));
  return absl::OkStatus();
}

absl::Status Format(const SpeechField& field, SpeechCall* call) {
  constexpr std::pair<std::string_view, SpeechFormat> kFormats[] = {
      {"json", SpeechFormat::kJson},
      {"text", SpeechFormat::kText},
      {"srt", SpeechFormat::kSrt},
      {"vtt", SpeechFormat::kVtt},
      {"verbose_json", SpeechFormat::kVerboseJson}};
  for (const auto& [name, format] : kFormats) {
    if (field.values[0] != name) continue;
    call->format = format;
    return absl::OkStatus();
  }
  return Wrong(field, " must be json, text, srt, vtt or verbose_json, got ",
               ShownInQuotes(field.values[0]));
}

absl::Status Granularities(const SpeechField& field, SpeechCall* call) {
  call->has_segments = false;
  for (const std::string& value : field.values) {
    if (value == "segment") {
      call->has_segments = true;
    } else if (value == "word") {
      call->has_words = true;
    } else {
      return Wrong(field, " must be segment or word, got ",
                   ShownInQuotes(value));
    }
  }
  return absl::OkStatus();
}

template <std::optional<int64_t> SubtitleOptions::*kMember>
absl::Status SubtitleCount(const SpeechField& field, SpeechCall* call) {
  ASSIGN_OR_RETURN(const int64_t count, ReadInteger(field, field.values[0]));
  if (count < 1 || count > SubtitleOptions::kMost) {
    return Wrong(field, " must be in [1, ", SubtitleOptions::kMost, "], got ",
                 count);
  }
  call->subtitles.*kMember = count;
  return absl::OkStatus();
}

absl::Status HighlightWords(const SpeechField& field, SpeechCall* call) {
  ASSIGN_OR_RETURN(call->subtitles.highlight_words, ReadBool(field));
  return absl::OkStatus();
}

absl::Status HallucinationSilence(const SpeechField& field, SpeechCall* call) {
  return ReadOptional(field, &call->options.hallucination_silence_threshold);
}

// Fields that are refused, but for a value by which they ask for nothing.
template <const char* const& kNeutral>
absl::Status Unsupported(const SpeechField& field, SpeechCall*) {
  const std::string value =
      absl::AsciiStrToLower(ToAbsl(StripSpace(field.values[0])));
  if (value == kNeutral && field.values.size() == 1) return absl::OkStatus();
  if (*kNeutral == '\0') {
    return Wrong(field, " is not supported, got ",
                 ShownInQuotes(field.values[0]));
  }
  return Wrong(field, " must be ", kNeutral,
               ": nothing else is supported, got ",
               ShownInQuotes(field.values[0]));
}
constexpr const char* kNone = "";
constexpr const char* kAuto = "auto";
constexpr const char* kOne = "1";

struct FieldEntry {
  std::string_view name;
  absl::Status (*read)(const SpeechField& field, SpeechCall* call);
  bool is_list = false;
};

constexpr FieldEntry kFields[] = {
    {"model", ModelName},
    {"language", Text<&Options::language>},
    {"initial_prompt", Text<&Options::initial_prompt>},
    {"response_format", Format},
    {"temperature", OneTemperature},
    {"timestamp_granularities", Granularities, true},
    {"stream", Stream},
    {"include", Unsupported<kNone>, true},
    {"chunking_strategy", Unsupported<kAuto>},
    {"temperatures", List<&Options::temperature>, true},
    {"num_beams", Integer<&Options::num_beams>},
    {"best_of", Integer<&Options::best_of>},
    {"patience", Number<&Options::patience>},
    {"length_penalty", Number<&Options::length_penalty>},
    {"seed", Seed},
    {"compression_ratio_threshold",
     Threshold<&FallbackThresholds::compression_ratio>},
    {"logprob_threshold", Threshold<&FallbackThresholds::logprob>},
    {"no_speech_threshold", Threshold<&FallbackThresholds::no_speech>},
    {"condition_on_previous_text", Bool<&Options::condition_on_previous_text>},
    {"prompt_reset_on_temperature",
     Number<&Options::prompt_reset_on_temperature>},
    {"carry_initial_prompt", Bool<&Options::carry_initial_prompt>},
    {"hotwords", Text<&Options::hotwords>},
    {"prefix", Text<&Options::prefix>},
    {"suppress_tokens", List<&Options::suppress_tokens>, true},
    {"suppress_blank", Bool<&Options::suppress_blank>},
    {"max_new_tokens", Integer<&Options::max_new_tokens>},
    {"without_timestamps", Bool<&Options::without_timestamps>},
    {"max_initial_timestamp", MaxInitialTimestamp},
    {"clip_timestamps", List<&Options::clip_timestamps>, true},
    {"word_timestamps", Bool<&Options::word_timestamps>},
    {"prepend_punctuations", Text<&Options::prepend_punctuations>},
    {"append_punctuations", Text<&Options::append_punctuations>},
    {"hallucination_silence_threshold", HallucinationSilence},
    {"highlight_words", HighlightWords},
    {"max_line_width", SubtitleCount<&SubtitleOptions::max_line_width>},
    {"max_line_count", SubtitleCount<&SubtitleOptions::max_line_count>},
    {"max_words_per_line", SubtitleCount<&SubtitleOptions::max_words_per_line>},
    {"language_detection_threshold",
     Number<&Options::language_detection_threshold>},
    {"language_detection_segments",
     Integer<&Options::language_detection_segments>},
    {"multilingual", Bool<&Options::multilingual>},
    {"num_alternatives", Integer<&Options::num_alternatives>},
    {"vad_filter", VadFilter},
    {"vad_threshold", VadNumber<&VadOptions::threshold>},
    {"vad_neg_threshold", VadNegThreshold},
    {"vad_min_speech_duration_ms",
     VadNumber<&VadOptions::min_speech_duration_ms>},
    {"vad_max_speech_duration_s", VadMaxSpeech},
    {"vad_min_silence_duration_ms",
     VadNumber<&VadOptions::min_silence_duration_ms>},
    {"vad_speech_pad_ms", VadNumber<&VadOptions::speech_pad_ms>},
    {"batch_size", BatchSize},
    {"deadline_ms", Deadline},
    // Fields of OpenAI's and others' that ask for what there is not.
    {"known_speaker_names", Unsupported<kNone>, true},
    {"known_speaker_references", Unsupported<kNone>, true},
    {"n", Unsupported<kOne>},
};

// Other names of fields, and ours.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"prompt", "initial_prompt"},
    {"beam_size", "num_beams"},
    {"log_prob_threshold", "logprob_threshold"},
};

const FieldEntry* FindField(std::string_view name) {
  const bool says_list = name.ends_with(kListEnd);
  if (says_list) name.remove_suffix(kListEnd.size());
  for (const auto& [other, ours] : kOtherNames) {
    if (name == other) name = ours;
  }
  const auto* const entry = std::ranges::find(kFields, name, &FieldEntry::name);
  if (entry == std::end(kFields) || (says_list && !entry->is_list)) {
    return nullptr;
  }
  return entry;
}

absl::Status RefuseUnknown(std::string_view name) {
  std::vector<std::string_view> names = {"file"};
  for (const FieldEntry& entry : kFields) names.push_back(entry.name);
  for (const auto& [other, ours] : kOtherNames) names.push_back(other);
  return openai::RefuseField(
      IsUtf8(name) ? Shown(name) : "",
      Concat("unknown field ", BytesInQuotes(name), DidYouMean(name, names)));
}

const SpeechField* FindGiven(const std::vector<SpeechField>& given,
                             std::string_view name) {
  const auto it = std::ranges::find(given, name, &SpeechField::field);
  return it == given.end() ? nullptr : &*it;
}

// No field of subtitles is without effect.
absl::Status CheckSubtitles(const SpeechCall& call) {
  const bool has_subtitles =
      call.format == SpeechFormat::kSrt || call.format == SpeechFormat::kVtt;
  const SubtitleOptions& subtitles = call.subtitles;
  for (const SpeechField& field : call.given) {
    const bool is_count = field.field.starts_with("max_line_") ||
                          field.field == "max_words_per_line";
    if (!is_count && field.field != "highlight_words") continue;
    if (!is_count && !subtitles.highlight_words) continue;
    if (!has_subtitles) {
      return Wrong(field, " needs response_format srt or vtt");
    }
    if (!call.options.word_timestamps) {
      return Wrong(field, " needs word_timestamps true");
    }
    if (field.field == "max_line_count" && !subtitles.max_line_width) {
      return Wrong(field, " needs max_line_width");
    }
    if (field.field == "max_words_per_line" && subtitles.max_line_count) {
      return Wrong(field, " and max_line_count exclude each other");
    }
  }
  return absl::OkStatus();
}

// Checks fields that exclude each other.
absl::Status CheckTogether(const SpeechCall& call) {
  const SpeechField* const temperatures = FindGiven(call.given, "temperatures");
  if (temperatures != nullptr &&
      FindGiven(call.given, "temperature") != nullptr) {
    return Wrong(*temperatures, " and temperature exclude each other");
  }
  const SpeechField* const times =
      FindGiven(call.given, "timestamp_granularities");
  if (times != nullptr && call.format != SpeechFormat::kVerboseJson) {
    return Wrong(*times, " needs response_format verbose_json");
  }
  const SpeechField* const words = FindGiven(call.given, "word_timestamps");
  if (words != nullptr && call.options.word_timestamps && !call.stream &&
      (call.format == SpeechFormat::kJson ||
       call.format == SpeechFormat::kText)) {
    return Wrong(*words,
                 " needs stream true or response_format verbose_json, srt or "
                 "vtt");
  }
  RETURN_IF_ERROR(CheckSubtitles(call));
  const SpeechField* const alternatives =
      FindGiven(call.given, "num_alternatives");
  if (alternatives != nullptr && call.format != SpeechFormat::kVerboseJson) {
    return Wrong(*alternatives, " needs response_format verbose_json");
  }
  for (const SpeechField& field : call.given) {
    const bool needs_vad =
        field.field == "batch_size" || field.field.starts_with("vad_");
    if (needs_vad && field.field != "vad_filter" && !call.vad_filter) {
      return Wrong(field, " needs vad_filter true");
    }
    if (field.field == "clip_timestamps" && call.vad_filter) {
      return Wrong(field, " and vad_filter exclude each other");
    }
  }
  if (call.stream && call.format != SpeechFormat::kJson &&
      call.format != SpeechFormat::kText) {
    return Wrong(*FindGiven(call.given, "response_format"),
                 " of a stream must be json or text");
  }
  return absl::OkStatus();
}

// Checks the sequences of a window against the limits of the server. They and
// `max_sequences`, against which Transcriber checks, bound the default, too.
absl::Status CheckSequences(std::string_view name, std::string_view flag,
                            int64_t limit, const openai::Limits& limits,
                            int64_t max_sequences, int64_t* value,
                            const SpeechCall& call) {
  if (limits.max_choices < limit) {
    limit = limits.max_choices;
    flag = "--max-choices";
  }
  const SpeechField* const field = FindGiven(call.given, name);
  if (field == nullptr) *value = std::min({*value, limit, max_sequences});
  if (*value <= limit) return absl::OkStatus();
  return Wrong(*field, " must be at most ", limit, " (", flag, "), got ",
               *value);
}

}  // namespace

absl::Status SpeechCall::InWordsOfForm(const absl::Status& error) const {
  const std::optional<FieldError> wrong = FieldErrorOf(error);
  if (!wrong || wrong->field.empty()) return error;
  std::string name = wrong->field;
  if (name == "task") {
    return openai::RefuseField(
        "model",
        "model must be multilingual to translate, and this one is of English "
        "alone: /v1/audio/transcriptions writes down what is said");
  }
  if (name == "temperature" && FindGiven(given, "temperatures") != nullptr) {
    name = "temperatures";
  } else if (const SpeechField* const times =
                 FindGiven(given, "timestamp_granularities");
             name == "word_timestamps" && has_words) {
    name = times->given;
  } else if (const SpeechField* const field = FindGiven(given, name)) {
    name = field->given;
  }
  return openai::WithParam(WithField(error, name), name);
}

SpeechForm::SpeechForm(std::string_view boundary, int64_t max_audio_bytes,
                       int64_t expected_bytes)
    : max_audio_bytes_(max_audio_bytes),
      expected_bytes_(std::min(expected_bytes, max_audio_bytes)),
      reader_(boundary, this) {}

absl::Status SpeechForm::BeginField(std::string_view name,
                                    std::string_view /*filename*/) {
  reading_ = nullptr;
  if (name == "file") {
    if (audio_) {
      return openai::RefuseField("file", "file must be given once, got two");
    }
    audio_.emplace();
    return absl::OkStatus();
  }
  const FieldEntry* const entry = FindField(name);
  if (entry == nullptr) return RefuseUnknown(name);
  auto field = std::ranges::find(fields_, entry->name, &SpeechField::field);
  if (field == fields_.end()) {
    fields_.push_back({std::string(entry->name), std::string(name)});
    field = std::prev(fields_.end());
  } else if (!entry->is_list) {
    return openai::RefuseField(
        name, field->given == name
                  ? Concat(name, " is given twice")
                  : Concat(name, " and ", field->given, " are one field"));
  }
  reading_ = &*field;
  reading_->values.emplace_back();
  return absl::OkStatus();
}

absl::Status SpeechForm::AddToField(std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (reading_ == nullptr) {
    if (std::ssize(*audio_) + size > max_audio_bytes_) {
      return openai::RefuseField(
          "file", Concat("file must have at most ", max_audio_bytes_,
                         " bytes (--max-audio-mib), got more"));
    }
    // As it arrives, not as it is announced; no more than that if it is true.
    const size_t needed = audio_->size() + bytes.size();
    if (needed > audio_->capacity()) {
      audio_->reserve(std::max(
          needed, std::min(2 * needed, static_cast<size_t>(expected_bytes_))));
    }
    audio_->append(bytes);
    return absl::OkStatus();
  }
  num_field_bytes_ += size;
  if (num_field_bytes_ > kMaxSpeechFieldBytes) {
    return openai::RefuseField(
        reading_->given,
        Concat("all fields but file must have at most ", kMaxSpeechFieldBytes,
               " bytes together, got more"));
  }
  reading_->values.back().append(bytes);
  return absl::OkStatus();
}

absl::StatusOr<SpeechCall> SpeechForm::Take(SpeechTask task,
                                            const openai::Limits& limits,
                                            int64_t max_sequences) {
  RETURN_IF_ERROR(reader_.End());
  if (!audio_) {
    return openai::RefuseField("file", "file must be there, got nothing");
  }
  if (audio_->empty()) {
    return openai::RefuseField("file", "file must not be empty");
  }
  SpeechCall call = {.audio = *std::move(audio_), .given = std::move(fields_)};
  call.options.task = task;
  for (const SpeechField& field : call.given) {
    for (const std::string& value : field.values) {
      if (IsUtf8(value)) continue;
      return Wrong(field, " must be UTF-8, got ", BytesInQuotes(value));
    }
    RETURN_IF_ERROR(FindField(field.field)->read(field, &call));
  }
  RETURN_IF_ERROR(CheckTogether(call));
  if (call.has_words) {
    const SpeechField* const words = FindGiven(call.given, "word_timestamps");
    if (words != nullptr && !call.options.word_timestamps) {
      return Wrong(*words,
                   " must not be false with word in "
                   "timestamp_granularities");
    }
    call.options.word_timestamps = true;
  }
  if (call.options.batch_size) {
    call.options.vad_options.SetChunkDefaults([&](std::string_view name) {
      return FindGiven(call.given, name) != nullptr;
    });
  }
  RETURN_IF_ERROR(CheckSequences("num_beams", "--max-num-beams",
                                 limits.max_num_beams, limits, max_sequences,
                                 &call.options.num_beams, call));
  RETURN_IF_ERROR(CheckSequences("best_of", "--max-n", limits.max_n, limits,
                                 max_sequences, &call.options.best_of, call));
  return call;
}

}  // namespace espalier::serve
