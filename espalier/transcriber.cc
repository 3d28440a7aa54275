#include "espalier/transcriber.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <span>
#include <string_view>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "batcher/scheduler/too_few_pages.h"
#include "espalier/error_parts.h"
#include "espalier/transcribe_chunks.h"
#include "request/json/generation_config.h"
#include "speech/feature_windows.h"
#include "speech/speech_chunks.h"
#include "speech/speech_listener.h"
#include "speech/token_times.h"
#include "speech/transcript_builder.h"
#include "speech/voice_activity.h"
#include "speech/whisper_tokens.h"

namespace espalier {
namespace {

constexpr double kMaxTemperature = 100;
// A window that fails at all of them takes so many searches.
constexpr int kMaxTemperatures = 100;
constexpr int64_t kMaxDetectionSegments = 100;
constexpr int64_t kMaxBatchSize = 256;  // a thread each
// The end of the vocabulary of English models, which have no other mark where
// generation_config.json does not say.
constexpr TokenId kEnglishEnd = 50256;
constexpr int64_t kMaxSequences = 1000;
// Key/value memory until the model's sizes are known: on a GPU it is taken at
// once, and others may leave little. Three pages of the largest Whisper, at
// least.
constexpr int64_t kFirstCacheBytes = int64_t{64} << 20;
constexpr int64_t kLargestWhisperBytesPerToken = (int64_t{5} << 20) / 16;
// Positions of the shortest decoder that has room for a prompt and a text.
constexpr int kMinContext = 16;

// Errors: kInvalidArgument naming the file and field.
absl::StatusOr<bool> IsMultilingual(const std::string& directory,
                                    const Tokenizer& tokenizer) {
  const bool by_vocabulary =
      tokenizer.PieceToId("<|endoftext|>") != kEnglishEnd;
  const std::string path = directory + "/generation_config.json";
  absl::StatusOr<json::object> config = ReadConfigObject(path);
  if (absl::IsNotFound(config.status())) return by_vocabulary;
  RETURN_IF_ERROR(config.status());
  const json::value* const value = config->if_contains("is_multilingual");
  if (value == nullptr || value->is_null()) return by_vocabulary;
  if (value->is_bool()) return value->get_bool();
  return InvalidArgument(path, ": is_multilingual must be true or false, got ",
                         Shown(value));
}

// Returns the heads that `config` names for alignment; none if it does not.
// Errors: kInvalidArgument naming the file, the field and the value.
absl::StatusOr<std::vector<AttentionHead>> ReadAlignmentHeads(
    const json::object& config, const std::string& path,
    const AttentionShape& shape) {
  std::vector<AttentionHead> heads;
  const json::value* const value = config.if_contains("alignment_heads");
  if (value == nullptr || value->is_null()) return heads;
  const auto refuse = [&] {
    return InvalidArgument(path,
                           ": alignment_heads must be pairs of a layer "
                           "below ",
                           shape.num_layers, " and a head below ",
                           shape.num_heads, ", got ", Shown(value));
  };
  if (!value->is_array()) return refuse();
  for (const json::value& pair : value->get_array()) {
    const json::array* const items = pair.if_array();
    if (items == nullptr || items->size() != 2) return refuse();
    int numbers[2];
    for (size_t i = 0; i < 2; ++i) {
      const int64_t* const number = (*items)[i].if_int64();
      const int limit = i == 0 ? shape.num_layers : shape.num_heads;
      if (number == nullptr || *number < 0 || *number >= limit) return refuse();
      numbers[i] = static_cast<int>(*number);
    }
    heads.push_back({numbers[0], numbers[1]});
  }
  return heads;
}

// Returns the heads of generation_config.json, or of config.json, where
// CTranslate2 has them, or else, as openai does, all heads of
// the upper half of the layers. None if the model reports no attention.
absl::StatusOr<std::vector<AttentionHead>> FindAlignmentHeads(
    const std::string& directory, const ModelDescription& model) {
  std::vector<AttentionHead> heads;
  if (!model.encoder->reported_attention) return heads;
  const AttentionShape& shape = *model.encoder->reported_attention;
  for (const char* const name : {"generation_config.json", "config.json"}) {
    const std::string path = Concat(directory, "/", name);
    const absl::StatusOr<json::object> config = ReadConfigObject(path);
    if (absl::IsNotFound(config.status())) continue;
    RETURN_IF_ERROR(config.status());
    ASSIGN_OR_RETURN(heads, ReadAlignmentHeads(*config, path, shape));
    if (!heads.empty()) return heads;
  }
  for (int layer = shape.num_layers / 2; layer < shape.num_layers; ++layer) {
    for (int head = 0; head < shape.num_heads; ++head) {
      heads.push_back({layer, head});
    }
  }
  return heads;
}

// Returns the tokens of a text, none of which is a time or another mark:
// spelled in a user's text, a mark stays text.
// Errors: as Tokenizer::Encode.
absl::StatusOr<std::vector<TokenId>> EncodePlain(const Tokenizer& tokenizer,
                                                 const WhisperTokens& whisper,
                                                 std::string_view text) {
  ASSIGN_OR_RETURN(std::vector<TokenId> tokens, tokenizer.Encode(text));
  const auto is_text = [&](TokenId token) { return whisper.IsText(token); };
  if (std::ranges::all_of(tokens, is_text)) return tokens;
  tokens.clear();
  while (!text.empty()) {
    const size_t mark = text.find("<|");
    const std::string_view part =
        text.substr(0, mark == text.npos ? mark : mark + 1);
    ASSIGN_OR_RETURN(const std::vector<TokenId> more, tokenizer.Encode(part));
    tokens.insert(tokens.end(), more.begin(), more.end());
    text.remove_prefix(part.size());
  }
  return tokens;
}

absl::Status CheckOneNumber(std::string_view field, double value, double low,
                            double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidField(OptionName{field}, " must be in [", low, ", ", high, "]",
                      Got(value));
}

absl::Status CheckCount(std::string_view field, int64_t value, int64_t low,
                        int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidField(OptionName{field}, " must be in [", low, ", ", high, "]",
                      Got(value));
}

absl::Status CheckNoNan(std::string_view field, std::optional<double> value) {
  if (!value || !std::isnan(*value)) return absl::OkStatus();
  return InvalidField(OptionName{field}, " must be a number", Got(*value));
}

// Checks the options of words.
absl::Status CheckWords(const TranscribeOptions& options) {
  for (const auto& [field, text, preset] :
       {std::tuple<std::string_view, std::string_view, std::string_view>{
            "prepend_punctuations", options.prepend_punctuations,
            kPrependPunctuations},
        {"append_punctuations", options.append_punctuations,
         kAppendPunctuations}}) {
    if (!IsUtf8(text)) return InvalidField(OptionName{field}, " must be UTF-8");
    if (options.word_timestamps || text == preset) continue;
    return InvalidField(OptionName{field}, " needs ",
                        OptionName{"word_timestamps"},
                        Got(ShownInQuotes(text)));
  }
  if (!options.hallucination_silence_threshold) return absl::OkStatus();
  constexpr std::string_view kSilence = "hallucination_silence_threshold";
  const double threshold = *options.hallucination_silence_threshold;
  if (!options.word_timestamps) {
    return InvalidField(OptionName{kSilence}, " needs ",
                        OptionName{"word_timestamps"}, Got(threshold));
  }
  return CheckOneNumber(kSilence, threshold, 0, 1e9);
}

// With the longest span of a chunk, which is held in memory.
VadOptions VadOptionsOf(const TranscribeOptions& options) {
  VadOptions vad = options.vad_options;
  if (options.batch_size) {
    vad.max_speech_duration_s =
        std::min(vad.max_speech_duration_s,
                 VadOptions::ForChunks().max_speech_duration_s);
  }
  return vad;
}

absl::Status CheckNumbers(const TranscribeOptions& options) {
  if (options.temperature.empty()) {
    return InvalidField(OptionName{"temperature"}, " must not be empty",
                        Got("[]"));
  }
  if (std::ssize(options.temperature) > kMaxTemperatures) {
    return InvalidField(OptionName{"temperature"}, " must have at most ",
                        kMaxTemperatures, " numbers",
                        Got(options.temperature.size()));
  }
  for (const double temperature : options.temperature) {
    RETURN_IF_ERROR(
        CheckOneNumber("temperature", temperature, 0, kMaxTemperature));
  }
  RETURN_IF_ERROR(CheckCount("num_beams", options.num_beams, 1, kMaxSequences));
  RETURN_IF_ERROR(CheckCount("best_of", options.best_of, 1, kMaxSequences));
  if (!(options.patience > 0) || !std::isfinite(options.patience)) {
    return InvalidField(OptionName{"patience"}, " must be a number above 0",
                        Got(options.patience));
  }
  RETURN_IF_ERROR(
      CheckOneNumber("length_penalty", options.length_penalty, -100, 100));
  const FallbackThresholds& thresholds = options.thresholds;
  RETURN_IF_ERROR(
      CheckNoNan("compression_ratio_threshold", thresholds.compression_ratio));
  RETURN_IF_ERROR(CheckNoNan("logprob_threshold", thresholds.logprob));
  RETURN_IF_ERROR(CheckNoNan("no_speech_threshold", thresholds.no_speech));
  RETURN_IF_ERROR(CheckNoNan("prompt_reset_on_temperature",
                             options.prompt_reset_on_temperature));
  RETURN_IF_ERROR(CheckOneNumber("language_detection_threshold",
                                 options.language_detection_threshold, 0, 1));
  RETURN_IF_ERROR(CheckCount("language_detection_segments",
                             options.language_detection_segments, 1,
                             kMaxDetectionSegments));
  RETURN_IF_ERROR(CheckCount("num_alternatives", options.num_alternatives, 0,
                             kMaxSequences));
  if (options.max_initial_timestamp) {
    RETURN_IF_ERROR(CheckOneNumber("max_initial_timestamp",
                                   *options.max_initial_timestamp, 0, 30));
  }
  RETURN_IF_ERROR(ClipsOf(options.clip_timestamps, 1).status());
  if (options.batch_size) {
    RETURN_IF_ERROR(
        CheckCount("batch_size", *options.batch_size, 1, kMaxBatchSize));
    if (options.voice_activity == nullptr) {
      return InvalidField(OptionName{"batch_size"}, " needs ",
                          OptionName{"vad_model"}, Got(*options.batch_size));
    }
  }
  RETURN_IF_ERROR(CheckWords(options));
  if (options.voice_activity == nullptr) return absl::OkStatus();
  if (!options.clip_timestamps.empty()) {
    return InvalidField(OptionName{"clip_timestamps"}, " must be empty with ",
                        OptionName{"vad_model"},
                        Got(options.clip_timestamps.size(), " times"));
  }
  RETURN_IF_ERROR(CheckVadOptions(options.vad_options));
  if (CheckVadOptions(VadOptionsOf(options)).ok()) return absl::OkStatus();
  // Padding on both sides and a second of speech are in a chunk.
  const double most =
      (VadOptions::ForChunks().max_speech_duration_s - 1) * 1000 / 2;
  return InvalidField(OptionName{"vad_speech_pad_ms"}, " must be at most ",
                      most, " with ", OptionName{"batch_size"},
                      Got(options.vad_options.speech_pad_ms));
}

// Checks the parameters of a window's search together.
absl::Status CheckSearch(const ModelDescription& model,
                         const TranscribeOptions& options) {
  GenerationParams params;
  params.num_beams = options.num_beams;
  params.early_stopping = EarlyStopping::kTrue;
  params.patience = options.patience;
  params.length_penalty = options.length_penalty;
  params.length_counts_eos = false;
  return ValidateParams(model, /*num_prompt_tokens=*/1, &params);
}

// In the hundredths that times of spans are given in.
double Rounded(double seconds) { return std::nearbyint(seconds * 100) / 100; }

void Restore(const SpeechTimes& times, int64_t* seek, double* start,
             double* end) {
  *seek = std::lround(times.BeginOf(static_cast<double>(*seek) / 100) * 100);
  *start = Rounded(times.BeginOf(*start));
  *end = Rounded(times.EndOf(*end));
}

// Both times of a word are in one span, and the segment's are its words'.
// REQUIRES: it has a word.
void RestoreWords(const SpeechTimes& times, TranscriptSegment& segment) {
  for (TranscriptWord& word : *segment.words) {
    const auto [start, end] = times.BothOf(word.start, word.end);
    word.start = Rounded(start);
    word.end = Rounded(end);
  }
  segment.start = segment.words->front().start;
  segment.end = segment.words->back().end;
}

// An audio that is read while a call runs.
class CallReader : public AudioReader {
 public:
  CallReader(std::unique_ptr<AudioReader> reader,
             std::function<absl::Status()> check)
      : reader_(std::move(reader)), check_(std::move(check)) {}

