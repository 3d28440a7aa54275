// TranscribeChunks: the chunks of an audio transcribed beside each other, and
// their transcripts in order.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "speech/speech_chunks.h"
#include "speech/transcript.h"

namespace espalier {

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
