// Words of a decoded window with their times and probabilities, and what they
// say of its segments: where these begin and end, and which of them may be
// invented.
//
// Thread safety: functions without state.
// Source: openai/whisper, whisper/timing.py and transcribe.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "speech/transcript.h"
#include "speech/whisper_segments.h"
#include "speech/whisper_tokens.h"
#include "speech/word_split.h"

namespace espalier {

inline constexpr std::string_view kPrependPunctuations = "\"'“¿([{-";
inline constexpr std::string_view kAppendPunctuations =
    "\"'.。,，!！?？:：”)]}、";

struct WordOptions {
  // A part of the first is of the word after it, a part of the second of the
  // word before.
  std::string prepend_punctuations{kPrependPunctuations};
  std::string append_punctuations{kAppendPunctuations};
};

// Times and probabilities of a window's text tokens.
struct TokenTimes {
  // Begin of each token, and end of the last one, in steps of
  // 1 / WhisperTokens::kTimesPerSecond s from the window's beginning.
  std::vector<int> steps = {};             // [tokens + 1], ascending
  std::vector<double> probabilities = {};  // [tokens], among text tokens
};

// A word in time from its window's beginning.
struct TimedWord {
  std::string word = {};  // empty if it is a part of another
  std::vector<TokenId> tokens = {};
  double start = 0;        // seconds
  double end = 0;          // seconds
  double probability = 0;  // mean of its tokens'
};

// REQUIRES: times are of the words' tokens.
std::vector<TimedWord> TimeWords(std::vector<WordTokens> words,
                                 const TokenTimes& times);

// Joins punctuation with words. Where it was, an empty word stays.
void MergePunctuation(const WordOptions& options,
                      std::vector<TimedWord>* words);

// Gives each of the segments of the window at frame `seek` its words, and the
// times of these to it. Words that last longer than twice the median one are
// cut at the ends of sentences and after pauses. Times of words are rounded to
// hundredths.
//   words        of all segments, as TimeWords returns them
//   last_speech  seconds; where the last word before the window ended
void AddWords(const WordOptions& options, const WhisperTokens& whisper,
              std::vector<TimedWord> words, int64_t seek, double last_speech,
              std::span<WindowSegment> segments);

// Returns the end of the last word, or of the last segment if there is none;
// nullopt without segments.
std::optional<double> EndOfSpeech(std::span<const WindowSegment> segments);

// True if its first words are so unlikely, short or long that it may have been
// invented.
bool IsAnomalous(const WindowSegment& segment);

// A window, for SkipSilence.
struct WordWindow {
  int64_t seek = 0;             // its first frame
  int64_t num_frames = 0;       // frames of audio in it
  int64_t max_frames = 3000;    // in a whole window
  int64_t audio_frames = 0;     // in all of the audio
  double last_speech = 0;       // as of AddWords
  bool ends_with_time = false;  // CutWindow::ends_with_one_time
};

struct NextWindow {
  int64_t first = 0;  // its first frame
  // The window is heard again behind the silence that it begins with, as if it
  // had not been heard.
  bool is_repeat = false;
};

// Removes segments that may have been invented, with silence longer than
// `threshold` seconds or others such around them, and returns where the next
// window begins: behind silence, and at `next` if nothing is found.
//   threshold  seconds
NextWindow SkipSilence(const WordWindow& window, double threshold, int64_t next,
                       std::vector<WindowSegment>* segments);

}  // namespace espalier
