#include "examples/cli/commands/transcribe_command.h"

#include <sys/stat.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "base/stopwatch.h"
#include "base/wording.h"
#include "examples/cli/input/audio_input.h"
#include "examples/cli/output/exit_code.h"
#include "examples/cli/output/loading_progress.h"
#include "examples/cli/output/output.h"
#include "examples/cli/output/speech_progress.h"
#include "examples/cli/runtime/interrupt.h"
#include "examples/cli/runtime/runtime.h"
#include "request/generation_defaults.h"
#include "speech/transcript_json.h"

namespace espalier::cli {
namespace {

using Formats = std::vector<TranscriptFormat>;

absl::StatusOr<Formats> ReadFormats(const TranscribeCommandOptions& options) {
  const std::string& name = options.output_format;
  const std::string option = options.runtime.names.Of("output_format");
  const bool has_dir = !options.output_dir.empty();
  if (name == "all") {
    if (!has_dir) {
      return InvalidArgument(option, " all needs --output-dir");
    }
    return Formats(std::begin(kTranscriptFormats),
                   std::end(kTranscriptFormats));
  }
  const std::optional<TranscriptFormat> format = FindTranscriptFormat(name);
  if (!format) {
    return InvalidArgument(option,
                           " must be txt, vtt, srt, tsv, json or all, got ",
                           InQuotes(name));
  }
  const bool joins =
      *format == TranscriptFormat::kTxt || *format == TranscriptFormat::kJson;
  if (!has_dir && options.files.size() > 1 && !joins) {
    return InvalidArgument(options.files.size(), " files with ", option, " ",
                           name, " need --output-dir");
  }
  return Formats{*format};
}

// No option of subtitles is without effect.
absl::Status CheckSubtitles(const TranscribeCommandOptions& options,
                            const Formats& formats) {
  const OptionNames& names = options.runtime.names;
  const bool has_subtitles =
      std::ranges::any_of(formats, [](TranscriptFormat format) {
        return format == TranscriptFormat::kSrt ||
               format == TranscriptFormat::kVtt;
      });
  for (const std::string_view key : {"highlight_words", "max_line_width",
                                     "max_line_count", "max_words_per_line"}) {
    if (!names.IsTyped(key)) continue;
    if (!options.transcribe.word_timestamps) {
      return InvalidArgument(names.Of(key), " needs --word-timestamps true");
    }
    if (!has_subtitles) {
      return InvalidArgument(names.Of(key),
                             " needs --output-format srt, vtt or all");
    }
  }
  const SubtitleOptions& subtitles = options.subtitles;
  if (subtitles.max_line_count && !subtitles.max_line_width) {
    return InvalidArgument(names.Of("max_line_count"),
                           " needs --max-line-width");
  }
  if (subtitles.max_words_per_line && subtitles.max_line_count) {
    return InvalidArgument(names.Of("max_words_per_line"),
                           " must be left out with --max-line-count");
  }
  return absl::OkStatus();
}

// No option of the output is without effect.
absl::Status CheckOutput(const TranscribeCommandOptions& options,
                         const Formats& formats) {
  const OptionNames& names = options.runtime.names;
  if (options.transcribe.num_alternatives > 0 &&
      std::ranges::find(formats, TranscriptFormat::kJson) == formats.end()) {
    return InvalidArgument(names.Of("num_alternatives"),
                           " needs --output-format json");
  }
  RETURN_IF_ERROR(CheckSubtitles(options, formats));
  if (names.IsTyped("verbose") && options.output_dir.empty()) {
    return InvalidArgument(names.Of("verbose"), " needs --output-dir");
  }
  return absl::OkStatus();
}

// The temperatures, rising by steps to 1, as openai's program has them.
absl::StatusOr<std::vector<double>> Temperatures(
    const TranscribeCommandOptions& options) {
  std::vector<double> all = options.temperatures;
  const OptionNames& names = options.runtime.names;
  constexpr char kIncrement[] = "temperature_increment_on_fallback";
  if (all.size() > 1) {
    if (!names.IsTyped(kIncrement)) return all;
    return InvalidArgument(names.Of(kIncrement),
                           " must be left out with several temperatures");
  }
  if (!options.temperature_increment || all.empty()) return all;
  const double step = *options.temperature_increment;
  if (!(step > 0)) {
    return InvalidArgument(names.Of(kIncrement),
                           " must be above 0 or None, got ", step);
  }
  constexpr size_t kMost = 100;
  if (step < 1.0 / kMost) {
    return InvalidArgument(names.Of(kIncrement), " must be at least ",
                           1.0 / kMost, " or None, got ", step);
  }
  const double first = all[0];
  while (all.size() < kMost) {
    const double next = first + static_cast<double>(all.size()) * step;
    if (next >= 1 + 1e-6) break;
    all.push_back(next);
  }
  return all;
}

std::string StemOf(const std::string& file) {
  return file == "-" ? "stdin" : std::filesystem::path(file).stem().string();
}

// No file of results is that of two audios, and stdin is read once.
absl::Status CheckNames(const TranscribeCommandOptions& options) {
  std::map<std::string, std::string> by_stem;
  bool has_stdin = false;
  for (const std::string& file : options.files) {
    if (file.empty()) return InvalidArgument("a file's name must not be empty");
    if (file == "-" && std::exchange(has_stdin, true)) {
      return InvalidArgument("-, which is stdin, must be given once");
    }
    if (options.output_dir.empty()) continue;
    const auto [other, is_new] = by_stem.emplace(StemOf(file), file);
    if (is_new) continue;
    return InvalidArgument("the results of ", other->second, " and ", file,
                           " would have the same name in ", options.output_dir);
  }
  return absl::OkStatus();
}

std::string ResultPath(const TranscribeCommandOptions& options,
                       const std::string& file, TranscriptFormat format) {
  return Concat(options.output_dir, "/", StemOf(file), ".", NameOf(format));
}

// Device and number of an existing file.
std::optional<std::pair<dev_t, ino_t>> IdentityOf(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return std::pair(status.st_dev, status.st_ino);
}

// Finds out whether results can be written, and are not written over the audio:
// not after hours of transcription.
absl::Status CheckOutputFiles(const TranscribeCommandOptions& options,
                              const Formats& formats) {
  if (options.output_dir.empty()) return absl::OkStatus();
  std::map<std::pair<dev_t, ino_t>, std::string> audios;
  for (const std::string& file : options.files) {
    if (file == "-") continue;
    if (const auto identity = IdentityOf(file)) audios[*identity] = file;
  }
  for (const std::string& file : options.files) {
    for (const TranscriptFormat format : formats) {
      const std::string path = ResultPath(options, file, format);
      if (const auto identity = IdentityOf(path)) {
        const auto audio = audios.find(*identity);
        if (audio != audios.end()) {
          return InvalidArgument("--output-dir: ", path, " is the audio ",
                                 audio->second);
        }
      }
      RETURN_IF_ERROR(Annotate(CheckWritable(path), "--output-dir"));
    }
  }
  return absl::OkStatus();
}

absl::Status MakeOutputDir(const std::string& directory) {
  if (directory.empty()) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error) return absl::OkStatus();
  return FailedPrecondition("--output-dir: cannot make ", directory, ": ",
                            error.message());
}

absl::StatusOr<Transcriber> LoadTranscriber(
    const TranscribeCommandOptions& options, int64_t num_temperatures) {
  ASSIGN_OR_RETURN(GeneratorOptions generator,
                   ReadGeneratorOptions(options.runtime));
  LoadingProgress progress;
  generator.load_progress = [&](int64_t done, int64_t total) {
    progress.Update(done, total);
  };
  generator.load_note = PrintNote;
  // Transcriber::Check says where a number is out of range.
  const auto limited = [](int64_t number, int64_t most) {
    return static_cast<int>(std::clamp<int64_t>(number, 1, most));
  };
  int num_samples = limited(options.transcribe.best_of, 1000);
  if (options.transcribe.eager_fallback) {
    num_samples *= limited(num_temperatures - 1, 100);
  }
  absl::StatusOr<Transcriber> transcriber = Transcriber::Load(
      options.runtime.model, generator,
      limited(std::max<int64_t>(options.transcribe.num_beams, num_samples),
              1000),
      limited(options.transcribe.batch_size.value_or(1), 256));
  if (!transcriber.ok()) {
    return LoadError(options.runtime, transcriber.status());
  }
  return transcriber;
}

// Sets the network that finds speech, if one is given.
absl::Status LoadVad(const TranscribeCommandOptions& options,
                     TranscribeOptions* transcribe) {
  const OptionNames& names = options.runtime.names;
  if (options.vad_model.empty()) {
    for (const std::string_view key :
         {"vad_threshold", "vad_neg_threshold", "vad_min_speech_duration_ms",
          "vad_max_speech_duration_s", "vad_min_silence_duration_ms",
          "vad_speech_pad_ms"}) {
      if (names.IsTyped(key)) {
        return InvalidArgument(names.Of(key), " needs --vad-model");
      }
    }
    return absl::OkStatus();
  }
  if (options.transcribe.batch_size) {
    transcribe->vad_options.SetChunkDefaults(
        [&](std::string_view key) { return names.IsTyped(key); });
  }
  auto network = LoadVoiceActivity(options.vad_model);
  if (!network.ok()) return Annotate(network.status(), names.Of("vad_model"));
  transcribe->voice_activity = *std::move(network);
  return absl::OkStatus();
}

struct SpeechFigures {
  int64_t num_files = 0;  // transcribed whole
  int64_t num_failed = 0;
  int64_t num_windows = 0;
  int64_t num_silent = 0;
  int64_t num_fallbacks = 0;
  double seconds = 0;  // audio that was transcribed
};

// Transcribes files one after the other, on a thread of its own.
class SpeechRun {
 public:
  // All outlive this.
  SpeechRun(const TranscribeCommandOptions& options,
            const TranscribeOptions& transcribe, const Formats& formats,
            const Transcriber& transcriber, Output& output)
      : options_(options),
        transcribe_(transcribe),
        formats_(formats),
        transcriber_(transcriber),
        output_(output) {}