  const std::string& name() const override { return reader_->name(); }
  const AudioFormat& format() const override { return reader_->format(); }
  absl::StatusOr<size_t> Read(std::span<float> samples) override {
    RETURN_IF_ERROR(check_());
    return reader_->Read(samples);
  }

 private:
  const std::unique_ptr<AudioReader> reader_;
  const std::function<absl::Status()> check_;
};

// Returns the error of a search whose window does not fit into memory in words
// of windows: the caller knows of no requests.
absl::Status OfWindow(const absl::Status& error,
                      const GenerationParams& params) {
  if (!error.GetPayload(kTooFewPages)) return error;
  constexpr OptionName kMemory{"kv_cache_bytes"};
  const int64_t num_sequences = NumSequences(params);
  if (num_sequences == 1) {
    return WithParts(error,
                     MessageParts(kMemory,
                                  " is too small for the keys and values of "
                                  "a window"));
  }
  return WithParts(
      error,
      MessageParts(FieldName{IsBeamSearch(params) ? "num_beams" : "best_of"},
                   " is too high for the memory of keys and values: lower it "
                   "or raise ",
                   kMemory, Got(num_sequences)));
}

}  // namespace

struct Transcriber::Parts {
  std::shared_ptr<Generator> generator;
  std::shared_ptr<const Tokenizer> tokenizer;
  WhisperTokens whisper;
  FeatureShape features;
  int max_context = 0;
  std::vector<TokenId> not_spoken;
  std::vector<TokenId> not_at_begin;
  std::vector<AttentionHead> alignment_heads;  // empty: no words

