#include "examples/cli/line_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/status.h"

namespace espalier::cli {

absl::StatusOr<std::unique_ptr<LineReader>> LineReader::Open(
    const std::string& path) {
  const int fd =
      path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return NotFound("cannot read ", path, ": ", std::strerror(errno));
  return std::unique_ptr<LineReader>(new LineReader(fd, path));
}

LineReader::LineReader(int fd, std::string path)
    : fd_(fd), path_(std::move(path)) {}

LineReader::~LineReader() {
  thread_.join();
  if (fd_ != STDIN_FILENO) close(fd_);
}

absl::StatusOr<std::vector<std::string>> LineReader::Read() {
  std::vector<std::string> lines;
  char buffer[1 << 16];
  while (lines.empty() && !at_end_) {
    const ssize_t num_bytes = read(fd_, buffer, sizeof(buffer));
    if (num_bytes < 0 && errno == EINTR) continue;
    if (num_bytes < 0) {
      return Internal("cannot read ", path_, ": ", std::strerror(errno));
    }
    at_end_ = num_bytes == 0;
    Split(std::string_view(buffer, num_bytes), &lines);
    if (at_end_ && !line_.empty()) EndLine(&lines);
  }
  return lines;
}

void LineReader::Split(std::string_view bytes,
                       std::vector<std::string>* lines) {
  while (!bytes.empty()) {
    const size_t length = std::min(bytes.find('\n'), bytes.size());
    const size_t room = kMaxLineBytes + 1 - line_.size();
    line_.append(bytes.substr(0, std::min(length, room)));
    if (length == bytes.size()) return;
    EndLine(lines);
    bytes.remove_prefix(length + 1);
  }
}

void LineReader::EndLine(std::vector<std::string>* lines) {
  // A cut line keeps its length, which tells that it was cut.
  if (!line_.empty() && line_.back() == '\r' && line_.size() <= kMaxLineBytes) {
    line_.pop_back();
  }
  lines->push_back(std::exchange(line_, {}));
}

boost::asio::awaitable<absl::StatusOr<std::vector<std::string>>>
LineReader::AsyncRead() {
  return boost::asio::co_spawn(
      thread_,
      [this]()
          -> boost::asio::awaitable<absl::StatusOr<std::vector<std::string>>> {
        co_return Read();
      },
      boost::asio::use_awaitable);
}

}  // namespace espalier::cli
