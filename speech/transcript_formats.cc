#include "speech/transcript_formats.h"

#include <cmath>
#include <cstdio>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/status.h"
#include "speech/transcript_json.h"

namespace espalier {
namespace {

constexpr std::string_view kFormatNames[] = {"txt", "vtt", "srt", "tsv",
                                             "json"};
static_assert(std::size(kFormatNames) == std::size(kTranscriptFormats));

// Python's white space beyond ASCII.
constexpr std::string_view kWideSpaces[] = {
    "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003",
    "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
    "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};

bool IsAsciiSpace(char c) {
  return (c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= ' ');
}

// Returns the bytes of white space that `text` begins or ends with; 0: none.
size_t SpaceAtBegin(std::string_view text) {
  if (!text.empty() && IsAsciiSpace(text.front())) return 1;
  for (const std::string_view space : kWideSpaces) {
    if (text.starts_with(space)) return space.size();
  }
  return 0;
}
size_t SpaceAtEnd(std::string_view text) {
  if (!text.empty() && IsAsciiSpace(text.back())) return 1;
  for (const std::string_view space : kWideSpaces) {
    if (text.ends_with(space)) return space.size();
  }
  return 0;
}

std::string Replaced(std::string_view text, std::string_view from,
                     std::string_view to) {
  std::string out;
  for (size_t at; (at = text.find(from)) != text.npos;) {
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

// As Python's round(): halves to even.
int64_t Milliseconds(double seconds) {
  return static_cast<int64_t>(std::nearbyint(seconds * 1000));
}

}  // namespace

std::string_view NameOf(TranscriptFormat format) {
  return kFormatNames[static_cast<size_t>(format)];
}

std::optional<TranscriptFormat> FindTranscriptFormat(std::string_view name) {
  for (const TranscriptFormat format : kTranscriptFormats) {
    if (NameOf(format) == name) return format;
  }
  return std::nullopt;
}

std::string FormatTimestamp(double seconds, bool always_has_hours,
                            char decimal_mark) {
  const int64_t all = Milliseconds(seconds);
  const long long hours = all / 3'600'000;
  const int minutes = static_cast<int>(all / 60'000 % 60);
  const int whole = static_cast<int>(all / 1000 % 60);
  const int rest = static_cast<int>(all % 1000);
  char text[64];
  if (always_has_hours || hours > 0) {
    std::snprintf(text, sizeof(text), "%02lld:%02d:%02d%c%03d", hours, minutes,
                  whole, decimal_mark, rest);
  } else {
    std::snprintf(text, sizeof(text), "%02d:%02d%c%03d", minutes, whole,
                  decimal_mark, rest);
  }
  return text;
}

std::string_view StripSpace(std::string_view text) {
  while (const size_t size = SpaceAtBegin(text)) text.remove_prefix(size);
  while (const size_t size = SpaceAtEnd(text)) text.remove_suffix(size);
  return text;
}

TranscriptWriter::TranscriptWriter(TranscriptFormat format,
                                   const SubtitleOptions& options)
    : format_(format), lines_(options) {
  CHECK(format != TranscriptFormat::kJson) << "JSON is written as a whole";
}

bool TranscriptWriter::IsSubtitles() const {
  return format_ == TranscriptFormat::kVtt || format_ == TranscriptFormat::kSrt;
}

std::string_view TranscriptWriter::Header() const {
  if (format_ == TranscriptFormat::kVtt) return "WEBVTT\n\n";
  if (format_ == TranscriptFormat::kTsv) return "start\tend\ttext\n";
  return "";
}

std::string TranscriptWriter::Cue(double start, double end,
                                  std::string_view text) {
  ++num_cues_;
  const bool is_srt = format_ == TranscriptFormat::kSrt;
  const char mark = is_srt ? ',' : '.';
  return Concat(is_srt ? Concat(num_cues_, "\n") : "",
                FormatTimestamp(start, is_srt, mark), " --> ",
                FormatTimestamp(end, is_srt, mark), "\n", text, "\n\n");
}

std::string TranscriptWriter::CuesOf(const std::vector<Subtitle>& subtitles) {
  std::string cues;
  for (const Subtitle& subtitle : subtitles) {
    cues += Cue(subtitle.start, subtitle.end, subtitle.text);
  }
  return cues;
}

std::string TranscriptWriter::Add(const TranscriptSegment& segment) {
  const std::string_view text = StripSpace(segment.text);
  if (IsSubtitles()) {
    if (segment.words) return CuesOf(lines_.Add(segment));
    return Cue(segment.start, segment.end, Replaced(text, "-->", "->"));
  }
  if (format_ == TranscriptFormat::kTxt) return Concat(text, "\n");
  return Concat(Milliseconds(segment.start), "\t", Milliseconds(segment.end),
                "\t", Replaced(text, "\t", " "), "\n");
}

std::string TranscriptWriter::Finish() { return CuesOf(lines_.Finish()); }

std::string FormatTranscript(const Transcript& transcript,
                             TranscriptFormat format,
                             const SubtitleOptions& options) {
  if (format == TranscriptFormat::kJson) {
    return WriteJson(ToJson(transcript)) + "\n";
  }
  TranscriptWriter writer(format, options);
  std::string out(writer.Header());
  for (const TranscriptSegment& segment : transcript.segments) {
    out += writer.Add(segment);
  }
  return out + writer.Finish();
}

}  // namespace espalier
