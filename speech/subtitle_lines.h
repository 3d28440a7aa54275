// SubtitleLines: words of segments as subtitles of lines.
//
// Without max_line_count or without max_line_width each segment begins a
// subtitle. With both, subtitles have up to so many lines, whatever the
// segments, and one ends where 3 s are between the beginnings of two words.
//
// Thread safety: none.
// Source: openai/whisper, whisper/utils.py (SubtitlesWriter).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "speech/transcript.h"

namespace espalier {

// All in [1, kMost].
struct SubtitleOptions {
  static constexpr int64_t kMost = 10'000;
  // Characters of a line; a longer word is a line. Unset: 1,000.
  std::optional<int64_t> max_line_width = std::nullopt;
  std::optional<int64_t> max_line_count = std::nullopt;  // in a subtitle
  // In a segment; more begin another subtitle.
  std::optional<int64_t> max_words_per_line = std::nullopt;
  // A subtitle for each word, in which it is underlined, <u>word</u>.
  bool highlight_words = false;

  bool empty() const {
    return !max_line_width && !max_line_count && !max_words_per_line &&
           !highlight_words;
  }
};

struct Subtitle {
  double start = 0;  // seconds
  double end = 0;
  std::string text = {};
};

class SubtitleLines {
 public:
  explicit SubtitleLines(const SubtitleOptions& options) : options_(options) {}

  // Takes a segment and returns the subtitles that are complete.
  // REQUIRES: it has words.
  std::vector<Subtitle> Add(const TranscriptSegment& segment);
  // Returns the last subtitles.
  std::vector<Subtitle> Finish();

 private:
  bool KeepsSegments() const {
    return !options_.max_line_count || !options_.max_line_width;
  }
  void AddWord(TranscriptWord word, bool begins_part,
               std::vector<Subtitle>* done);
  // Appends the subtitles of words_ and clears these.
  void End(std::vector<Subtitle>* done);

  const SubtitleOptions options_;
  std::vector<TranscriptWord> words_;  // the next subtitle's, with line ends
  int64_t line_size_ = 0;              // characters
  int64_t num_lines_ = 1;
  std::optional<double> last_;  // the beginning of the word before
};

}  // namespace espalier