  void TranscribeAll() {
    for (const std::string& file : options_.files) {
      if (stop_.stop_requested() || output_.failed()) return;
      const absl::Status status = TranscribeOne(file);
      if (status.ok()) {
        ++figures_.num_files;
        continue;
      }
      if (stop_.stop_requested()) return;
      ++figures_.num_failed;
      const std::string name = file == "-" ? "stdin" : file;
      const std::string message = Message(status);
      PrintToStderr(Concat(
          "espalier: ",
          message.find(name) == message.npos ? name + ": " + message : message,
          "\n"));
    }
  }

  // From any thread.
  void Stop() { stop_.request_stop(); }

  const SpeechFigures& figures() const { return figures_; }

 private:
  bool IsToStdout() const { return options_.output_dir.empty(); }

  absl::Status TranscribeOne(const std::string& file) {
    ASSIGN_OR_RETURN(const AudioInput input,
                     AudioInput::Open(file, stop_.get_token()));
    SpeechProgress progress(input.name());
    bool has_header = false;
    // Not of JSON, which is written as a whole.
    std::optional<TranscriptWriter> writer;
    if (IsToStdout() && formats_[0] != TranscriptFormat::kJson) {
      writer.emplace(formats_[0], options_.subtitles);
    }
    const auto write_header = [&] {
      if (std::exchange(has_header, true)) return;
      PrintHeader(input.name());
      if (writer) output_.Write(writer->Header());
    };
    const auto on_window = [&](std::span<const TranscriptSegment> segments,
                               const TranscribeProgress& done) {
      progress.Erase();
      write_header();
      for (const TranscriptSegment& segment : segments) {
        if (writer) {
          output_.Write(writer->Add(segment));
        } else if (!IsToStdout()) {
          Print(segment);
        }
      }
      output_.Flush();
      progress.Show(done.seconds, done.duration);
      return !output_.failed();
    };
    const absl::StatusOr<Transcript> transcript =
        transcriber_.Transcribe([&] { return input.Read(); }, transcribe_,
                                on_window, {.stop = stop_.get_token()});
    progress.Erase();
    RETURN_IF_ERROR(InFlags(transcript.status()));
    NoteClips(input.name(), *transcript);
    write_header();
    if (writer) {
      output_.Write(writer->Finish());
      output_.Flush();
    }
    Count(*transcript);
    if (!IsToStdout()) return WriteFiles(file, *transcript);
    if (formats_[0] == TranscriptFormat::kJson) {
      output_.Write(JsonLine(input.name(), *transcript));
      output_.Flush();
    }
    return absl::OkStatus();
  }

