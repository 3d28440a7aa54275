#include "examples/cli/output/output.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/json.h"
#include "base/status.h"

namespace espalier::cli {
namespace {

// Bytes that a character has which begins with `lead`; 1 if none does.
size_t CharacterLength(unsigned char lead) {
  return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// One character, or one byte that is none.
std::string ShownCharacter(std::string_view character) {
  const auto byte = [&](size_t i) {
    return static_cast<unsigned char>(character[i]);
  };
  if (!IsUtf8(character)) return absl::StrFormat("\\x%02x", byte(0));
  // C1 controls are U+0080 to U+009F; in two bytes the second is the code.
  const bool is_c1 = byte(0) == 0xC2 && byte(1) < 0xA0;
  const bool is_c0 = byte(0) < 0x20 && byte(0) != '\n' && byte(0) != '\t';
  if (is_c0 || is_c1 || byte(0) == 0x7F) {
    return absl::StrFormat("\\u%04x", is_c1 ? byte(1) : byte(0));
  }
  return std::string(character);
}

bool IsRegularFile(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

// Waits until `fd` accepts data or is broken, in which case the write fails.
// Once `interrupt_fd` is readable, it waits for a reader only briefly.
// Errors: errno, EINTR if it was interrupted.
bool WaitForRoom(int fd, int interrupt_fd) {
  constexpr int kMomentMs = 100;
  pollfd fds[] = {{.fd = fd, .events = POLLOUT, .revents = 0},
                  {.fd = interrupt_fd, .events = POLLIN, .revents = 0}};
  while (poll(fds, 2, -1) < 0) {
    if (errno != EINTR) return false;  // the next round sees what came
  }
  if (fds[0].revents != 0) return true;
  if (poll(fds, 1, kMomentMs) > 0) return true;
  errno = EINTR;
  return false;
}

// Writes some of `bytes`, and returns how many, or -1 and errno. Where a reader
// may keep it waiting it waits for room first, and then writes what fits
// without waiting.
ssize_t WriteSome(int fd, bool is_live, int interrupt_fd,
                  std::string_view bytes) {
  if (!is_live) return write(fd, bytes.data(), bytes.size());
  if (!WaitForRoom(fd, interrupt_fd)) return -1;
  const ssize_t num_bytes =
      write(fd, bytes.data(), std::min<size_t>(bytes.size(), PIPE_BUF));
  // A terminal that is held may have waited all the same.
  if (num_bytes < 0 && errno == EINTR) errno = EAGAIN;
  return num_bytes;
}

}  // namespace

std::string ForTerminal(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    std::string_view character = text.substr(0, CharacterLength(text[0]));
    if (!IsUtf8(character)) character = text.substr(0, 1);
    shown += ShownCharacter(character);
    text.remove_prefix(character.size());
  }
  return shown;
}

std::string InQuotes(std::string_view typed) {
  if (IsUtf8(typed)) return ShownInQuotes(typed);
  return "\"" + Shown(ForTerminal(typed)) + "\"";
}

std::string Shortened(std::string_view typed) {
  return IsUtf8(typed) ? Shown(typed) : Shown(ForTerminal(typed));
}

std::string InputPath(const std::string& path) {
  return path == "-" ? "/dev/stdin" : path;
}

std::string OutputPath(const std::string& path) {
  return path == "-" ? "/dev/stdout" : path;
}

bool IsSameFile(const std::string& path, const std::string& other) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) &&
         std::filesystem::equivalent(path, other, error);
}

bool NamesSameFile(const std::string& path, const std::string& other) {
  if (IsSameFile(path, other)) return true;
  std::error_code error, other_error;
  if (path.empty() || other.empty() || std::filesystem::exists(path, error) ||
      std::filesystem::exists(other, error)) {
    return false;
  }
  const auto place = std::filesystem::weakly_canonical(path, error);
  const auto other_place =
      std::filesystem::weakly_canonical(other, other_error);
  return !error && !other_error && place == other_place;
}

