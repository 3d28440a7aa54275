#include "examples/cli/commands/transcribe_options.h"

#include <CLI/Validators.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/status.h"
#include "examples/cli/options/common_options.h"
#include "examples/cli/options/options.h"
#include "examples/cli/output/output.h"

namespace espalier::cli {
namespace {

constexpr char kSearch[] = "Search";
constexpr char kFallback[] = "Fallback";
constexpr char kText[] = "Text";
constexpr char kWords[] = "Words (with --word-timestamps true)";
constexpr char kVad[] = "Voice activity detection (with --vad-model)";
constexpr char kSpeechOutput[] = "Output";

std::optional<double> ReadDouble(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

// Reads numbers between commas. Throws CLI::ValidationError.
template <typename T>
std::vector<T> ReadList(const std::string& option, const std::string& text) {
  std::vector<T> values;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, comma - at);
    at = comma + 1;
    const std::optional<double> value = ReadDouble(item);
    const bool is_whole =
        value && *value >= -1 && *value <= 1e9 &&
        *value == static_cast<double>(static_cast<int64_t>(*value));
    if (!value || (std::is_integral_v<T> && !is_whole)) {
      throw CLI::ValidationError(
          option,
          Concat("must be ", std::is_integral_v<T> ? "token ids" : "numbers",
                 " with commas between them, got ", InQuotes(text)));
    }
    values.push_back(static_cast<T>(*value));
  }
  return values;
}

template <typename T>
CLI::Option* AddList(CLI::App* command, const std::string& names,
                     const std::string& help, std::vector<T>* values) {
  const std::string name = names.substr(0, names.find(','));
  return command
      ->add_option_function<std::string>(
          names,
          [values, name](const std::string& text) {
            const bool is_none = CLI::detail::to_lower(text) == "none";
            *values = is_none ? std::vector<T>() : ReadList<T>(name, text);
          },
          help)
      ->option_text("N,...");
}

// A number, or None.
CLI::Option* AddOptionalNumber(CLI::App* command, const std::string& names,
                               const std::string& help,
                               std::optional<double>* value) {
  const std::string name = names.substr(0, names.find(','));
  return command
      ->add_option_function<std::string>(
          names,
          [value, name](const std::string& text) {
            value->reset();
            if (CLI::detail::to_lower(text) == "none") return;
            *value = ReadDouble(text);
            if (*value) return;
            throw CLI::ValidationError(
                name, Concat("must be a number or None, got ", InQuotes(text)));
          },
          help)
      ->option_text("X");
}

CLI::Option* AddNumber(CLI::App* command, const std::string& names,
                       const std::string& help, double* value) {
  const std::string name = names.substr(0, names.find(','));
  return command
      ->add_option_function<std::string>(
          names,
          [value, name](const std::string& text) {
            const std::optional<double> number = ReadDouble(text);
            if (!number) {
              throw CLI::ValidationError(
                  name, Concat("must be a number, got ", InQuotes(text)));
            }
            *value = *number;
          },
          help)
      ->option_text("X");
}

CLI::Option* AddCount(CLI::App* command, const std::string& names,
                      const std::string& help, int64_t low, int64_t* value) {
  return command->add_option(names, *value, help)
      ->transform(InRange(low, std::numeric_limits<int64_t>::max()))
      ->option_text("N");
}

// True or False, as openai's options have it, not a flag.
CLI::Option* AddBool(CLI::App* command, const std::string& names,
                     const std::string& help, bool* value) {
  const std::string name = names.substr(0, names.find(','));
  return command
      ->add_option_function<std::string>(
          names,
          [value, name](const std::string& text) {
            const std::optional<bool> given = ReadTrueOrFalse(text);
            if (!given) {
              throw CLI::ValidationError(
                  name, Concat("must be true or false, got ", InQuotes(text)));
            }
            *value = *given;
          },
          help)
      ->option_text("BOOL");
}

void AddSearchOptions(CLI::App* command, TranscribeCommandOptions* options) {
  TranscribeOptions& transcribe = options->transcribe;
  for (CLI::Option* option :
       {AddCount(command, "--num-beams,--beam-size",
                 "beams at temperature 0; default 5; 1 is greedy", 1,
                 &transcribe.num_beams),
        AddNumber(command, "--patience",
                  "num-beams * X hypotheses end the search; default 1",
                  &transcribe.patience),
        AddNumber(command, "--length-penalty",
                  "scores are divided by length^X; default 1",
                  &transcribe.length_penalty),
        AddCount(command, "--best-of",
                 "samples at a temperature above 0; default 5", 1,
                 &transcribe.best_of)}) {
    option->group(kSearch);
  }
  command->add_option("--seed", transcribe.seed, "of the samples; default 0")
      ->transform(InRange(0, int64_t{1} << 53))
      ->option_text("N")
      ->group(kSearch);
  command
      ->add_option_function<int64_t>(
          "--max-new-tokens",
          [&transcribe](int64_t tokens) { transcribe.max_new_tokens = tokens; },
          "of a window; default half of the decoder's positions, 224")
      ->transform(InRange(1, std::numeric_limits<int64_t>::max()))
      ->option_text("N")
      ->group(kSearch);
}

void AddFallbackOptions(CLI::App* command, TranscribeCommandOptions* options) {
  FallbackThresholds& thresholds = options->transcribe.thresholds;
  for (CLI::Option* option :
       {AddList(command, "--temperature",
                "the first to try, or all of them; default 0",
                &options->temperatures),
        AddOptionalNumber(command, "--temperature-increment-on-fallback",
                          "to the next one, up to 1, if one is given; default "
                          "0.2; None: no fallback",
                          &options->temperature_increment),
        AddBool(command, "--eager-fallback",
                "try a failed window at all other temperatures together, with "
                "the same result; default false",
                &options->transcribe.eager_fallback),
        AddOptionalNumber(command, "--compression-ratio-threshold",
                          "a text that zlib compresses more has failed; "
                          "default 2.4",
                          &thresholds.compression_ratio),
        AddOptionalNumber(command, "--logprob-threshold,--log-prob-threshold",
                          "a text less likely than this a token has failed; "
                          "default -1",
                          &thresholds.logprob),
        AddOptionalNumber(command, "--no-speech-threshold",
                          "a failed text is silence if that is more likely "
                          "than this; default 0.6",
                          &thresholds.no_speech)}) {
    option->group(kFallback);
  }
}

void AddTextOptions(CLI::App* command, TranscribeOptions* options) {
  const auto add_text = [&](const std::string& name, const std::string& help,
                            std::string* text) {
    command->add_option(name, *text, help)->option_text("TEXT")->group(kText);
  };
  command
      ->add_option("-l,--language", options->language,
                   "that is spoken: a code or an English name, such as de or "
                   "German; default: detected. With --multilingual true that "
                   "of the beginning")
      ->option_text("LANGUAGE")
      ->group(kText);
  command
      ->add_option_function<std::string>(
          "--task",
          [options](const std::string& text) {
            if (text != "transcribe" && text != "translate") {
              throw CLI::ValidationError(
                  "--task", Concat("must be transcribe or translate, got ",
                                   InQuotes(text)));
            }
            options->task = text == "translate" ? SpeechTask::kTranslate
                                                : SpeechTask::kTranscribe;
          },
          "transcribe, the default, or translate, into English")
      ->option_text("TASK")
      ->group(kText);
  add_text("--initial-prompt",
           "what came before the first window: names, spelling, style",
           &options->initial_prompt);
  add_text("--hotwords", "words to expect, told to every window",
           &options->hotwords);
  add_text("--prefix", "how the first window's text begins; it is not printed",
           &options->prefix);
  for (CLI::Option* option :
       {AddBool(command, "--carry-initial-prompt",
                "tell every window the initial prompt; default false",
                &options->carry_initial_prompt),
        AddBool(command, "--condition-on-previous-text",
                "tell each window what was said before; default true. Without "
                "it a loop ends with its window",
                &options->condition_on_previous_text),
        AddNumber(command, "--prompt-reset-on-temperature",
                  "after a window decoded at a higher temperature the next is "
                  "told nothing; default 0.5",
                  &options->prompt_reset_on_temperature),
        AddList(command, "--suppress-tokens",
                "ids that are not written; -1, the default: symbols that are "
                "not spoken; None: only marks",
                &options->suppress_tokens),
        AddBool(command, "--suppress-blank",
                "no text begins with a blank; default true",
                &options->suppress_blank),
        AddBool(command, "--without-timestamps",
                "a segment a window, without times in it; default false",
                &options->without_timestamps),
        AddOptionalNumber(command, "--max-initial-timestamp",
                          "seconds into a window where its first time is at "
                          "most; default 1; None: anywhere",
                          &options->max_initial_timestamp),
        AddList(command, "--clip-timestamps",
                "START,END,... of the parts to transcribe, in seconds; what is "
                "after the audio's end is left out; default all",
                &options->clip_timestamps),
        AddNumber(command, "--language-detection-threshold",
                  "a window of which a language is more likely decides; "
                  "default 0.5",
                  &options->language_detection_threshold),
        AddCount(command, "--language-detection-segments",
                 "windows that are listened to until then; default 1", 1,
                 &options->language_detection_segments),
        AddBool(command, "--multilingual",
                "detect the language of each window; where none is likelier "
                "than the threshold it is that of the window before. Segments "
                "in json tell it; default false",
                &options->multilingual)}) {
    option->group(kText);
  }
}

CLI::Option* AddOptionalCount(CLI::App* command, const std::string& name,
                              const std::string& help,
                              std::optional<int64_t>* value) {
  return command
      ->add_option_function<int64_t>(
          name, [value](int64_t count) { *value = count; }, help)
      ->transform(InRange(1, SubtitleOptions::kMost))
      ->option_text("N");
}

void AddWordOptions(CLI::App* command, TranscribeCommandOptions* options) {
  TranscribeOptions& transcribe = options->transcribe;
  SubtitleOptions& subtitles = options->subtitles;
  const auto add_marks = [&](const std::string& name, const std::string& help,
                             std::string* marks) {
    command->add_option(name, *marks, help)->option_text("TEXT")->group(kWords);
  };
  AddBool(command, "--word-timestamps",
          "times of words, in json and subtitles; default false",
          &transcribe.word_timestamps)
      ->group(kWords);
  add_marks("--prepend-punctuations",
            "that is a part of the word after it; default "
            "\"\'“¿([{-",
            &transcribe.prepend_punctuations);
  add_marks("--append-punctuations",
            "that is a part of the word before it; default "
            "\"\'.。,，!！?？:：”)]}、",
            &transcribe.append_punctuations);
  for (CLI::Option* option :
       {AddOptionalNumber(command, "--hallucination-silence-threshold",
                          "leave out what may have been invented if so many "
                          "seconds around it are silent; default None",
                          &transcribe.hallucination_silence_threshold),
        AddBool(command, "--highlight-words",
                "underline each word in srt and vtt as it is spoken; default "
                "false",
                &subtitles.highlight_words),
        AddOptionalCount(command, "--max-line-width",
                         "characters of a line of srt and vtt",
                         &subtitles.max_line_width),
        AddOptionalCount(command, "--max-line-count",
                         "lines of a subtitle, which segments do not end then; "
                         "needs --max-line-width",
                         &subtitles.max_line_count),
        AddOptionalCount(command, "--max-words-per-line", "words of a subtitle",
                         &subtitles.max_words_per_line)}) {
    option->group(kWords);
  }
}

void AddVadOptions(CLI::App* command, TranscribeCommandOptions* options) {
  command
      ->add_option(
          "--vad-model", options->vad_model,
          "transcribe only what this network takes for speech: "
          "silero_vad_16k.safetensors of the Python package silero-vad")
      ->option_text("FILE")
      ->group(kVad);
  command
      ->add_option_function<int64_t>(
          "--batch-size",
          [options](int64_t size) { options->transcribe.batch_size = size; },
          "with --vad-model: transcribe chunks of speech independently of each "
          "other, so many at a time, with the same result whatever N; default: "
          "windows one after the other, each told what was said before")
      ->transform(InRange(1, std::numeric_limits<int64_t>::max()))
      ->option_text("N")
      ->group(kVad);
  VadOptions& vad = options->transcribe.vad_options;
  for (CLI::Option* option :
       {AddNumber(command, "--vad-threshold",
                  "speech begins at this probability; default 0.5",
                  &vad.threshold),
        AddOptionalNumber(command, "--vad-neg-threshold",
                          "and ends below this one; default 0.15 less",
                          &vad.neg_threshold),
        AddNumber(command, "--vad-min-speech-duration-ms",
                  "shorter speech is left out; default 0",
                  &vad.min_speech_duration_ms),
        AddNumber(command, "--vad-max-speech-duration-s",
                  "longer speech is divided; default inf, with --batch-size "
                  "30",
                  &vad.max_speech_duration_s),
        AddNumber(command, "--vad-min-silence-duration-ms",
                  "shorter silence is kept; default 2000, with --batch-size "
                  "160",
                  &vad.min_silence_duration_ms),
        AddNumber(command, "--vad-speech-pad-ms",
                  "of silence are kept around speech; default 400",
                  &vad.speech_pad_ms)}) {
    option->group(kVad);
  }
}

void AddSpeechOutputOptions(CLI::App* command,
                            TranscribeCommandOptions* options) {
  command
      ->add_option("-f,--output-format", options->output_format,
                   "txt, the default; vtt, srt, tsv, json; or all, with "
                   "--output-dir")
      ->option_text("FORMAT")
      ->group(kSpeechOutput);
  command
      ->add_option("-o,--output-dir", options->output_dir,
                   "write NAME.txt and so on here, NAME being that of the "
                   "audio's file; default: to stdout")
      ->option_text("DIR")
      ->group(kSpeechOutput);
  AddBool(command, "--verbose",
          "with --output-dir: print segments as they end; default true",
          &options->verbose)
      ->group(kSpeechOutput);
  AddCount(command, "-n,--num-alternatives",
           "best hypotheses of each window, with their scores, in json, at "
           "most --num-beams, or --best-of where samples are drawn; default 0",
           0, &options->transcribe.num_alternatives)
      ->group(kSpeechOutput);
  AddFlag(command, "--figures", "print the run's figures at the end",
          &options->figures)
      ->group(kSpeechOutput);
}

}  // namespace

void AddTranscribeOptions(CLI::App* command,
                          TranscribeCommandOptions* options) {
  AddTextOptions(command, &options->transcribe);
  AddSpeechOutputOptions(command, options);
  AddSearchOptions(command, options);
  AddFallbackOptions(command, options);
  AddWordOptions(command, options);
  AddVadOptions(command, options);
}

}  // namespace espalier::cli