  // Says why there is no text if the clips begin after the end.
  void NoteClips(const std::string& name, const Transcript& transcript) const {
    const std::vector<double>& clips = transcribe_.clip_timestamps;
    if (clips.empty() || clips[0] < transcript.duration) return;
    PrintNote(Concat(name, ": --clip-timestamps begin at ", clips[0],
                     " s, and the audio ends at ", transcript.duration, " s"));
  }

  // As head and tail do, where there are several files.
  void PrintHeader(const std::string& name) {
    const bool is_text =
        IsToStdout() ? formats_[0] == TranscriptFormat::kTxt : options_.verbose;
    if (is_text && options_.files.size() > 1) {
      output_.Write(Concat(std::exchange(has_printed_, true) ? "\n" : "",
                           "==> ", name, " <==\n"));
    }
  }

  // With the name of its file, where there are several.
  std::string JsonLine(const std::string& name, const Transcript& transcript) {
    json::object line;
    if (options_.files.size() > 1) {
      line["file"] = IsUtf8(name) ? name : BytesInQuotes(name);
    }
    for (const auto& [key, value] : ToJson(transcript)) line[key] = value;
    return WriteJson(line) + "\n";
  }

  void Print(const TranscriptSegment& segment) {
    if (options_.verbose) {
      output_.Write(Concat("[", FormatTimestamp(segment.start), " --> ",
                           FormatTimestamp(segment.end), "] ", segment.text,
                           "\n"));
    }
  }

