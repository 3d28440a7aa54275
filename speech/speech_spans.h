// Speech spans: where an audio has speech, by the probabilities of a network
// (voice_activity.h); the audio of these spans alone, one after the other; and
// the times of what is found there, in the audio as it was.
//
// Source: snakers4/silero-vad, src/silero_vad/utils_vad.py
// (get_speech_timestamps); SYSTRAN/faster-whisper, faster_whisper/vad.py.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "speech/audio_reader.h"

namespace espalier {

// Names and defaults are faster-whisper's.
struct VadOptions {
  // Speech begins at this probability; in [0, 1].
  double threshold = 0.5;
  // It ends below this one; in [0, threshold]. Unset: threshold - 0.15, but at
  // least 0.01.
  std::optional<double> neg_threshold = std::nullopt;
  double min_speech_duration_ms = 0;      // shorter spans are left out; >= 0
  double min_silence_duration_ms = 2000;  // shorter silence is of a span; >= 0
  // Longer spans are split at their last silence of 98 ms, or if there is none
  // where they are; at least 1 s and twice speech_pad_ms.
  double max_speech_duration_s = std::numeric_limits<double>::infinity();
  // Spans begin so much earlier and end so much later, but do not overlap; >= 0
  double speech_pad_ms = 400;

  // The defaults for speech in chunks (speech_chunks.h): spans of a window at
  // most, and only short silence in them.
  static VadOptions ForChunks() {
    return {.min_silence_duration_ms = 160, .max_speech_duration_s = 30};
  }
  // Sets those that ForChunks has others for to these, unless they were given.
  //   is_given  of a name, as vad_max_speech_duration_s
  void SetChunkDefaults(
      const std::function<bool(std::string_view name)>& is_given);
};

// Errors: kInvalidArgument naming the field, as vad_threshold, and the value.
absl::Status CheckVadOptions(const VadOptions& options);

// Samples [first, end) of an audio.
struct SpeechSpan {
  int64_t first = 0;
  int64_t end = 0;
  friend bool operator==(const SpeechSpan&, const SpeechSpan&) = default;
};

// Finds the spans of speech as probabilities become known, ascending and apart.
//
// Thread safety: none; one an audio.
class SpeechFinder {
 public:
  // REQUIRES: CheckVadOptions(options).ok().
  explicit SpeechFinder(const VadOptions& options);

  // Takes the probabilities of the next windows of VoiceActivity::kWindow
  // samples each, and appends the spans that no later window changes.
  void Push(std::span<const float> probabilities,
            std::vector<SpeechSpan>* spans);
  // Appends the rest.
  //   num_samples  of the audio, whose last window need not be full
  void Finish(int64_t num_samples, std::vector<SpeechSpan>* spans);

  // Returns a sample that no later span begins before.
  int64_t first_open() const;

 private:
  void Add(double probability, std::vector<SpeechSpan>* spans);
  void End(int64_t end, std::vector<SpeechSpan>* spans);
  void EndIfLong(int64_t end, std::vector<SpeechSpan>* spans);
  void Forget();

  const double threshold_;
  const double end_threshold_;
  const double min_speech_;             // samples
  const double min_silence_;            // samples
  const double max_speech_;             // samples
  const double pad_;                    // samples
  int64_t at_ = 0;                      // where the next window begins
  std::optional<int64_t> start_;        // first sample of the open span
  std::optional<int64_t> silence_;      // in it, up to now
  std::optional<int64_t> split_;        // silence in it that is long enough
  std::optional<int64_t> after_split_;  // speech after that
  // The last span that ended, not padded at its end yet.
  std::optional<SpeechSpan> last_;
};

// Returns the spans of speech, ascending and apart.
//   probabilities  of windows of VoiceActivity::kWindow samples each
//   num_samples    of the audio
// REQUIRES: CheckVadOptions(options).ok().
std::vector<SpeechSpan> FindSpeech(std::span<const float> probabilities,
                                   int64_t num_samples,
                                   const VadOptions& options);

// Times of the audio of spans alone, as times of the whole audio.
//
// Thread safety: immutable.
class SpeechTimes {
 public:
  explicit SpeechTimes(std::vector<SpeechSpan> spans);

  const std::vector<SpeechSpan>& spans() const { return spans_; }
  int64_t num_samples() const;  // in all spans

  // Return where the audio at `seconds` comes from. A time where one span ends
  // and the next begins is the end of the one or the beginning of the other.
  double BeginOf(double seconds) const;
  double EndOf(double seconds) const;
  // Returns where the audio from `start` to `end` comes from, both in the span
  // that has its middle.
  std::pair<double, double> BothOf(double start, double end) const;

 private:
  size_t SpanAt(double seconds) const;
  double InSpan(size_t span, double seconds) const;

  std::vector<SpeechSpan> spans_;
  std::vector<int64_t> ends_;  // where they end if one follows the other
};

// Returns a reader of the spans of `reader` alone, which it reads from the
// beginning.
std::unique_ptr<AudioReader> ReadSpansOnly(std::unique_ptr<AudioReader> reader,
                                           std::vector<SpeechSpan> spans);

}  // namespace espalier
