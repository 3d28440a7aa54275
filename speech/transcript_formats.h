// The formats of a transcript's file, byte for byte those that openai/whisper
// writes of the same segments, but for what transcript_json.h adds.
//
// Thread safety: functions without state.
// Source: openai/whisper, whisper/utils.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "speech/subtitle_lines.h"
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

// The parts of a file, which together are the file. Subtitles of segments with
// words are those of SubtitleLines.
class TranscriptWriter {
 public:
  // REQUIRES: format is not kJson, whose files are written as a whole.
  explicit TranscriptWriter(TranscriptFormat format,
                            const SubtitleOptions& options = {});

  std::string_view Header() const;
  // Returns what the next segment completes.
  std::string Add(const TranscriptSegment& segment);
  std::string Finish();

 private:
  bool IsSubtitles() const;
  std::string Cue(double start, double end, std::string_view text);
  std::string CuesOf(const std::vector<Subtitle>& subtitles);

  const TranscriptFormat format_;
  SubtitleLines lines_;
  int64_t num_cues_ = 0;
};

// Returns a whole file.
std::string FormatTranscript(const Transcript& transcript,
                             TranscriptFormat format,
                             const SubtitleOptions& options = {});

}  // namespace espalier