  absl::Status WriteFiles(const std::string& name,
                          const Transcript& transcript) const {
    for (const TranscriptFormat format : formats_) {
      const std::string path = ResultPath(options_, name, format);
      ASSIGN_OR_RETURN(const std::unique_ptr<Output> file, Output::Open(path));
      file->CutToNothing();
      file->Write(FormatTranscript(transcript, format, options_.subtitles));
      RETURN_IF_ERROR(file->Close());
    }
    return absl::OkStatus();
  }

  void Count(const Transcript& transcript) {
    figures_.seconds += transcript.duration;
    for (const TranscriptWindow& window : transcript.windows) {
      ++figures_.num_windows;
      if (window.is_silent) ++figures_.num_silent;
      if (window.temperature > transcribe_.temperature.front()) {
        ++figures_.num_fallbacks;
      }
    }
  }

  const TranscribeCommandOptions& options_;
  const TranscribeOptions& transcribe_;
  const Formats& formats_;
  const Transcriber& transcriber_;
  Output& output_;
  std::stop_source stop_;
  bool has_printed_ = false;  // an earlier file
  SpeechFigures figures_;
};

void PrintSpeechFigures(const SpeechFigures& figures, Generator& generator,
                        absl::Duration wall_time) {
  const double seconds = absl::ToDoubleSeconds(wall_time);
  const GeneratorStats stats = generator.Stats();
  char line[300];
  std::snprintf(line, sizeof(line),
                "\n%.1f s of audio in %.2f s, %.1fx real time\n"
                "%s, of which %lld silent and %lld decoded again\n"
                "%lld steps, %lld tokens in the texts, %lld pages at most\n",
                figures.seconds, seconds,
                seconds > 0 ? figures.seconds / seconds : 0,
                Pluralize(figures.num_windows, "window").c_str(),
                static_cast<long long>(figures.num_silent),
                static_cast<long long>(figures.num_fallbacks),
                static_cast<long long>(stats.num_steps),
                static_cast<long long>(stats.num_generated_tokens),
                static_cast<long long>(stats.peak_pages));
  PrintToStderr(line);
}

// Runs until all files are transcribed or a signal comes, which is returned; 0:
// none.
absl::StatusOr<int> RunToSignal(SpeechRun& run, Output& output) {
  boost::asio::io_context context(1);
  ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt,
                   Interrupt::Listen(context, output, [&] { run.Stop(); }));
  std::thread worker;
  try {
    worker = std::thread([&] {
      run.TranscribeAll();
      boost::asio::post(context, [&] { interrupt->End(); });
    });
  } catch (const std::system_error& error) {
    return ResourceExhausted("cannot start a thread: ", error.what());
  }
  context.run();
  worker.join();
  return interrupt->signal();
}

}  // namespace

