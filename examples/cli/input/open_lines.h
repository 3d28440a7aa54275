// OpenLines: the lines of a batch that are read and not yet written, in their
// order: those that run, and answers that wait for one before them. All of them
// together are bounded, whatever they hold: while they are full no line is
// read.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <utility>

namespace espalier::cli {

class OpenLines {
 public:
  static constexpr size_t kMaxLines = 4096;
  static constexpr size_t kMaxBytes = 64 << 20;

  // Adds a line of `num_bytes` bytes after the others. Returns its number.
  size_t Open(size_t num_bytes) {
    lines_.push_back({num_bytes, {}});
    num_bytes_ += num_bytes;
    return num_taken_ + lines_.size() - 1;
  }

  // The line's answer; empty if it is left out. Its bytes are held instead of
  // the line's until it is taken.
  void Answer(size_t number, std::string answer) {
    Line& line = lines_[number - num_taken_];
    num_bytes_ += answer.size() - line.num_bytes;
    line.num_bytes = answer.size();
    line.answer = std::move(answer);
  }

  // The next answer, as soon as it and all before it are there.
  std::optional<std::string> Take() {
    if (lines_.empty()) return std::nullopt;
    std::optional<std::string> answer = std::move(lines_.front().answer);
    if (!answer) return std::nullopt;
    num_bytes_ -= lines_.front().num_bytes;
    lines_.pop_front();
    ++num_taken_;
    return answer;
  }

  // Bytes of lines without an answer, and of answers.
  size_t num_bytes() const { return num_bytes_; }
  bool empty() const { return lines_.empty(); }
  bool is_full() const {
    return lines_.size() >= kMaxLines ||
           (num_bytes_ >= kMaxBytes && !lines_.empty());
  }

 private:
  struct Line {
    size_t num_bytes = 0;
    std::optional<std::string> answer;
  };

  std::deque<Line> lines_;  // the first is the num_taken_-th of all
  size_t num_bytes_ = 0;
  size_t num_taken_ = 0;
};

}  // namespace espalier::cli
