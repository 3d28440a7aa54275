// The formats of a transcript's file, byte for byte those that openai/whisper
// writes of the same segments; its json has `windows` besides if alternatives
// were requested.
//
// Thread safety: functions without state.
// Source: openai/whisper, whisper/utils.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "speech/transcript.h"

namespace espalier {

enum class TranscriptFormat : uint8_t {
  kTxt,   // a line a segment
  kVtt,   // WebVTT subtitles
  kSrt,   // SubRip subtitles
  kTsv,   // start and end in ms, and text
  kJson,  // everything
};

inline constexpr TranscriptFormat kTranscriptFormats[] = {
    TranscriptFormat::kTxt, TranscriptFormat::kVtt, TranscriptFormat::kSrt,
    TranscriptFormat::kTsv, TranscriptFormat::kJson};

// Returns the extension of its files, such as "txt".
std::string_view NameOf(TranscriptFormat format);
std::optional<TranscriptFormat> FindTranscriptFormat(std::string_view name);

// Returns "02:03.456", with hours before it if there are any, or always.
// REQUIRES: seconds >= 0.
std::string FormatTimestamp(double seconds, bool always_has_hours = false,
                            char decimal_mark = '.');

// Returns the text without white space around it, as Python's str.strip().
std::string_view StripSpace(std::string_view text);

// Returns what a file begins with, and its part for one segment: `number` is
// that of the segment in the file, from 1. REQUIRES: format is not kJson, whose
// files are written as a whole.
std::string_view TranscriptHeader(TranscriptFormat format);
std::string TranscriptPart(TranscriptFormat format, int64_t number,
                           const TranscriptSegment& segment);

// Returns a whole file.
std::string FormatTranscript(const Transcript& transcript,
                             TranscriptFormat format);

}  // namespace espalier
