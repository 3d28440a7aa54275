#include "examples/cli/input/line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/byte_order_mark.h"
#include "base/check.h"
#include "base/status.h"
#include "examples/cli/output/output.h"

namespace espalier::cli {

namespace {

// Files that are no text in UTF-8, by their first bytes.
struct OtherFormat {
  std::string_view bytes;
  std::string_view name;
  std::string_view command;  // which makes text of it
};
constexpr OtherFormat kOtherFormats[] = {
    {"\x1F\x8B", "compressed by gzip", "gzip -dc"},
    {"\x28\xB5\x2F\xFD", "compressed by zstd", "zstd -dc"},
    {"\xFD"
     "7zXZ",
     "compressed by xz", "xz -dc"},
    {"PK\x03\x04", "a zip archive", "unzip -p FILE"},
    {std::string_view("\xFF\xFE\0\0", 4), "UTF-32", "iconv -f UTF-32 -t UTF-8"},
    {std::string_view("\0\0\xFE\xFF", 4), "UTF-32", "iconv -f UTF-32 -t UTF-8"},
    {"\xFF\xFE", "UTF-16", "iconv -f UTF-16 -t UTF-8"},
    {"\xFE\xFF", "UTF-16", "iconv -f UTF-16 -t UTF-8"},
};

absl::Status CheckBeginning(std::string_view line, std::string_view name) {
  for (const OtherFormat& format : kOtherFormats) {
    if (!line.starts_with(format.bytes)) continue;
    return InvalidArgument(name, " is ", format.name,
                           ", it must be lines in UTF-8: give what \"",
                           format.command, "\" makes of it");
  }
  return absl::OkStatus();
}

// Terminals and /dev/null are the only devices that are read: most others have
// no end.
absl::Status CheckEnds(int fd, std::string_view name) {
  struct stat about = {};
  if (fstat(fd, &about) != 0) return absl::OkStatus();
  // A directory can be opened; reading it would fail after outputs are
  // truncated.
  if (S_ISDIR(about.st_mode)) {
    return NotFound("cannot read ", name, ": ", std::strerror(EISDIR));
  }
  constexpr unsigned kMemoryMajor = 1, kNullMinor = 3;
  const bool is_device = S_ISCHR(about.st_mode) || S_ISBLK(about.st_mode);
  const bool is_null = S_ISCHR(about.st_mode) &&
                       about.st_rdev == makedev(kMemoryMajor, kNullMinor);
  if (!is_device || is_null || isatty(fd) != 0) return absl::OkStatus();
  return InvalidArgument(name, " is a device: it must be a file or a pipe");
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineReader>> LineReader::Open(
    const std::string& path, size_t max_line_bytes) {
  const bool is_stdin = path == "-";
  if (is_stdin && isatty(STDIN_FILENO)) {
    PrintToStderr("espalier: reading lines from the terminal, until Ctrl-D\n");
  }
  const int fd =
      is_stdin ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return NotFound("cannot read ", path, ": ", std::strerror(errno));
  const absl::Status can_end = CheckEnds(fd, is_stdin ? "stdin" : path);
  if (!can_end.ok()) {
    if (!is_stdin) close(fd);
    return can_end;
  }
  const int stop_fd = eventfd(0, EFD_CLOEXEC);
  if (stop_fd < 0) {
    const std::string why = std::strerror(errno);
    if (!is_stdin) close(fd);
    return Internal("cannot read ", path, ": ", why);
  }
  return std::unique_ptr<LineReader>(
      new LineReader(fd, stop_fd, is_stdin ? "stdin" : path, max_line_bytes));
}

LineReader::LineReader(int fd, int stop_fd, std::string name,
                       size_t max_line_bytes)
    : fd_(fd),
      stop_fd_(stop_fd),
      name_(std::move(name)),
      max_line_bytes_(max_line_bytes) {}

LineReader::~LineReader() {
  close(stop_fd_);
  if (fd_ != STDIN_FILENO) close(fd_);
}

void LineReader::Stop() {
  const uint64_t one = 1;
  CHECK_EQ(write(stop_fd_, &one, sizeof(one)), ssize_t{sizeof(one)});
}

bool LineReader::Wait() const {
  pollfd fds[] = {{fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  while (poll(fds, 2, -1) < 0 && errno == EINTR) {
  }
  return fds[1].revents == 0;
}

absl::StatusOr<std::vector<std::string>> LineReader::Read() {
  std::vector<std::string> lines;
  char buffer[1 << 16];
  while (lines.empty() && !at_end_ && Wait()) {
    const ssize_t num_bytes = read(fd_, buffer, sizeof(buffer));
    if (num_bytes < 0 && errno == EINTR) continue;
    if (num_bytes < 0) {
      return Internal("cannot read ", name_, ": ", std::strerror(errno));
    }
    at_end_ = num_bytes == 0;
    Split(std::string_view(buffer, num_bytes), &lines);
    if (num_passed_ > kMaxPassedBytes) {
      return InvalidArgument(name_, " has a line of more than ",
                             max_line_bytes_ + kMaxPassedBytes,
                             " bytes, which may have no end");
    }
    ended_within_line_ = at_end_ && !line_.empty();
    if (ended_within_line_) EndLine(&lines);
    RETURN_IF_ERROR(format_status_);
  }
  return lines;
}

void LineReader::Split(std::string_view bytes,
                       std::vector<std::string>* lines) {
  while (!bytes.empty()) {
    const size_t length = std::min(bytes.find('\n'), bytes.size());
    const size_t mark = at_start_ ? kByteOrderMark.size() : 0;
    // Beside the bytes of a line there is room for "\r", and for one too many.
    const size_t room = mark + max_line_bytes_ + 2 - line_.size();
    line_.append(bytes.substr(0, std::min(length, room)));
    num_passed_ += length - std::min(length, room);
    if (length == bytes.size()) return;
    EndLine(lines);
    bytes.remove_prefix(length + 1);
  }
}

void LineReader::EndLine(std::vector<std::string>* lines) {
  num_passed_ = 0;
  if (std::exchange(at_start_, false)) {
    format_status_ = CheckBeginning(line_, name_);
    line_.erase(0,
                line_.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
  }
  // A line that was cut right after a "\r" is too long even without it.
  if (!line_.empty() && line_.back() == '\r') line_.pop_back();
  // The length marks a cut line.
  line_.resize(std::min(line_.size(), max_line_bytes_ + 1));
  lines->push_back(std::exchange(line_, {}));
}

}  // namespace espalier::cli
