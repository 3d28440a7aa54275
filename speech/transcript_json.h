// A transcript as JSON, with the fields of openai/whisper's files, `language`
// in segments that tell theirs, and `windows` if alternatives were requested.
//
// Thread safety: functions without state.
#pragma once

#include "base/json.h"
#include "speech/transcript.h"

namespace espalier {

json::object ToJson(const Transcript& transcript);
json::object ToJson(const TranscriptSegment& segment);

}  // namespace espalier