absl::StatusOr<int> RunTranscribe(const TranscribeCommandOptions& options) {
  ASSIGN_OR_RETURN(const Formats formats, ReadFormats(options));
  RETURN_IF_ERROR(CheckOutput(options, formats));
  RETURN_IF_ERROR(CheckNames(options));
  TranscribeOptions transcribe = options.transcribe;
  ASSIGN_OR_RETURN(transcribe.temperature, Temperatures(options));
  RETURN_IF_ERROR(LoadVad(options, &transcribe));
  RETURN_IF_ERROR(CheckOutputFiles(options, formats));
  ASSIGN_OR_RETURN(
      const Transcriber transcriber,
      LoadTranscriber(options, std::ssize(transcribe.temperature)));
  const auto name_of = [&](std::string_view option) {
    return options.runtime.names.Of(option);
  };
  RETURN_IF_ERROR(
      InWordsOf({.option = name_of}, transcriber.Check(transcribe)));
  RETURN_IF_ERROR(MakeOutputDir(options.output_dir));
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open("-"));
  SpeechRun run(options, transcribe, formats, transcriber, *output);
  const Stopwatch watch;
  ASSIGN_OR_RETURN(const int signal, RunToSignal(run, *output));
  const absl::Duration wall_time = watch.Elapsed();
  const absl::Status written = output->Close();
  const SpeechFigures& figures = run.figures();
  if (options.figures) {
    PrintSpeechFigures(figures, *transcriber.generator(), wall_time);
  }
  if (signal == 0 || !output->interrupted()) RETURN_IF_ERROR(written);
  if (signal != 0) {
    PrintToStderr(
        Concat("espalier: interrupted: ", figures.num_files, " of ",
               Pluralize(static_cast<int64_t>(options.files.size()), "file"),
               " transcribed\n"));
    return ExitCodeOf(signal);
  }
  if (figures.num_failed == 0) return kAllSucceeded;
  return figures.num_files > 0 ? kSomeFailed : kNothingRan;
}

const char kTranscribeExamples[] =
    R"(Examples:
  espalier transcribe -m whisper-base talk.mp3
  espalier transcribe -m whisper-base -l German --task translate rede.flac
  espalier transcribe -m whisper-base -f all -o subtitles *.wav
  espalier transcribe -m whisper-base -f srt talk.ogg > talk.srt
  ffmpeg -i film.mp4 -f wav - | espalier transcribe -m whisper-base -
  espalier transcribe -m whisper-base -f json -n 3 --initial-prompt \
    "Espalier, beam search" talk.wav

DIR has a Whisper model as transformers saves it: config.json,
model.safetensors, tokenizer.json and generation_config.json; or as
faster-whisper has it: config.json, model.bin, tokenizer.json and
vocabulary.json or vocabulary.txt. Files are what
libsndfile reads: WAV, FLAC, Ogg, Opus, MP3 and others, of any rate and length;
of a video make audio first, as above.

Windows of 30 s are decoded one after the other, or with --batch-size several
at a time, and segments are printed in order as they end: with --output-format
txt, vtt, srt or tsv as parts of that file. On a terminal stderr shows how far
it is. With several files a line with its name stands before each, and in JSON
its name is "file". With --output-dir there is a file for each audio and format,
written when its audio has been transcribed.

A window whose text repeats itself or is unlikely is decoded again at the next
temperature. If all fail the likeliest that does not repeat itself is taken.
Where the text of one window goes wrong and the next ones follow it,
--condition-on-previous-text false helps.

Options have the names of openai/whisper and faster-whisper, with - or with _,
and their defaults; --vad-model is --vad-filter.

With --word-timestamps true each word has its times and probability in
JSON, and subtitles are made of words: --max-line-width 42 and
--max-line-count 2 as in films, --highlight-words true for songs.

Exit code: 0 if every file succeeded, 1 if some failed, 2 if none succeeded,
whatever was wrong. Ctrl-C, SIGTERM and SIGHUP end it; what was printed stays.)";

}  // namespace espalier::cli
