// SpeechListener: reads an audio on a thread of its own and finds its chunks of
// speech (speech_chunks.h), up to some chunks ahead of those that are taken, so
// that listening runs beside what is done with the chunks. What the chunks are
// does not depend on when they are taken.
//
//   ASSIGN_OR_RETURN(const auto listener,
//                    SpeechListener::Start(std::move(audio), *network,
//                    options));
//   while (...) {
//     ASSIGN_OR_RETURN(const std::optional<SpeechChunk> chunk,
//                      listener->Next());
//     if (!chunk) break;
//
// Thread safety: any number of threads may call any member.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "speech/audio_reader.h"
#include "speech/speech_chunks.h"
#include "speech/speech_spans.h"
#include "speech/voice_activity.h"

namespace espalier {

struct ListenOptions {
  VadOptions vad = {};
  int64_t max_samples = 0;  // in a chunk, if its spans fit
  size_t num_ahead = 1;     // chunks that wait to be taken; >= 1
};

// Returns a pool for voice activity networks: of a few threads, because their
// LSTM runs on one.
std::shared_ptr<ThreadPool> MakeListeningPool();

class SpeechListener {
 public:
  // `network` outlives this.
  // REQUIRES: CheckVadOptions(options.vad).ok().
  // Errors: kResourceExhausted if no thread can be started.
  static absl::StatusOr<std::unique_ptr<SpeechListener>> Start(
      std::unique_ptr<AudioReader> audio, const VoiceActivity& network,
      const ListenOptions& options);
  // Ends the thread after the block that it reads.
  ~SpeechListener() = default;

  // Waits for the next chunk; nullopt after the last one. Errors: those of
  // AudioReader::Read, after the chunks before them; kCancelled. Throws what
  // the thread threw, which is std::bad_alloc.
  absl::StatusOr<std::optional<SpeechChunk>> Next();

  // Waits until the first `count` chunks are known, or all, and returns their
  // spans. Errors: as Next. REQUIRES: none was taken; count <= num_ahead.
  absl::StatusOr<std::vector<SpeechSpan>> SpansOfFirst(size_t count);

  // Ends the thread, and all waiting, with kCancelled.
  void Cancel();

  // Samples of the audio that were read: all after Next has returned the last
  // chunk.
  int64_t num_samples() const;

 private:
  SpeechListener(std::unique_ptr<AudioReader> audio,
                 const VoiceActivity& network, const ListenOptions& options);

  void Run(const std::stop_token& stop);
  absl::Status Listen(const std::stop_token& stop);
  // Queues chunks, for which it waits for room. Returns false if stopped.
  bool Queue(std::vector<SpeechChunk> chunks, int64_t num_samples,
             const std::stop_token& stop);
  // Unless it has ended.
  void End(const absl::Status& error, std::exception_ptr thrown);

  // Used by the thread alone.
  const std::unique_ptr<AudioReader> audio_;
  const std::shared_ptr<ThreadPool> pool_;
  SpeechChunker chunker_;
  const size_t num_ahead_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<SpeechChunk> chunks_ ABSL_GUARDED_BY(mutex_);
  int64_t num_samples_ ABSL_GUARDED_BY(mutex_) = 0;
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);  // how it ended
  std::exception_ptr thrown_ ABSL_GUARDED_BY(mutex_);

  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace espalier
