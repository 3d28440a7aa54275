// Turns a decoded window of audio into segments with times, finds where the
// next window begins, and keeps the text that the next windows are told came
// before.
//
// Thread safety: functions without state, and a value.
// Source: openai/whisper, whisper/transcribe.py; SYSTRAN/faster-whisper,
// faster_whisper/transcribe.py (hotwords).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "speech/transcript.h"
#include "speech/whisper_tokens.h"

namespace espalier {

struct WindowSegment {
  double start = 0;  // seconds from the beginning of the file
  double end = 0;
  std::vector<TokenId> tokens = {};  // times included
  // It ends with the time that it begins with.
  bool is_instant = false;
  std::vector<TranscriptWord> words = {};  // AddWords (word_times.h)
};

struct CutWindow {
  std::vector<WindowSegment> segments = {};
  // Frames from the window's beginning to that of the next one: at least one,
  // at most the window's.
  int64_t num_frames = 0;
  // The last token is a time with text before it: nothing is said after it.
  bool ends_with_one_time = false;
};

// Cuts the tokens of a window into segments. Two times in succession are the
// end of one segment and the beginning of the next. If none are, all is one
// segment, up to its last time. What follows the last pair of times belongs to
// the next window, which begins there, unless it ends with a time. Times are
// cut to the window's frames, beyond which there is no audio; openai's are not.
//
//   tokens      what the decoder wrote, without the end of its text
//   seek        the window's first frame
//   num_frames  of audio in the window, at least 1
CutWindow CutIntoSegments(std::span<const TokenId> tokens,
                          const WhisperTokens& whisper, int64_t seek,
                          int64_t num_frames);

// The tokens that come before a window's text.
class PreviousText {
 public:
  // Prompts have at most `max_tokens`: half of the decoder's positions less
  // one.
  //   initial   the tokens of an initial prompt
  //   carries   it comes before every window, not only until the first reset
  //   hotwords  come before the rest, in every window
  PreviousText(std::vector<TokenId> initial, bool carries,
               std::vector<TokenId> hotwords, int max_tokens);

  void Add(std::span<const TokenId> tokens) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }
  // Forgets what was added, and an initial prompt that is not carried.
  void Reset();

  // Returns the tokens before the next window: of hotwords the first, of the
  // rest the last that there is room for.
  std::vector<TokenId> Prompt() const;

 private:
  const size_t max_tokens_;
  std::vector<TokenId> always_;  // hotwords, and what is carried
  std::vector<TokenId> tokens_;
};

// Returns the clips, [first, end) in frames, that `times` are the beginnings
// and ends of, in seconds; the last end may be left out for the end of the
// audio. None: all of it. Clips are cut to the audio, and empty ones left out.
// Errors: kInvalidArgument naming the time, for one that is negative, not
// finite or before the one before it.
absl::StatusOr<std::vector<std::pair<int64_t, int64_t>>> ClipsOf(
    std::span<const double> times, int64_t num_frames);

}  // namespace espalier
