#include "jobs/line_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace espalier::jobs {
namespace {

constexpr size_t kBufferBytes = 64 << 10;

absl::Status ReadError(const std::string& path) {
  return MakeError(absl::StatusCode::kUnavailable, "cannot read ", path, ": ",
                   std::strerror(errno));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineFile>> LineFile::Open(
    const std::string& path, int64_t max_line_bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return ReadError(path);
  return std::unique_ptr<LineFile>(new LineFile(fd, path, max_line_bytes));
}

LineFile::LineFile(int fd, std::string path, int64_t max_line_bytes)
    : fd_(fd), path_(std::move(path)), max_line_bytes_(max_line_bytes) {}

LineFile::~LineFile() { close(fd_); }

absl::StatusOr<bool> LineFile::Fill() {
  buffer_.resize(kBufferBytes);
  begin_ = 0;
  while (true) {
    const ssize_t count = read(fd_, buffer_.data(), buffer_.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ReadError(path_);
    buffer_.resize(static_cast<size_t>(count));
    return count > 0;
  }
}

absl::StatusOr<std::optional<LineFile::Line>> LineFile::Next(SliceEnd end) {
  while (!line_.has_end) {
    if (begin_ == buffer_.size()) {
      ASSIGN_OR_RETURN(const bool has_more, Fill());
      is_at_end_ = !has_more;
      if (is_at_end_) break;
    }
    const std::string_view rest = std::string_view(buffer_).substr(begin_);
    const size_t size = rest.find('\n');
    line_.has_end = size != rest.npos;
    const std::string_view piece = rest.substr(0, size);
    const size_t room =
        static_cast<size_t>(max_line_bytes_ - std::ssize(line_.text));
    line_.is_too_long = line_.is_too_long || piece.size() > room;
    line_.text += piece.substr(0, room);
    const size_t num_read = piece.size() + (line_.has_end ? 1 : 0);
    line_.num_bytes += static_cast<int64_t>(num_read);
    begin_ += num_read;
    if (!line_.has_end && IsOver(end)) return std::nullopt;
  }
  Line line = std::exchange(line_, {});
  if (line.num_bytes == 0) return std::nullopt;
  if (line.text.ends_with('\r')) line.text.pop_back();
  return line;
}

}  // namespace espalier::jobs
