// Speech chunks: the speech of an audio in parts that are transcribed
// independently of each other, each of a window's length at most where its
// spans are.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "speech/audio_reader.h"
#include "speech/speech_spans.h"

namespace espalier {

struct SpeechChunk {
  int64_t index = 0;
  int64_t first = 0;  // samples of all chunks before it
  // At least one, in samples of the whole audio.
  std::vector<SpeechSpan> spans = {};
  // The audio of these spans, one after the other.
  std::shared_ptr<const std::vector<float>> samples = nullptr;
  std::string name = {};  // the audio's

  std::unique_ptr<AudioReader> Open() const {
    return AudioReader::OpenSamples(samples, name);
  }
};

// Returns `spans` in groups, in order: as many together as have at most
// `max_samples`, but one at least.
std::vector<std::vector<SpeechSpan>> GroupSpans(
    const std::vector<SpeechSpan>& spans, int64_t max_samples);

// Reads the chunks of an audio, one after the other.
//
// Thread safety: any number of threads may call any member.
class SpeechChunks {
 public:
  // `speech` reads the spans of all groups alone (ReadSpansOnly).
  SpeechChunks(std::vector<std::vector<SpeechSpan>> groups,
               std::unique_ptr<AudioReader> speech);

  int64_t size() const { return static_cast<int64_t>(groups_.size()); }
  // Returns the next chunk; nullopt after the last one.
  // Errors: those of AudioReader::Read; kInvalidArgument if the audio has
  // become shorter.
  absl::StatusOr<std::optional<SpeechChunk>> Next();

 private:
  const std::vector<std::vector<SpeechSpan>> groups_;
  std::mutex mutex_;
  const std::unique_ptr<AudioReader> speech_;
  int64_t next_ = 0;
  int64_t num_samples_ = 0;  // read
};

}  // namespace espalier
