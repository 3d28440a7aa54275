// LineReader: the lines of a file, a pipe or stdin, as they come. A line ends
// in "\n" or "\r\n"; a byte order mark before the first is none of its bytes.
//
//   ASSIGN_OR_RETURN(const auto reader, LineReader::Open("-"));
//   while (true) {
//     ASSIGN_OR_RETURN(const std::vector<std::string> lines, reader->Read());
//     if (lines.empty()) break;
//   }
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace espalier::cli {

// Default limit of a line.
inline constexpr size_t kMaxLineBytes = 16 << 20;

class LineReader {
 public:
  static constexpr size_t kMaxPassedBytes = size_t{1} << 30;

  // `path` "-" is stdin; where that is a terminal, a note on stderr says that
  // lines are expected. A line of more than `max_line_bytes`, its end not
  // counted, is cut: that many bytes and one are handed over, and the rest is
  // passed over, up to kMaxPassedBytes.
  // Errors: kNotFound if it cannot be opened; kInvalidArgument for a device
  // other than a terminal or /dev/null.
  static absl::StatusOr<std::unique_ptr<LineReader>> Open(
      const std::string& path, size_t max_line_bytes = kMaxLineBytes);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The path, or "stdin".
  const std::string& name() const { return name_; }

  // Returns the available lines, without their line ends: at least one, for
  // which it waits, or none at the end.
  // Errors: kInternal with the system's reason if reading fails;
  // kInvalidArgument if a line has no end within kMaxPassedBytes, or if the
  // input begins like a compressed file or UTF-16 text instead of UTF-8, with a
  // command that converts it.
  absl::StatusOr<std::vector<std::string>> Read();

  // True if the input is over and its last line had no line end. That line is
  // the only one of its Read().
  bool ended_within_line() const { return ended_within_line_; }

  // Ends the input here: a read that waits returns, with nothing, as do those
  // that come later. Any thread.
  void Stop();

 private:
  LineReader(int fd, int stop_fd, std::string name, size_t max_line_bytes);
  // Waits for bytes or the end of the input; false if it was stopped.
  bool Wait() const;
  // Takes the complete lines out of `bytes` and what was left before.
  void Split(std::string_view bytes, std::vector<std::string>* lines);
  void EndLine(std::vector<std::string>* lines);

  const int fd_;
  const int stop_fd_;  // an eventfd, readable once stopped
  const std::string name_;
  const size_t max_line_bytes_;
  bool at_start_ = true;
  absl::Status format_status_;  // wrong encoding of the first line
  std::string line_;            // begun, and not ended yet
  size_t num_passed_ = 0;       // bytes of it that are passed over
  bool at_end_ = false;
  bool ended_within_line_ = false;
};

}  // namespace espalier::cli
