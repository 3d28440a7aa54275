// Speech chunks: the speech of an audio in parts that are transcribed
// independently of each other, each of a window's length at most where its
// spans are.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "speech/audio_reader.h"
#include "speech/speech_spans.h"
#include "speech/voice_activity.h"

namespace espalier {

struct SpeechChunk {
  int64_t index = 0;
  int64_t first = 0;  // samples of all chunks before it
  // At least one, in samples of the whole audio.
  std::vector<SpeechSpan> spans = {};
  // The sample of the audio at which the next chunk begins, or the audio ends.
  int64_t next = 0;
  // The audio of these spans, one after the other.
  std::shared_ptr<const std::vector<float>> samples = nullptr;
  std::string name = {};  // the audio's

  std::unique_ptr<AudioReader> Open() const {
    return AudioReader::OpenSamples(samples, name);
  }
};

// Finds the chunks of an audio that comes in runs: its spans of speech
// (FindSpeech), as many together as have at most `max_samples`, but one at
// least. The runs change nothing.
//
// It keeps the samples of the chunk that is not complete yet, and those that
// the next span may have.
//
// Thread safety: none; one an audio.
class SpeechChunker {
 public:
  // `network` and `pool` outlive this.
  //   name  of the audio, in errors
  // REQUIRES: CheckVadOptions(options).ok().
  SpeechChunker(const VoiceActivity& network, const VadOptions& options,
                int64_t max_samples, std::string name, ThreadPool* pool)
      : max_samples_(max_samples),
        name_(std::move(name)),
        stream_(network, pool),
        finder_(options) {}

  // Appends the chunks that are complete.
  void Push(std::span<const float> samples, std::vector<SpeechChunk>* chunks);
  void Finish(std::vector<SpeechChunk>* chunks);

  // Samples of the audio so far.
  int64_t num_samples() const { return first_kept_ + std::ssize(kept_); }

 private:
  // Adds spans of samples that are kept.
  void AddSpans(std::span<const SpeechSpan> spans,
                std::vector<SpeechChunk>* chunks);
  void EndChunk(int64_t next, std::vector<SpeechChunk>* chunks);

  const int64_t max_samples_;
  const std::string name_;
  VoiceActivityStream stream_;
  SpeechFinder finder_;
  std::vector<float> kept_;  // from first_kept_ on
  int64_t first_kept_ = 0;
  // The next chunk.
  std::vector<SpeechSpan> spans_;
  std::vector<float> speech_;
  int64_t num_chunks_ = 0;
  int64_t num_before_ = 0;  // samples of the chunks before it
};

}  // namespace espalier