  // Half of the decoder's positions: what a window writes at most.
  int max_text() const { return max_context / 2; }
  // A text with all that is fed around it to align it, which is the longest
  // prompt without previous text, two ends and a place to spare.
  int max_aligned_text() const { return max_context - 7; }

  // Null: the model's only one, or none is given.
  // Errors: kInvalidArgument naming the option.
  absl::StatusOr<const NaturalLanguage*> FindLanguage(
      const std::string& name) const;
  // Returns the tokens of " " and the text without space around it; none of a
  // blank text. Errors: kInvalidArgument naming the option.
  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view field,
                                              std::string_view text) const;
  absl::StatusOr<SharedList<int64_t>> Suppressed(
      const TranscribeOptions& options) const;
  absl::Status Check(const TranscribeOptions& options) const;
};

absl::StatusOr<const NaturalLanguage*> Transcriber::Parts::FindLanguage(
    const std::string& name) const {
  if (name.empty()) return nullptr;
  if (!whisper.is_multilingual()) {
    const bool is_english = absl::EqualsIgnoreCase(name, "en") ||
                            absl::EqualsIgnoreCase(name, "english");
    if (is_english) return nullptr;
    return InvalidField(OptionName{"language"},
                        " must be en for an English model",
                        Got(ShownInQuotes(name)));
  }
  const absl::StatusOr<const NaturalLanguage*> found =
      whisper.languages().Find(name);
  if (!found.ok()) {
    return InvalidField(OptionName{"language"}, ": ", Message(found.status()));
  }
  return found;
}

absl::StatusOr<std::vector<TokenId>> Transcriber::Parts::Encode(
    std::string_view field, std::string_view text) const {
  // Far more than there is room for.
  constexpr size_t kMaxTextBytes = 1 << 20;
  if (!IsUtf8(text)) return InvalidField(OptionName{field}, " must be UTF-8");
  if (text.size() > kMaxTextBytes) {
    return InvalidField(OptionName{field}, " must have at most ", kMaxTextBytes,
                        " bytes", Got(text.size()));
  }
  const std::string_view stripped = StripSpace(text);
  if (stripped.empty()) return std::vector<TokenId>();
  absl::StatusOr<std::vector<TokenId>> tokens =
      EncodePlain(*tokenizer, whisper, Concat(" ", stripped));
  if (!tokens.ok()) return AnnotateOption(tokens.status(), field);
  return tokens;
}

absl::StatusOr<SharedList<int64_t>> Transcriber::Parts::Suppressed(
    const TranscribeOptions& options) const {
  // Never part of a text.
  std::vector<int64_t> tokens = {
      whisper.translate(),   whisper.transcribe(),        whisper.start(),
      whisper.start_of_lm(), whisper.start_of_previous(), whisper.no_speech()};
  const int vocab_size = generator->description().vocab_size;
  for (const int64_t token : options.suppress_tokens) {
    if (token == -1) {
      tokens.insert(tokens.end(), not_spoken.begin(), not_spoken.end());
    } else if (token >= 0 && token < vocab_size) {
      tokens.push_back(token);
    } else {
      return InvalidField(OptionName{"suppress_tokens"}, " must be in [-1, ",
                          vocab_size - 1, "]", Got(token));
    }
  }
  std::ranges::sort(tokens);
  const auto same = std::ranges::unique(tokens);
  tokens.erase(same.begin(), same.end());
  return SharedList<int64_t>(std::move(tokens));
}

absl::Status Transcriber::Parts::Check(const TranscribeOptions& options) const {
  RETURN_IF_ERROR(CheckNumbers(options));
  RETURN_IF_ERROR(CheckSearch(generator->description(), options));
  RETURN_IF_ERROR(FindLanguage(options.language).status());
  if (options.task == SpeechTask::kTranslate && !whisper.is_multilingual()) {
    return InvalidField(OptionName{"task"},
                        " must be transcribe for an English model",
                        Got("translate"));
  }
  if (options.multilingual && !whisper.is_multilingual()) {
    return InvalidField(OptionName{"multilingual"},
                        " must be false for an English model", Got("true"));
  }
  if (options.max_new_tokens) {
    RETURN_IF_ERROR(
        CheckCount("max_new_tokens", *options.max_new_tokens, 1,
                   options.word_timestamps ? max_aligned_text() : max_context));
  }
  if (options.word_timestamps && alignment_heads.empty()) {
    return InvalidField(OptionName{"word_timestamps"},
                        " must be false: the model reports no attention that "
                        "words are timed by",
                        Got("true"));
  }
  RETURN_IF_ERROR(Suppressed(options).status());
  RETURN_IF_ERROR(Encode("initial_prompt", options.initial_prompt).status());
  RETURN_IF_ERROR(Encode("hotwords", options.hotwords).status());
  ASSIGN_OR_RETURN(const std::vector<TokenId> prefix,
                   Encode("prefix", options.prefix));
  if (std::ssize(prefix) >= max_text()) {
    return InvalidField(OptionName{"prefix"}, " must have at most ",
                        max_text() - 1, " tokens", Got(prefix.size()));
  }
  return absl::OkStatus();
}

// One transcription.
class Transcriber::Run {
 public:
  // All outlive this.
  Run(const Parts& parts, const TranscribeOptions& options,
      const CallOptions& call)
      : parts_(parts), options_(options), call_(call), start_(absl::Now()) {}

  absl::StatusOr<Transcript> Transcribe(const OpenAudio& open,
                                        const WindowFunction& on_window);

 private:
  struct Try {
    DecodedQuality quality;
    Generation generation;
  };
  using Features = std::shared_ptr<const FeatureMatrix>;

