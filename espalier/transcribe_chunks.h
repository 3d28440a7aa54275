// TranscribeChunks: the chunks of an audio transcribed beside each other, and
// their transcripts in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "speech/speech_chunks.h"
#include "speech/transcript.h"
#include "text/tokenizer/languages.h"

namespace espalier {

// The languages that chunks begin with. A chunk in which none is likely enough
// has that of the chunk before it, so they do not depend on which chunks are
// transcribed at the same time.
//
// Thread safety: any thread may call any member.
class ChunkLanguages {
 public:
  // `before` is that of a chunk before the first.
  explicit ChunkLanguages(const NaturalLanguage* before)
      : resolved_({{-1, before}}) {}

  // Returns the language of chunk `index`: `detected`, or if that is null, that
  // of the chunk before, which it waits for. Once a chunk.
  // Errors: kCancelled by `stop` while it waits.
  absl::StatusOr<const NaturalLanguage*> Resolve(
      int64_t index, const NaturalLanguage* detected, std::stop_token stop);

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<int64_t, const NaturalLanguage*> resolved_;  // by the chunk
};

// Calls `transcribe` for each chunk on `num_at_once` threads of its own, and
// `take` for each transcript, in the order of the chunks, on the caller's.
// Returns when all threads have ended.
//   next  returns the next chunk, nullopt after the last; called by one thread
//         at a time, and may wait
//   stop  is asked to stop at the first error, so that `transcribe` returns
//   take  with SpeechChunk::next of its chunk
// Errors: the first of `next`, `transcribe` or `take`; kResourceExhausted if no
// thread can be started. Throws what these throw.
absl::Status TranscribeChunks(
    const std::function<absl::StatusOr<std::optional<SpeechChunk>>()>& next,
    int64_t num_at_once, std::stop_source stop,
    const std::function<absl::StatusOr<Transcript>(const SpeechChunk&)>&
        transcribe,
    const std::function<absl::Status(Transcript, int64_t next)>& take);

// Appends the segments, windows and text of `next`, which follows `transcript`
// in an audio.
void AppendTranscript(Transcript next, Transcript* transcript);

}  // namespace espalier
