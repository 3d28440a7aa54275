#include "speech/transcript_formats.h"

#include <cmath>
#include <cstdio>
#include <iterator>
#include <utility>

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

std::string_view TranscriptHeader(TranscriptFormat format) {
  switch (format) {
    case TranscriptFormat::kVtt:
      return "WEBVTT\n\n";
    case TranscriptFormat::kTsv:
      return "start\tend\ttext\n";
    case TranscriptFormat::kTxt:
    case TranscriptFormat::kSrt:
    case TranscriptFormat::kJson:
      break;
  }
  return "";
}

std::string TranscriptPart(TranscriptFormat format, int64_t number,
                           const TranscriptSegment& segment) {
  const std::string_view text = StripSpace(segment.text);
  const auto times = [&](bool has_hours, char mark) {
    return FormatTimestamp(segment.start, has_hours, mark) + " --> " +
           FormatTimestamp(segment.end, has_hours, mark);
  };
  switch (format) {
    case TranscriptFormat::kTxt:
      return Concat(text, "\n");
    case TranscriptFormat::kVtt:
      return Concat(times(false, '.'), "\n", Replaced(text, "-->", "->"),
                    "\n\n");
    case TranscriptFormat::kSrt:
      return Concat(number, "\n", times(true, ','), "\n",
                    Replaced(text, "-->", "->"), "\n\n");
    case TranscriptFormat::kTsv:
      return Concat(Milliseconds(segment.start), "\t",
                    Milliseconds(segment.end), "\t", Replaced(text, "\t", " "),
                    "\n");
    case TranscriptFormat::kJson:
      break;
  }
  return "";
}

std::string FormatTranscript(const Transcript& transcript,
                             TranscriptFormat format) {
  if (format == TranscriptFormat::kJson) {
    return WriteJson(ToJson(transcript)) + "\n";
  }
  std::string out(TranscriptHeader(format));
  for (size_t i = 0; i < transcript.segments.size(); ++i) {
    out += TranscriptPart(format, static_cast<int64_t>(i) + 1,
                          transcript.segments[i]);
  }
  return out;
}

}  // namespace espalier