  absl::Status Prepare();
  // Errors: kCancelled and kDeadlineExceeded by the call's options.
  absl::Status CheckCall() const;
  // Ends with the call, or when `stop` asks it to, with kCancelled.
  absl::StatusOr<Generation> Generate(Request request,
                                      std::stop_token stop) const;
  // Returns the log-probability of each of `tokens` after `prompt`, which is
  // the decoder's.
  absl::StatusOr<std::vector<double>> Score(
      const Features& features, std::span<const TokenId> prompt,
      std::span<const TokenId> tokens) const;
  // Returns the spans of speech, and sets duration_.
  absl::StatusOr<std::vector<SpeechSpan>> Listen(const OpenAudio& audio);
  absl::StatusOr<Transcript> TranscribeAll(const OpenAudio& audio,
                                           const WindowFunction& on_window);
  // Makes times of the speech alone times of the audio.
  template <typename T>
  void RestoreTimes(std::vector<T>& parts) const {
    if (!speech_) return;
    for (T& part : parts) {
      Restore(*speech_, &part.seek, &part.start, &part.end);
      if constexpr (std::is_same_v<T, TranscriptSegment>) {
        if (part.words && !part.words->empty()) RestoreWords(*speech_, part);
      }
    }
  }
  // Transcribes chunks of speech independently of each other, batch_size of
  // them at a time, as they are heard.
  absl::StatusOr<Transcript> TranscribeSpeech(const OpenAudio& audio,
                                              const WindowFunction& on_window);
  // Sets the language by the speech of the first chunks.
  absl::Status DetectLanguageOf(const OpenAudio& audio,
                                const std::vector<SpeechSpan>& spans);
  // Transcribes a chunk; `stop` ends it.
  absl::StatusOr<Transcript> TranscribeChunk(const SpeechChunk& chunk,
                                             ChunkLanguages& languages,
                                             std::stop_token stop) const;
  bool Detects() const {
    return language_ == nullptr && parts_.whisper.is_multilingual();
  }
  std::string CodeOf(const NaturalLanguage* language) const;
  // Returns it with the audio's language and duration.
  Transcript WithLanguage(Transcript transcript) const;
  // Returns the likeliest language of a window, and its probability.
  absl::StatusOr<std::pair<const NaturalLanguage*, double>> LikeliestLanguage(
      const Features& features) const;
  // Sets the language, of the window at `first` or some that follow.
  absl::Status DetectLanguage(FeatureWindows& windows, int64_t first);
  // Sets window_language_, if one is likely enough.
  absl::Status DetectLanguageOfWindow(const Features& features, bool is_first);
  // Returns the times of the tokens of a window's text.
  //   num_frames  of audio in the window
  absl::StatusOr<TokenTimes> Align(const Features& features, int64_t num_frames,
                                   std::span<const TokenId> text) const;
  absl::StatusOr<DecodedWindow> Decode(const Features& features,
                                       const TranscriptBuilder& builder,
                                       const AudioWindow& window) const;
  // Returns the first try that passes and its temperature, or the best of all.
  absl::StatusOr<std::pair<Try, double>> DecodeUntilOnePasses(
      const Request& request, uint64_t seed, double no_speech_prob,
      const TranscriptBuilder& builder) const;
  absl::StatusOr<Try> DecodeAt(double temperature, uint64_t seed,
                               Request request,
                               const TranscriptBuilder& builder,
                               std::stop_token stop) const;
  absl::StatusOr<DecodedWindow> Decoded(const Try& taken, double temperature,
                                        double no_speech_prob,
                                        const TranscriptBuilder& builder) const;
  std::vector<TokenId> TokensOf(const Hypothesis& hypothesis) const;
  double AvgLogprob(const Hypothesis& hypothesis) const;

  const Parts& parts_;
  const TranscribeOptions& options_;
  const CallOptions& call_;
  const absl::Time start_;
  GenerationParams params_;  // shared by all windows
  std::vector<TokenId> prefix_;
  const NaturalLanguage* language_ = nullptr;  // Transcript::language
  double language_probability_ = 1;
  // The current window's: language_ unless options_.multilingual.
  const NaturalLanguage* window_language_ = nullptr;
  // Set of a chunk.
  ChunkLanguages* chunk_languages_ = nullptr;
  int64_t chunk_ = 0;
  double duration_ = 0;  // seconds of all of the audio
  std::optional<SpeechTimes> speech_ = std::nullopt;
};

absl::Status Transcriber::Run::Prepare() {
  const WhisperTokens& whisper = parts_.whisper;
  ASSIGN_OR_RETURN(language_, parts_.FindLanguage(options_.language));
  ASSIGN_OR_RETURN(prefix_, parts_.Encode("prefix", options_.prefix));
  ASSIGN_OR_RETURN(params_.suppress_tokens, parts_.Suppressed(options_));
  if (options_.suppress_blank) {
    params_.begin_suppress_tokens = std::vector<int64_t>(
        parts_.not_at_begin.begin(), parts_.not_at_begin.end());
  }
  params_.eos_token_id = std::vector<int64_t>{whisper.end()};
  params_.renormalize_logits = true;
  params_.length_counts_eos = false;
  params_.length_penalty = options_.length_penalty;
  if (options_.without_timestamps) return absl::OkStatus();
  params_.timestamps = TimestampParams{.first_time = whisper.first_time(),
                                       .end = whisper.end(),
                                       .no_timestamps = whisper.no_timestamps(),
                                       .max_initial_step = std::nullopt};
  if (options_.max_initial_timestamp) {
    params_.timestamps->max_initial_step = std::lround(
        *options_.max_initial_timestamp * WhisperTokens::kTimesPerSecond);
  }
  return absl::OkStatus();
}

absl::Status Transcriber::Run::CheckCall() const {
  if (call_.stop.stop_requested()) {
    return absl::CancelledError("the caller stopped the transcription");
  }
  if (absl::Now() - start_ < call_.timeout) return absl::OkStatus();
  return MakeError(absl::StatusCode::kDeadlineExceeded,
                   "the transcription was not complete after ",
                   absl::FormatDuration(call_.timeout));
}

absl::StatusOr<Generation> Transcriber::Run::Generate(
    Request request, std::stop_token stop) const {
  RETURN_IF_ERROR(CheckCall());
  const GenerationParams params = request.params;
  absl::StatusOr<Generation> generation = parts_.generator->GenerateTokens(
      std::move(request), {.timeout = call_.timeout - (absl::Now() - start_),
                           .stop = std::move(stop)});
  if (!generation.ok()) return OfWindow(generation.status(), params);
  return generation;
}

absl::StatusOr<std::vector<double>> Transcriber::Run::Score(
    const Features& features, std::span<const TokenId> prompt,
    std::span<const TokenId> tokens) const {
  Request request;
  request.features = features;
  request.params.decoder_prompt_tokens = {prompt.begin(), prompt.end()};
  for (const TokenId token : tokens) request.continuations.push_back({token});
  ASSIGN_OR_RETURN(const Generation scores,
                   Generate(std::move(request), call_.stop));
  std::vector<double> log_probs;
  for (const ContinuationScore& score : scores.continuations) {
    log_probs.push_back(score.cum_log_prob);
  }
  return log_probs;
}

