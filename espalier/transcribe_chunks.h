// TranscribeChunks: the chunks of an audio transcribed beside each other, and
// their transcripts in order.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "speech/speech_chunks.h"
#include "speech/transcript.h"

namespace espalier {

// Calls `transcribe` for each chunk on at most `num_at_once` threads of its
// own, and `take` for each transcript, in the order of the chunks, on the
// caller's. Returns when all threads have ended.
//   stop  is asked to stop at the first error, so that `transcribe` returns
// Errors: the first of `chunks`, `transcribe` or `take`; kResourceExhausted if
// no thread can be started. Throws what `transcribe` or `take` throws.
absl::Status TranscribeChunks(
    SpeechChunks& chunks, int64_t num_at_once, std::stop_source stop,
    const std::function<absl::StatusOr<Transcript>(const SpeechChunk&)>&
        transcribe,
    const std::function<absl::Status(Transcript)>& take);

// Appends the segments, windows and text of `next`, which follows `transcript`
// in an audio.
void AppendTranscript(Transcript next, Transcript* transcript);

}  // namespace espalier
