#include "examples/cli/input/audio_input.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace espalier::cli {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

// Returns a file that is gone when it is closed.
int OpenTemporaryFile() {
  const char* const directory = std::getenv("TMPDIR");
  std::string path = Concat(directory != nullptr ? directory : "/tmp",
                            "/espalier_audio_", std::string(6, 'X'));
  const int fd = mkstemp(path.data());
  if (fd >= 0) unlink(path.c_str());
  return fd;
}

absl::Status NoRoomForAudio() {
  return ResourceExhausted("stdin: cannot keep the audio in a temporary file: ",
                           std::strerror(errno));
}

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = write(fd, bytes.data(), bytes.size());
    if (size < 0 && errno != EINTR) return false;
    if (size > 0) bytes.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

// True if reading does not block; false after a tenth of a second.
bool HasInput() {
  pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return poll(&input, 1, /*timeout=*/100) > 0;
}

absl::Status SpoolStdin(int to, const std::stop_token& stop) {
  std::vector<char> buffer(1 << 16);
  while (true) {
    if (stop.stop_requested()) {
      return absl::CancelledError("stdin: interrupted");
    }
    if (!HasInput()) continue;
    const ssize_t size = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (size == 0) return absl::OkStatus();
    if (size < 0 && errno != EINTR && errno != EAGAIN) {
      return FailedPrecondition("stdin: cannot read: ", std::strerror(errno));
    }
    if (size > 0 && !WriteAll(to, {buffer.data(), static_cast<size_t>(size)})) {
      return NoRoomForAudio();
    }
  }
}

}  // namespace

absl::StatusOr<AudioInput> AudioInput::Open(const std::string& path,
                                            const std::stop_token& stop) {
  if (path != "-") return AudioInput(path);
  AudioInput input("stdin");
  struct stat status = {};
  const bool is_file =
      fstat(STDIN_FILENO, &status) == 0 && S_ISREG(status.st_mode);
  if (is_file) {
    absl::StatusOr<MappedFile> file = MappedFile::Open("/dev/stdin");
    RETURN_IF_ERROR(file.status());
    input.spooled_.emplace(*std::move(file));
    return input;
  }
  const FileDescriptor to(OpenTemporaryFile());
  if (to.get() < 0) return NoRoomForAudio();
  RETURN_IF_ERROR(SpoolStdin(to.get(), stop));
  absl::StatusOr<MappedFile> file =
      MappedFile::Open(Concat("/proc/self/fd/", to.get()));
  RETURN_IF_ERROR(file.status());
  input.spooled_.emplace(*std::move(file));
  return input;
}

absl::StatusOr<std::unique_ptr<AudioReader>> AudioInput::Read() const {
  if (!spooled_) return AudioReader::Open(name_);
  const std::span<const std::byte> bytes = spooled_->bytes();
  return AudioReader::OpenBytes(
      {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name_);
}

}  // namespace espalier::cli