absl::StatusOr<TokenTimes> Transcriber::Run::Align(
    const Features& features, int64_t num_frames,
    std::span<const TokenId> text) const {
  const WhisperTokens& whisper = parts_.whisper;
  ASSIGN_OR_RETURN(std::vector<TokenId> prompt,
                   whisper.PromptOf({.language = window_language_,
                                     .task = options_.task,
                                     .has_timestamps = false},
                                    parts_.max_context));
  const auto num_before = static_cast<int>(std::ssize(prompt)) - 1;
  prompt.insert(prompt.end(), text.begin(), text.end());
  // All tokens but the last are aligned, and so must be the end of the text.
  prompt.insert(prompt.end(), 2, whisper.end());
  // Positions of the encoder have two frames each.
  const int num_positions = std::max<int>(1, static_cast<int>(num_frames / 2));
  Request request;
  request.features = features;
  request.params.decoder_prompt_tokens = {prompt.begin(), prompt.end()};
  request.alignment = std::make_shared<const AlignmentQuery>(
      AlignmentQuery{.heads = parts_.alignment_heads,
                     .num_positions = num_positions,
                     .num_text_tokens = whisper.end()});
  ASSIGN_OR_RETURN(const Generation generation,
                   Generate(std::move(request), call_.stop));
  if (!generation.alignment) return Internal("a window is not aligned");
  const Alignment& alignment = *generation.alignment;
  // Row i is of the token before token i of the text, which predicts it, as in
  // openai's program.
  const int num_rows = static_cast<int>(text.size()) + 1;
  const std::vector<float> matrix = AlignmentMatrix(
      {.values = alignment.attention_scores,
       .num_tokens = static_cast<int>(prompt.size()) - 1,
       .num_heads = static_cast<int>(parts_.alignment_heads.size()),
       .num_positions = num_positions},
      num_before, num_rows);
  TokenTimes times = {.steps = AlignRows(matrix, num_rows, num_positions)};
  for (size_t i = 0; i < text.size(); ++i) {
    times.probabilities.push_back(
        std::exp(alignment.log_probs.at(num_before + i)));
  }
  return times;
}

absl::StatusOr<std::pair<const NaturalLanguage*, double>>
Transcriber::Run::LikeliestLanguage(const Features& features) const {
  const std::vector<NaturalLanguage>& languages =
      parts_.whisper.languages().all();
  std::vector<TokenId> tokens;
  for (const NaturalLanguage& language : languages) {
    tokens.push_back(language.token);
  }
  const TokenId start = parts_.whisper.start();
  ASSIGN_OR_RETURN(const std::vector<double> log_probs,
                   Score(features, std::span(&start, 1), tokens));
  // Softmax over the languages alone.
  const auto best = std::ranges::max_element(log_probs);
  double sum = 0;
  for (const double log_prob : log_probs) sum += std::exp(log_prob - *best);
  return std::pair(&languages[static_cast<size_t>(best - log_probs.begin())],
                   1 / sum);
}

absl::Status Transcriber::Run::DetectLanguage(FeatureWindows& windows,
                                              int64_t first) {
  struct Vote {
    const NaturalLanguage* language;
    int count = 0;
    double highest = 0;  // probability
  };
  std::vector<Vote> votes;  // in the order in which languages were heard
  const int64_t rows = parts_.features.num_rows;
  for (int64_t i = 0; i < options_.language_detection_segments; ++i) {
    const int64_t seek = first + i * rows;
    if (seek >= windows.num_frames()) break;
    windows.ForgetBefore(seek);
    ASSIGN_OR_RETURN(
        const Features features,
        windows.Window(seek, std::min(rows, windows.num_frames() - seek),
                       static_cast<int>(rows)));
    ASSIGN_OR_RETURN(const auto likeliest, LikeliestLanguage(features));
    const auto [language, probability] = likeliest;
    if (probability > options_.language_detection_threshold) {
      language_ = language;
      language_probability_ = probability;
      return absl::OkStatus();
    }
    auto vote = std::ranges::find(votes, language, &Vote::language);
    if (vote == votes.end()) vote = votes.insert(vote, {.language = language});
    ++vote->count;
    vote->highest = std::max(vote->highest, probability);
  }
  const auto most = std::ranges::max_element(votes, {}, &Vote::count);
  language_ = most->language;
  language_probability_ = most->highest;
  return absl::OkStatus();
}

absl::Status Transcriber::Run::DetectLanguageOfWindow(const Features& features,
                                                      bool is_first) {
  ASSIGN_OR_RETURN(const auto likeliest, LikeliestLanguage(features));
  const bool is_sure = likeliest.second > options_.language_detection_threshold;
  const NaturalLanguage* language = is_sure ? likeliest.first : nullptr;
  if (is_first && chunk_languages_ != nullptr) {
    ASSIGN_OR_RETURN(language,
                     chunk_languages_->Resolve(chunk_, language, call_.stop));
  }
  if (language != nullptr) window_language_ = language;
  return absl::OkStatus();
}

std::vector<TokenId> Transcriber::Run::TokensOf(
    const Hypothesis& hypothesis) const {
  std::vector<TokenId> tokens = hypothesis.tokens;
  if (!tokens.empty() && tokens.back() == parts_.whisper.end()) {
    tokens.pop_back();
  }
  return tokens;
}

double Transcriber::Run::AvgLogprob(const Hypothesis& hypothesis) const {
  return hypothesis.cum_log_prob /
         static_cast<double>(TokensOf(hypothesis).size() + 1);
}

absl::StatusOr<Transcriber::Run::Try> Transcriber::Run::DecodeAt(
    double temperature, uint64_t seed, Request request,
    const TranscriptBuilder& builder, std::stop_token stop) const {
  GenerationParams& params = request.params;
  int64_t num_sequences = options_.num_beams;
  if (temperature > 0) {
    params.do_sample = true;
    params.temperature = temperature;
    params.best_of = num_sequences = options_.best_of;
    params.seed = seed;
  } else {
    params.num_beams = num_sequences;
    params.early_stopping = EarlyStopping::kTrue;
    params.patience = options_.patience;
  }
  params.num_return_sequences =
      std::clamp<int64_t>(options_.num_alternatives, 1, num_sequences);
  ASSIGN_OR_RETURN(Generation generation,
                   Generate(std::move(request), std::move(stop)));
  if (generation.hypotheses.empty()) {
    return Internal("a window has no hypothesis");
  }
  const Hypothesis& best = generation.hypotheses[0];
  ASSIGN_OR_RETURN(const std::string text, builder.TextOf(TokensOf(best)));
  return Try{{AvgLogprob(best), CompressionRatio(StripSpace(text))},
             std::move(generation)};
}

