// Transcript: what was said in an audio, as segments with their times. Its
// fields are those of openai/whisper's results.
//
// Thread safety: a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace espalier {

struct TranscriptWord {
  std::string word = {};   // with the space before it
  double start = 0;        // seconds
  double end = 0;          // seconds
  double probability = 0;  // mean of its tokens', among tokens of text
};

struct TranscriptSegment {
  int64_t id = 0;         // from 0
  int64_t seek = 0;       // where its window begins, in frames of 10 ms
  double start = 0;       // seconds
  double end = 0;         // seconds
  std::string text = {};  // as the model writes it, with the space before it
  std::vector<TokenId> tokens = {};  // times included
  // The rest is that of the whole window.
  double temperature = 0;
  double avg_logprob = 0;        // nats a token, the end included
  double compression_ratio = 0;  // speech/whisper_fallback.h
  double no_speech_prob = 0;
  std::string language = {};  // its code, if each window has its own
  // If requested.
  std::optional<std::vector<TranscriptWord>> words = {};
};

// A hypothesis of a window.
struct TranscriptAlternative {
  std::string text = {};
  std::vector<TokenId> tokens = {};  // times included
  double score = 0;                  // by which they are ranked, the best first
  double avg_logprob = 0;            // as of a segment
};

// A window of audio, at most 30 s, which is transcribed at once.
struct TranscriptWindow {
  int64_t seek = 0;        // frames of 10 ms
  double start = 0;        // seconds
  double end = 0;          // seconds
  bool is_silent = false;  // skipped: it has no segments
  double temperature = 0;
  double no_speech_prob = 0;
  // As many as were requested; the first is what its segments are of.
  std::vector<TranscriptAlternative> alternatives = {};
};

struct Transcript {
  std::string text = {};
  std::vector<TranscriptSegment> segments = {};
  std::vector<TranscriptWindow> windows = {};
  std::string language = {};        // its code, such as "en"
  double language_probability = 1;  // 1 if it was given
  double duration = 0;              // seconds of audio
};

}  // namespace espalier
