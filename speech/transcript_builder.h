// TranscriptBuilder: the sequential transcription of a long audio, window by
// window, without a model: which window is next, what its decoder is told came
// before, and what becomes of its tokens.
//
//   while (const auto window = builder.Next()) {
//     decoded = Decode(features of *window, builder.Prompt());
//     ASSIGN_OR_RETURN(segments, builder.Add(decoded));
//   }
//   transcript = builder.Take();
//
// Thread safety: none.
// Source: openai/whisper, whisper/transcribe.py.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "speech/transcript.h"
#include "speech/whisper_fallback.h"
#include "speech/whisper_segments.h"
#include "speech/whisper_tokens.h"
#include "speech/word_times.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

// Frames [first, first + size) of an audio.
struct AudioWindow {
  int64_t first = 0;
  int64_t size = 0;  // at least 1
};

// A window as its decoder wrote it.
struct DecodedWindow {
  std::vector<TokenId> tokens;  // times included, the end not
  DecodedQuality quality = {};
  double temperature = 0;
  double no_speech_prob = 0;
  std::string language = {};                             // its code
  std::vector<TranscriptAlternative> alternatives = {};  // if requested
};

struct TranscriptBuilderOptions {
  // [first, end) in frames, ascending (ClipsOf).
  std::vector<std::pair<int64_t, int64_t>> clips = {};
  int64_t window_frames = 3000;
  FallbackThresholds thresholds = {};
  // Windows are told what was said before them.
  bool condition_on_previous_text = true;
  // ... but not after one that was decoded at a higher temperature.
  double prompt_reset_on_temperature = 0.5;
  bool has_languages = false;  // segments tell that of their window
  // Set: segments have words.
  std::optional<WordOptions> words = std::nullopt;
  // Seconds of silence around segments that may have been invented, which are
  // left out then (SkipSilence). Needs words.
  std::optional<double> hallucination_silence = std::nullopt;
  int64_t audio_frames = 0;  // all of the audio; for hallucination_silence
};

// Returns the times of a window's text tokens, of which there is at least one.
using AlignFunction =
    std::function<absl::StatusOr<TokenTimes>(std::span<const TokenId> text)>;

class TranscriptBuilder {
 public:
  // `tokenizer` and `whisper` outlive this.
  TranscriptBuilder(const Tokenizer& tokenizer, const WhisperTokens& whisper,
                    PreviousText previous, TranscriptBuilderOptions options);

  // Returns the next window; nullopt at the end.
  std::optional<AudioWindow> Next();
  // Returns the tokens that are told to have come before it.
  std::vector<TokenId> Prompt() const { return previous_.Prompt(); }

  // Takes the window of the last Next and returns its segments, without those
  // that are blank or have no length.
  //   align  not null if the options have words
  // Errors: as Tokenizer::Decode; those of `align`.
  absl::StatusOr<std::vector<TranscriptSegment>> Add(
      DecodedWindow window, const AlignFunction& align = nullptr);

  // Returns the text that the tokens of `tokens` that are text spell.
  // Errors: as Tokenizer::Decode.
  absl::StatusOr<std::string> TextOf(std::span<const TokenId> tokens) const;

  // Returns all segments and windows, and their text. Language and duration are
  // the caller's.
  // Errors: as Tokenizer::Decode.
  absl::StatusOr<Transcript> Take();

 private:
  // Gives segments words, removes some, and sets seek_ and last_speech_. False
  // if the window is heard again.
  // Errors: those of `align`.
  absl::StatusOr<bool> AddWordsTo(CutWindow& cut, std::string_view language,
                                  const AlignFunction& align);
  // Drops other marks, which a model may write by mistake: prompts have none.
  void AddPrevious(std::span<const TokenId> tokens);

  const Tokenizer& tokenizer_;
  const WhisperTokens& whisper_;
  const TranscriptBuilderOptions options_;
  PreviousText previous_;
  size_t clip_ = 0;
  bool is_in_clip_ = false;  // seek_ is set, in the clip or beyond its end
  int64_t seek_ = 0;
  AudioWindow window_;
  double last_speech_ = 0;  // seconds; where the last word ended
  Transcript transcript_;
  std::vector<TokenId> tokens_;  // those of all segments
};

}  // namespace espalier
