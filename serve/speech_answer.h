// The answers of /v1/audio/transcriptions and /v1/audio/translations: a whole
// transcript in the format of the call, or events of a stream.
//
// Thread safety: functions without state.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "serve/speech_form.h"
#include "speech/transcript.h"

namespace espalier::serve {

// "application/json", or that of a text.
std::string_view ContentTypeOf(SpeechFormat format);

// Returns the body of a whole answer. kSrt and kVtt are the files that
// FormatTranscript writes; the text of the others has no white space around it.
std::string WriteSpeech(const Transcript& transcript, const SpeechCall& call);

// The text of a stream's segments. The deltas of all segments together are the
// text without white space around it.
class SpeechDeltas {
 public:
  // Returns the event of a segment, transcript.text.delta; empty if it adds
  // nothing.
  std::string Add(const TranscriptSegment& segment);

 private:
  std::string text_;
  size_t num_sent_ = 0;  // bytes of text_ without white space around it
};

// Returns the last event of a stream, transcript.text.done.
std::string WriteSpeechDone(const Transcript& transcript);

}  // namespace espalier::serve