void PrintToStderr(std::string_view text) {
  const std::string shown =
      isatty(STDERR_FILENO) == 1 ? ForTerminal(text) : std::string(text);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

void PrintNote(std::string_view note) {
  PrintToStderr(Concat("espalier: note: ", note, "\n"));
}

absl::Status CheckWritable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path there = fs::absolute(path, error);
  // Also through links to what does not exist yet.
  constexpr int kMaxLinks = 40;  // as Linux follows
  bool is_linked = false;
  for (int i = 0; i < kMaxLinks && fs::is_symlink(there, error); ++i) {
    there = there.parent_path() / fs::read_symlink(there, error);
    is_linked = true;
  }
  // The text of a link such as /dev/fd/3 may name no file.
  const fs::file_status status = fs::status(path, error);
  int reason = 0;
  if (!fs::exists(status) && fs::is_symlink(there, error)) {
    reason = ELOOP;
  } else if (fs::is_directory(status)) {
    reason = EISDIR;
  } else if (fs::is_fifo(status) || fs::is_socket(status)) {
    reason = EPIPE;  // its reader may never come
  } else if (fs::exists(status)) {
    if (access(path.c_str(), W_OK) != 0) reason = errno;
  } else {
    // The directory in which the rest of the path is made; none is made for a
    // link.
    do {
      there = there.parent_path();
    } while (!is_linked && !fs::is_symlink(there, error) &&
             !fs::exists(there, error) && there.has_relative_path());
    if (fs::exists(there, error) && !fs::is_directory(there, error)) {
      reason = ENOTDIR;
    } else if (access(there.c_str(), W_OK | X_OK) != 0) {
      reason = errno;
    }
  }
  if (reason == 0) return absl::OkStatus();
  return FailedPrecondition(
      "cannot write ", path, ": ",
      reason == EPIPE ? "it is a pipe" : std::strerror(reason));
}

absl::StatusOr<std::unique_ptr<Output>> Output::Open(const std::string& path) {
  if (path == "-") {
    return std::unique_ptr<Output>(new Output(STDOUT_FILENO, "stdout"));
  }
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) {
    return FailedPrecondition("cannot write ", path, ": ",
                              std::strerror(errno));
  }
  return std::unique_ptr<Output>(new Output(fd, path));
}

Output::Output(int fd, std::string name)
    : fd_(fd),
      name_(std::move(name)),
      is_terminal_(isatty(fd) == 1),
      is_live_(!IsRegularFile(fd)) {}

Output::~Output() {
  if (is_open_ && fd_ != STDOUT_FILENO) close(fd_);
}

// A pipe or a device has nothing to cut.
void Output::CutToNothing() {
  if (fd_ == STDOUT_FILENO || is_live_) return;
  if (ftruncate(fd_, 0) != 0) error_ = errno;
}

void Output::Write(std::string_view text) {
  constexpr size_t kBufferBytes = 1 << 16;
  if (failed()) return;
  buffer_ += is_terminal_ ? ForTerminal(text) : text;
  if (buffer_.size() >= kBufferBytes) Flush();
}

void Output::Flush() {
  std::string_view left = buffer_;
  while (!left.empty() && !failed()) {
    const ssize_t num_bytes = WriteSome(fd_, is_live_, interrupt_fd_, left);
    if (num_bytes >= 0) {
      left.remove_prefix(num_bytes);
    } else if (errno != EAGAIN && (is_live_ || errno != EINTR)) {
      error_ = errno;
    }
  }
  buffer_.clear();
}

absl::Status Output::Close() {
  Flush();
  is_open_ = false;
  if (fd_ != STDOUT_FILENO && close(fd_) != 0 && !failed()) error_ = errno;
  if (!failed()) return absl::OkStatus();
  return Internal("cannot write ", name_, ": ", std::strerror(error_));
}

}  // namespace espalier::cli