absl::StatusOr<DecodedWindow> Transcriber::Run::Decoded(
    const Try& taken, double temperature, double no_speech_prob,
    const TranscriptBuilder& builder) const {
  DecodedWindow decoded = {.tokens = TokensOf(taken.generation.hypotheses[0]),
                           .quality = taken.quality,
                           .temperature = temperature,
                           .no_speech_prob = no_speech_prob,
                           .language = CodeOf(window_language_)};
  if (options_.num_alternatives == 0) return decoded;
  for (const Hypothesis& hypothesis : taken.generation.hypotheses) {
    std::vector<TokenId> tokens = TokensOf(hypothesis);
    ASSIGN_OR_RETURN(std::string text, builder.TextOf(tokens));
    decoded.alternatives.push_back({.text = std::move(text),
                                    .tokens = std::move(tokens),
                                    .score = hypothesis.score,
                                    .avg_logprob = AvgLogprob(hypothesis)});
  }
  return decoded;
}

absl::StatusOr<std::pair<Transcriber::Run::Try, double>>
Transcriber::Run::DecodeUntilOnePasses(const Request& request, uint64_t seed,
                                       double no_speech_prob,
                                       const TranscriptBuilder& builder) const {
  const std::vector<double>& temperatures = options_.temperature;
  // Ends the tries that are not needed, which the futures wait for.
  std::stop_source stop;
  const std::stop_callback on_stop(call_.stop, [&] { stop.request_stop(); });
  const auto decode = [&](size_t i) {
    return DecodeAt(temperatures[i], (seed + i) % kMaxDrawnSeed, request,
                    builder, stop.get_token());
  };
  std::vector<std::future<absl::StatusOr<Try>>> ahead;  // the second and so on
  const absl::Cleanup end_others = [&] { stop.request_stop(); };
  std::vector<Try> tries;
  std::vector<DecodedQuality> qualities;
  for (size_t i = 0; i < temperatures.size(); ++i) {
    ASSIGN_OR_RETURN(Try decoded, i > 0 && i - 1 < ahead.size()
                                      ? ahead[i - 1].get()
                                      : decode(i));
    if (!NeedsFallback(options_.thresholds, decoded.quality, no_speech_prob)) {
      return std::pair(std::move(decoded), temperatures[i]);
    }
    qualities.push_back(decoded.quality);
    tries.push_back(std::move(decoded));
    if (i > 0 || !options_.eager_fallback) continue;
    try {
      while (ahead.size() + 1 < temperatures.size()) {
        const size_t next = ahead.size() + 1;
        ahead.push_back(
            std::async(std::launch::async, [&, next] { return decode(next); }));
      }
    } catch (const std::system_error&) {
      // No thread: the rest one after the other, with the same result.
    }
  }
  const size_t best = BestOfFailed(options_.thresholds, qualities);
  return std::pair(std::move(tries[best]), temperatures.back());
}

absl::StatusOr<DecodedWindow> Transcriber::Run::Decode(
    const Features& features, const TranscriptBuilder& builder,
    const AudioWindow& window) const {
  const std::vector<TokenId> previous = builder.Prompt();
  const bool has_prefix = window.first == 0 && !prefix_.empty();
  ASSIGN_OR_RETURN(const std::vector<TokenId> prompt,
                   parts_.whisper.PromptOf(
                       {.previous = previous,
                        .language = window_language_,
                        .task = options_.task,
                        .has_timestamps = !options_.without_timestamps,
                        .prefix = has_prefix ? std::span<const TokenId>(prefix_)
                                             : std::span<const TokenId>()},
                       parts_.max_context));
  // The model reads the features for this, and finds them read afterwards.
  const auto start = std::ranges::find(prompt, parts_.whisper.start());
  const TokenId no_speech = parts_.whisper.no_speech();
  ASSIGN_OR_RETURN(const std::vector<double> log_probs,
                   Score(features, std::span(prompt.begin(), start + 1),
                         std::span(&no_speech, 1)));
  const double no_speech_prob = std::exp(log_probs.at(0));
  Request request;
  request.features = features;
  request.params = params_;
  request.params.decoder_prompt_tokens = {prompt.begin(), prompt.end()};
  request.params.max_new_tokens =
      std::min<int64_t>(options_.max_new_tokens.value_or(parts_.max_text()),
                        parts_.max_context - std::ssize(prompt));
  if (request.params.timestamps && has_prefix) {
    request.params.timestamps->after_prefix = true;
  }
  // Each window and try has a seed of its own.
  const uint64_t seed = options_.seed + static_cast<uint64_t>(window.first) *
                                            options_.temperature.size();
  ASSIGN_OR_RETURN(
      const auto decoded,
      DecodeUntilOnePasses(request, seed, no_speech_prob, builder));
  return Decoded(decoded.first, decoded.second, no_speech_prob, builder);
}

absl::StatusOr<std::vector<SpeechSpan>> Transcriber::Run::Listen(
    const OpenAudio& audio) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AudioReader> reader, audio());
  const std::shared_ptr<ThreadPool> pool = MakeListeningPool();
  VoiceActivityStream stream(*options_.voice_activity, pool.get());
  std::vector<float> probabilities;
  std::vector<float> block(size_t(pool->num_threads()) *
                           VoiceActivityStream::kSamplesOfThread);
  int64_t num_samples = 0;
  for (size_t num_read = block.size(); num_read == block.size();) {
    ASSIGN_OR_RETURN(num_read, reader->Read(block));
    stream.Push(std::span(block).first(num_read), &probabilities);
    num_samples += static_cast<int64_t>(num_read);
  }
  stream.Finish(&probabilities);
  duration_ = static_cast<double>(num_samples) / kSpeechRate;
  return FindSpeech(probabilities, num_samples, VadOptionsOf(options_));
}

absl::StatusOr<Transcript> Transcriber::Run::Transcribe(
    const OpenAudio& open, const WindowFunction& on_window) {
  RETURN_IF_ERROR(Prepare());
  const OpenAudio audio =
      [&]() -> absl::StatusOr<std::unique_ptr<AudioReader>> {
    ASSIGN_OR_RETURN(std::unique_ptr<AudioReader> reader, open());
    return std::make_unique<CallReader>(std::move(reader),
                                        [this] { return CheckCall(); });
  };
  if (options_.voice_activity == nullptr) {
    return TranscribeAll(audio, on_window);
  }
  if (options_.batch_size) return TranscribeSpeech(audio, on_window);
  ASSIGN_OR_RETURN(std::vector<SpeechSpan> spans, Listen(audio));
  speech_.emplace(std::move(spans));
  // Less than a frame of features.
  if (speech_->num_samples() < kFrameStep) return WithLanguage({});
  return TranscribeAll(
      [&]() -> absl::StatusOr<std::unique_ptr<AudioReader>> {
        ASSIGN_OR_RETURN(std::unique_ptr<AudioReader> reader, audio());
        return ReadSpansOnly(std::move(reader), speech_->spans());
      },
      on_window);
}

