// SpeechProgress: how far a transcription is, in one line on stderr that
// overwrites itself, only when stderr is a terminal:
//   talk.mp3: 2:30 of 58:12, 8.2x real time, 6:48 left
//
// Thread safety: one thread at a time.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "base/stopwatch.h"

namespace espalier::cli {

// The line, `elapsed` after the beginning. Times of audio are in seconds.
std::string FormatSpeechProgress(const std::string& name, double done,
                                 double duration, absl::Duration elapsed);

class SpeechProgress {
 public:
  explicit SpeechProgress(std::string name);
  ~SpeechProgress() { Erase(); }
  SpeechProgress(const SpeechProgress&) = delete;
  SpeechProgress& operator=(const SpeechProgress&) = delete;

  void Show(double done, double duration);
  // Erases the line, until it is shown again.
  void Erase();

 private:
  const std::string name_;
  const bool enabled_;
  bool is_shown_ = false;
  Stopwatch since_start_;
};

}  // namespace espalier::cli
