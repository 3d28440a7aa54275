// Transcriber: audio of any length as text with times, by a Whisper model
// (docs/speech.md).
//
//   absl::StatusOr<Transcriber> transcriber =
//       Transcriber::Load("models/whisper-base");
//   if (!transcriber.ok()) ...
//   absl::StatusOr<Transcript> talk =
//       transcriber->TranscribeFile("talk.mp3", {.language = "en"});
//   if (talk.ok()) Show(talk->text, talk->segments);
//
// Windows of 30 s are decoded one after the other, each told what was said
// before it, or several at a time (batch_size), and again at higher
// temperatures if their text repeats itself or is unlikely. Names and defaults
// of the options are those of openai/whisper and faster-whisper. The audio is
// read in blocks, and may be longer than memory.
//
// A result depends on the audio, the options and the model alone: on the CPU
// not even its bits depend on what else the generator runs.
//
// Thread safety: any number of threads may call any member; their windows run
// together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "espalier/generator.h"
#include "espalier/voice_activity_file.h"
#include "speech/audio_reader.h"
#include "speech/speech_spans.h"
#include "speech/speech_task.h"
#include "speech/transcript.h"
#include "speech/transcript_formats.h"
#include "speech/whisper_fallback.h"
#include "speech/word_times.h"

namespace espalier {

struct TranscribeOptions {
  // A code, such as "de", or an English name. Empty: detected.
  std::string language = {};
  SpeechTask task = SpeechTask::kTranscribe;

  // Tried in turn until a window passes the thresholds; each in [0, 100].
  // 0 is a search, others draw best_of samples. From 1 to 100 of them.
  std::vector<double> temperature = {0, 0.2, 0.4, 0.6, 0.8, 1};
  FallbackThresholds thresholds = {};
  // Tries a window that failed at all other temperatures together, with the
  // same result: sooner where rows of a step cost little, as on a GPU, but more
  // is computed.
  bool eager_fallback = false;
  int64_t num_beams = 5;  // 1: greedy
  int64_t best_of = 5;
  double patience = 1;
  double length_penalty = 1;  // a score is divided by length^length_penalty
  uint64_t seed = 0;          // draws depend on it

  // Each window's decoder is told what was said before, unless the window
  // before was decoded at a higher temperature than the limit.
  bool condition_on_previous_text = true;
  double prompt_reset_on_temperature = 0.5;
  // Text that is told to have come before the first window, or, if it is
  // carried, before all of them.
  std::string initial_prompt = {};
  bool carry_initial_prompt = false;
  // Words to expect, before the rest in every window.
  std::string hotwords = {};
  // The beginning of the first window's text, which the result continues and
  // does not have.
  std::string prefix = {};

  // Tokens that are not written; -1 stands for those that are not spoken, such
  // as brackets and notes.
  std::vector<int64_t> suppress_tokens = {-1};
  bool suppress_blank = true;  // no text begins with a blank or its end
  // Tokens of a window at most. Unset: half of the decoder's positions.
  std::optional<int64_t> max_new_tokens = std::nullopt;

  // Without times each window is one segment.
  bool without_timestamps = false;
  // Seconds into a window that its first time is at most. Unset: any.
  std::optional<double> max_initial_timestamp = 1.0;
  // Beginnings and ends of the parts that are transcribed, in seconds,
  // ascending; the last end may be left out. Empty: all.
  std::vector<double> clip_timestamps = {};
  // Finds where the audio has speech (LoadVoiceActivity). Only that is
  // transcribed, as if one piece followed the other, and the result has the
  // times of the audio. Null: all is transcribed. Not with clip_timestamps.
  std::shared_ptr<const VoiceActivity> voice_activity = nullptr;
  VadOptions vad_options = {};
  // Speech is transcribed in chunks of a window at most, as an audio of its own
  // each, and so many of them at a time: in [1, 256], with the same result
  // whatever their number. None is told of the others, but all of the initial
  // prompt. Needs voice_activity; VadOptions::ForChunks leaves out more
  // silence. Unset: windows are transcribed one after the other.
  std::optional<int64_t> batch_size = std::nullopt;