absl::Status Transcriber::Run::DetectLanguageOf(
    const OpenAudio& audio, const std::vector<SpeechSpan>& spans) {
  // Less than a frame of features: there is nothing to detect it by.
  if (SpeechTimes(spans).num_samples() < kFrameStep) return absl::OkStatus();
  ASSIGN_OR_RETURN(FeatureWindows windows,
                   FeatureWindows::Open(
                       [&]() -> absl::StatusOr<std::unique_ptr<AudioReader>> {
                         ASSIGN_OR_RETURN(std::unique_ptr<AudioReader> reader,
                                          audio());
                         return ReadSpansOnly(std::move(reader), spans);
                       },
                       parts_.features.num_cols));
  return DetectLanguage(windows, 0);
}

absl::StatusOr<Transcript> Transcriber::Run::TranscribeChunk(
    const SpeechChunk& chunk, ChunkLanguages& languages,
    std::stop_token stop) const {
  TranscribeOptions options = options_;
  // Each window of the audio has seeds of its own.
  options.seed = (options_.seed + static_cast<uint64_t>(chunk.first) /
                                      kFrameStep * options.temperature.size()) %
                 kMaxDrawnSeed;
  if (chunk.index > 0) options.prefix.clear();
  const CallOptions call = {.timeout = call_.timeout - (absl::Now() - start_),
                            .stop = std::move(stop)};
  Run run(parts_, options, call);
  RETURN_IF_ERROR(run.Prepare());
  run.language_ = language_;
  run.chunk_languages_ = &languages;
  run.chunk_ = chunk.index;
  run.speech_.emplace(chunk.spans);
  if (run.speech_->num_samples() < kFrameStep) {
    if (options_.multilingual) {
      RETURN_IF_ERROR(
          languages.Resolve(chunk.index, nullptr, call.stop).status());
    }
    return Transcript();
  }
  return run.TranscribeAll([&] { return chunk.Open(); }, nullptr);
}

absl::StatusOr<Transcript> Transcriber::Run::TranscribeSpeech(
    const OpenAudio& audio, const WindowFunction& on_window) {
  // Chunks that wait: enough that none is waited for where listening is fast.
  constexpr int64_t kMaxAhead = 16;
  const int64_t num_to_detect =
      Detects() ? options_.language_detection_segments : 0;
  ASSIGN_OR_RETURN(std::unique_ptr<AudioReader> reader, audio());
  const double duration = reader->format().duration;
  ASSIGN_OR_RETURN(
      const std::unique_ptr<SpeechListener> listener,
      SpeechListener::Start(
          std::move(reader), *options_.voice_activity,
          {.vad = VadOptionsOf(options_),
           .max_samples = int64_t{parts_.features.num_rows} * kFrameStep,
           .num_ahead = static_cast<size_t>(std::max(
               std::min(*options_.batch_size, kMaxAhead), num_to_detect))}));
  if (num_to_detect > 0) {
    ASSIGN_OR_RETURN(
        const std::vector<SpeechSpan> spans,
        listener->SpansOfFirst(static_cast<size_t>(num_to_detect)));
    RETURN_IF_ERROR(DetectLanguageOf(audio, spans));
  }
  std::stop_source stop;
  const std::stop_callback on_stop(call_.stop, [&] { stop.request_stop(); });
  const std::stop_callback on_end(stop.get_token(),
                                  [&] { listener->Cancel(); });
  Transcript all = WithLanguage({});
  const auto seconds = [](int64_t num_samples) {
    return static_cast<double>(num_samples) / kSpeechRate;
  };
  const auto take = [&](Transcript transcript, int64_t next) -> absl::Status {
    const auto num_before = static_cast<ptrdiff_t>(all.segments.size());
    AppendTranscript(std::move(transcript), &all);
    if (on_window == nullptr ||
        on_window(
            std::span(all.segments.begin() + num_before, all.segments.end()),
            {seconds(next),
             std::max(duration, seconds(listener->num_samples())), all.language,
             language_probability_})) {
      return absl::OkStatus();
    }
    return absl::CancelledError("the caller ended the transcription");
  };
  ChunkLanguages languages(language_);
  const absl::Status status = TranscribeChunks(
      [&] { return listener->Next(); }, *options_.batch_size, stop,
      [&](const SpeechChunk& chunk) {
        return TranscribeChunk(chunk, languages, stop.get_token());
      },
      take);
  // Whichever thread noticed first.
  if (absl::IsCancelled(status)) RETURN_IF_ERROR(CheckCall());
  RETURN_IF_ERROR(status);
  all.duration = seconds(listener->num_samples());
  return all;
}

std::string Transcriber::Run::CodeOf(const NaturalLanguage* language) const {
  if (language != nullptr) return language->code;
  return parts_.whisper.is_multilingual() ? "" : "en";
}

Transcript Transcriber::Run::WithLanguage(Transcript transcript) const {
  transcript.language = CodeOf(language_);
  transcript.language_probability = language_probability_;
  transcript.duration = duration_;
  return transcript;
}

absl::StatusOr<Transcript> Transcriber::Run::TranscribeAll(
    const OpenAudio& audio, const WindowFunction& on_window) {
  absl::StatusOr<FeatureWindows> windows =
      FeatureWindows::Open(audio, parts_.features.num_cols);
  RETURN_IF_ERROR(windows.status());
  if (!speech_) duration_ = windows->duration();
  ASSIGN_OR_RETURN(std::vector<TokenId> initial,
                   parts_.Encode("initial_prompt", options_.initial_prompt));
  ASSIGN_OR_RETURN(std::vector<TokenId> hotwords,
                   parts_.Encode("hotwords", options_.hotwords));
  TranscriptBuilderOptions walk = {
      .window_frames = parts_.features.num_rows,
      .thresholds = options_.thresholds,
      .condition_on_previous_text = options_.condition_on_previous_text,
      .prompt_reset_on_temperature = options_.prompt_reset_on_temperature,
      .has_languages = options_.multilingual,
      .hallucination_silence = options_.hallucination_silence_threshold,
      .audio_frames = windows->num_frames()};
  ASSIGN_OR_RETURN(walk.clips,
                   ClipsOf(options_.clip_timestamps, windows->num_frames()));
  if (Detects() && !walk.clips.empty()) {
    RETURN_IF_ERROR(DetectLanguage(*windows, walk.clips.front().first));
    RETURN_IF_ERROR(windows->RewindTo(walk.clips.front().first, audio));
  }
  const std::string language = CodeOf(language_);
  window_language_ = language_;
  if (options_.word_timestamps) {
    walk.words = {.prepend_punctuations = options_.prepend_punctuations,
                  .append_punctuations = options_.append_punctuations};
  }
  TranscriptBuilder builder(
      *parts_.tokenizer, parts_.whisper,
      PreviousText(std::move(initial), options_.carry_initial_prompt,
                   std::move(hotwords), parts_.max_text() - 1),
      std::move(walk));
  for (bool is_first = true;
       const std::optional<AudioWindow> window = builder.Next();
       is_first = false) {
    windows->ForgetBefore(window->first);
    ASSIGN_OR_RETURN(
        const Features features,
        windows->Window(window->first, window->size, parts_.features.num_rows));
    if (options_.multilingual) {
      RETURN_IF_ERROR(DetectLanguageOfWindow(features, is_first));
    }
    ASSIGN_OR_RETURN(DecodedWindow decoded, Decode(features, builder, *window));
    ASSIGN_OR_RETURN(
        std::vector<TranscriptSegment> segments,
        builder.Add(std::move(decoded), [&](std::span<const TokenId> text) {
          return Align(features, window->size, text);
        }));
    if (on_window == nullptr) continue;
    const std::optional<AudioWindow> next = builder.Next();
    double done = duration_;
    if (next) {
      done = static_cast<double>(next->first) / 100;
      if (speech_) done = speech_->BeginOf(done);
    }
    RestoreTimes(segments);
    if (!on_window(segments,
                   {done, duration_, language, language_probability_})) {
      return absl::CancelledError("the caller ended the transcription");
    }
  }
  ASSIGN_OR_RETURN(Transcript transcript, builder.Take());
  RestoreTimes(transcript.segments);
  RestoreTimes(transcript.windows);
  return WithLanguage(std::move(transcript));
}

