#include "speech/subtitle_lines.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "speech/transcript_formats.h"

namespace espalier {
namespace {

constexpr double kLongPause = 3;  // seconds
constexpr int64_t kUnlimited = 1000;

// Code points of UTF-8.
int64_t NumCharacters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  });
}

// Underlines a word, but not the space before it nor a line end after it; one
// with a line end inside stays as it is.
std::string Underlined(const std::string& word) {
  std::string_view rest = word;
  const std::string_view stripped = StripSpace(word);
  // The beginning of what is stripped is that of its first character.
  const size_t space = stripped.empty()
                           ? word.size()
                           : static_cast<size_t>(stripped.data() - word.data());
  rest.remove_prefix(space);
  std::string_view text = rest;
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.find('\n') != text.npos) return word;
  return Concat(word.substr(0, space), "<u>", text, "</u>",
                rest.substr(text.size()));
}

}  // namespace

std::vector<Subtitle> SubtitleLines::Add(const TranscriptSegment& segment) {
  const std::vector<TranscriptWord>& words = *segment.words;
  const auto part_size =
      static_cast<size_t>(options_.max_words_per_line.value_or(kUnlimited));
  std::vector<Subtitle> done;
  for (size_t i = 0; i < words.size(); ++i) {
    AddWord(words[i], i % part_size == 0, &done);
  }
  return done;
}

void SubtitleLines::AddWord(TranscriptWord word, bool begins_part,
                            std::vector<Subtitle>* done) {
  const bool is_pause =
      !KeepsSegments() && word.start - last_.value_or(word.start) > kLongPause;
  const int64_t size = NumCharacters(word.word);
  const bool has_room =
      line_size_ + size <= options_.max_line_width.value_or(kUnlimited);
  const bool is_break = begins_part && !words_.empty() && KeepsSegments();
  last_ = word.start;
  if (line_size_ > 0 && has_room && !is_pause && !is_break) {
    line_size_ += size;
    words_.push_back(std::move(word));
    return;
  }
  word.word = std::string(StripSpace(word.word));
  const bool is_full = !words_.empty() && options_.max_line_count &&
                       (is_pause || num_lines_ >= *options_.max_line_count);
  const int64_t line_size = NumCharacters(word.word);
  if (is_full || is_break) {
    End(done);
    num_lines_ = 1;
  } else if (line_size_ > 0) {
    ++num_lines_;
    word.word.insert(0, "\n");
  }
  line_size_ = line_size;
  words_.push_back(std::move(word));
}

void SubtitleLines::End(std::vector<Subtitle>* done) {
  if (words_.empty()) return;
  const std::vector<TranscriptWord> words = std::exchange(words_, {});
  std::string text;
  for (const TranscriptWord& word : words) text += word.word;
  if (!options_.highlight_words) {
    done->push_back({words.front().start, words.back().end, std::move(text)});
    return;
  }
  double last = words.front().start;
  for (size_t i = 0; i < words.size(); ++i) {
    // In the milliseconds that are written.
    if (FormatTimestamp(last) != FormatTimestamp(words[i].start)) {
      done->push_back({last, words[i].start, text});
    }
    std::string marked;
    for (size_t j = 0; j < words.size(); ++j) {
      marked += j == i ? Underlined(words[j].word) : words[j].word;
    }
    done->push_back({words[i].start, words[i].end, std::move(marked)});
    last = words[i].end;
  }
}

std::vector<Subtitle> SubtitleLines::Finish() {
  std::vector<Subtitle> done;
  End(&done);
  return done;
}

}  // namespace espalier