  // Windows are tried until a language has more than this probability, but at
  // most so many, of whose languages the most frequent is taken then, and of
  // several the one that was heard first.
  double language_detection_threshold = 0.5;
  int64_t language_detection_segments = 1;
  // Each window has the language that is detected in it, if that has more than
  // the threshold's probability, or else that of the window before it: of the
  // first window `language`, or the one detected as without this. With
  // batch_size the window before a chunk is the first one of the chunk before.
  // Segments tell their language. Needs a multilingual model.
  bool multilingual = false;

  // Segments have words with their times and probabilities, by the attention of
  // the decoder's alignment heads. Times of segments are those of their words,
  // and a window begins where the last word of the one before ended.
  bool word_timestamps = false;
  // Punctuation that is a part of the word after it, and of the one before.
  std::string prepend_punctuations{kPrependPunctuations};
  std::string append_punctuations{kAppendPunctuations};
  // Segments that may have been invented, by their words, are left out where so
  // many seconds of silence are around them. Needs word_timestamps.
  std::optional<double> hallucination_silence_threshold = std::nullopt;

  // Hypotheses that are kept of each window, best first
  // (Transcript::windows); at most as many as there are beams or samples.
  int64_t num_alternatives = 0;
};

// The progress of a transcription.
struct TranscribeProgress {
  double seconds = 0;  // audio that is done
  // All of the audio; with batch_size as its header says (AudioFormat), or what
  // was heard of it so far if that is more.
  double duration = 0;
  const std::string& language;  // Transcript::language
  double language_probability = 1;
};

class Transcriber {
 public:
  // Called after each window, or chunk if batch_size is set, with its segments,
  // which may be none. False ends the transcription with kCancelled.
  using WindowFunction = std::function<bool(std::span<const TranscriptSegment>,
                                            const TranscribeProgress&)>;

  // Loads a model directory. Where options.kv_cache_bytes is unset the
  // key/value memory is that of `num_windows` at a time and one more, each with
  // `num_sequences` beams or samples; more at a time wait for it.
  // Errors: as Generator::Load and Create; kInvalidArgument if `num_sequences`
  // is not in [1, 1000], or `num_windows` not in [1, 256].
  static absl::StatusOr<Transcriber> Load(const std::string& directory,
                                          const GeneratorOptions& options = {},
                                          int num_sequences = 5,
                                          int num_windows = 1);
  // Transcribes by a generator that has a Whisper model; `directory` is that of
  // its model.
  // Errors: kInvalidArgument naming what the model or its tokenizer lacks.
  static absl::StatusOr<Transcriber> Create(
      std::shared_ptr<Generator> generator, const std::string& directory);
  ~Transcriber();
  Transcriber(Transcriber&&);
  Transcriber& operator=(Transcriber&&);

  // Blocks until all of the audio is transcribed. `audio` is opened twice, once
  // more with a voice activity network, and once more where its language is
  // that of several windows; with batch_size once, and once more where its
  // language is detected. There an audio that cannot be read to its end is an
  // error after the chunks before that. Errors: kInvalidArgument naming the
  // option and its value, or the audio and what is wrong with it; kCancelled
  // and kDeadlineExceeded by `call` and `on_window`; those of
  // Generator::Generate.
  absl::StatusOr<Transcript> Transcribe(
      const OpenAudio& audio, const TranscribeOptions& options = {},
      const WindowFunction& on_window = nullptr,
      const CallOptions& call = {}) const;
  // Transcribes the file at `path` (AudioReader::Open).
  absl::StatusOr<Transcript> TranscribeFile(
      const std::string& path, const TranscribeOptions& options = {},
      const WindowFunction& on_window = nullptr,
      const CallOptions& call = {}) const;

  // Checks options for this model, as Transcribe does before it reads audio.
  // Errors: kInvalidArgument naming the option and its value.
  absl::Status Check(const TranscribeOptions& options) const;

  // True if the model has what word_timestamps needs, and if it has other
  // languages than English, so that it translates.
  bool times_words() const;
  bool is_multilingual() const;
  const std::shared_ptr<Generator>& generator() const;

 private:
  struct Parts;
  class Run;
  explicit Transcriber(std::shared_ptr<const Parts> parts);

  std::shared_ptr<const Parts> parts_;  // null after a move
};

}  // namespace espalier