namespace {

// Returns the pages of `num_windows` at once and one more: a window is found
// again while the next is read.
int64_t PagesOf(const ModelDescription& model, int num_sequences,
                int num_windows) {
  const auto pages = [&](int64_t tokens) {
    return (tokens + model.page_size - 1) / model.page_size;
  };
  const int64_t source = model.encoder ? model.encoder->max_source_tokens : 0;
  return int64_t{num_windows + 1} *
         (pages(source) + num_sequences * (pages(model.max_context) + 1));
}

}  // namespace

absl::StatusOr<Transcriber> Transcriber::Load(const std::string& directory,
                                              const GeneratorOptions& options,
                                              int num_sequences,
                                              int num_windows) {
  RETURN_IF_ERROR(WithoutErrorParts(
      CheckCount("num_sequences", num_sequences, 1, kMaxSequences)));
  RETURN_IF_ERROR(WithoutErrorParts(
      CheckCount("num_windows", num_windows, 1, kMaxBatchSize)));
  GeneratorOptions sized = options;
  if (!options.kv_cache_bytes) {
    // Generator::Load refuses a size that is out of range.
    const int64_t page_size =
        std::clamp<int64_t>(options.page_size.value_or(0), 0, 4096);
    sized.kv_cache_bytes = std::max(
        kFirstCacheBytes, 3 * page_size * kLargestWhisperBytesPerToken);
  }
  absl::StatusOr<Generator> generator = Generator::Load(directory, sized);
  RETURN_IF_ERROR(generator.status());
  if (!options.kv_cache_bytes && generator->description().encoder) {
    const ModelDescription model = generator->description();
    sized.kv_cache_bytes =
        PagesOf(model, num_sequences, num_windows) * model.page_bytes;
    sized.loaded_weights = generator->weights();
    generator = absl::UnknownError("replaced");  // before the next one's memory
    generator = Generator::Load(directory, sized);
    RETURN_IF_ERROR(generator.status());
  }
  return Create(std::make_shared<Generator>(*std::move(generator)), directory);
}

absl::StatusOr<Transcriber> Transcriber::Create(
    std::shared_ptr<Generator> generator, const std::string& directory) {
  const ModelDescription& model = generator->description();
  if (!model.encoder || !model.encoder->features) {
    return InvalidArgument(directory,
                           " has no model of speech, whose encoder reads ",
                           "features, as Whisper's: use Generator, in Python ",
                           "LLM, or espalier generate");
  }
  const std::shared_ptr<const Tokenizer> tokenizer = generator->tokenizer();
  if (tokenizer == nullptr) {
    return FailedPrecondition(directory, " has no ", Tokenizer::FileNames(),
                              ": put the model's tokenizer there");
  }
  if (model.max_context < kMinContext) {
    return InvalidArgument(directory,
                           ": max_target_positions must be at least ",
                           kMinContext, ", got ", model.max_context);
  }
  const auto prepare = [&]() -> absl::StatusOr<std::shared_ptr<const Parts>> {
    ASSIGN_OR_RETURN(const bool is_multilingual,
                     IsMultilingual(directory, *tokenizer));
    ASSIGN_OR_RETURN(WhisperTokens whisper,
                     WhisperTokens::Find(*tokenizer, is_multilingual));
    ASSIGN_OR_RETURN(std::vector<TokenId> not_spoken,
                     whisper.NotSpoken(*tokenizer));
    ASSIGN_OR_RETURN(std::vector<TokenId> not_at_begin,
                     whisper.NotAtBegin(*tokenizer));
    ASSIGN_OR_RETURN(std::vector<AttentionHead> alignment_heads,
                     FindAlignmentHeads(directory, model));
    return std::make_shared<const Parts>(Parts{
        generator, tokenizer, std::move(whisper), *model.encoder->features,
        model.max_context, std::move(not_spoken), std::move(not_at_begin),
        std::move(alignment_heads)});
  };
  absl::StatusOr<std::shared_ptr<const Parts>> parts = prepare();
  if (!parts.ok()) return Annotate(parts.status(), directory);
  const TokenId last_time =
      (*parts)->whisper.TimeOf(WhisperTokens::kNumTimes - 1);
  if (last_time >= model.vocab_size) {
    return InvalidArgument(directory, ": vocab_size must be above ", last_time,
                           ", the tokenizer's <|30.00|>, got ",
                           model.vocab_size);
  }
  return Transcriber(*std::move(parts));
}

Transcriber::Transcriber(std::shared_ptr<const Parts> parts)
    : parts_(std::move(parts)) {}
Transcriber::~Transcriber() = default;
Transcriber::Transcriber(Transcriber&&) = default;
Transcriber& Transcriber::operator=(Transcriber&&) = default;

absl::StatusOr<Transcript> Transcriber::Transcribe(
    const OpenAudio& audio, const TranscribeOptions& options,
    const WindowFunction& on_window, const CallOptions& call) const {
  const std::shared_ptr<const Parts> parts = parts_;
  RETURN_IF_ERROR(WithoutErrorParts(parts->Check(options)));
  return Run(*parts, options, call).Transcribe(audio, on_window);
}

absl::StatusOr<Transcript> Transcriber::TranscribeFile(
    const std::string& path, const TranscribeOptions& options,
    const WindowFunction& on_window, const CallOptions& call) const {
  return Transcribe([&] { return AudioReader::Open(path); }, options, on_window,
                    call);
}

absl::Status Transcriber::Check(const TranscribeOptions& options) const {
  return parts_->Check(options);
}

bool Transcriber::times_words() const {
  return !parts_->alignment_heads.empty();
}

bool Transcriber::is_multilingual() const {
  return parts_->whisper.is_multilingual();
}

const std::shared_ptr<Generator>& Transcriber::generator() const {
  return parts_->generator;
}

}  // namespace espalier
