#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/status.h"

namespace espalier {
namespace {

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct OpenFile {
  Descriptor fd;
  size_t num_bytes;
};

absl::StatusOr<Descriptor> Open(const std::string& path, int more_flags) {
  Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | more_flags));
  if (fd.get() < 0) {
    return errno == ENOENT
               ? NotFound("no such file: ", path)
               : FailedPrecondition(path, ": ", std::strerror(errno));
  }
  return fd;
}

absl::StatusOr<OpenFile> OpenRegular(const std::string& path) {
  ASSIGN_OR_RETURN(Descriptor fd, Open(path, O_NONBLOCK));
  struct stat info;
  if (fstat(fd.get(), &info) != 0) {
    return Internal(path, ": ", std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(path, " is not a regular file");
  }
  return OpenFile{std::move(fd), static_cast<size_t>(info.st_size)};
}

}  // namespace

absl::Status CheckIsNoLfsPointer(std::string_view bytes,
                                 const std::string& path) {
  // The specification has pointers of less than 1,024 bytes.
  constexpr std::string_view kBeginning = "version https://git-lfs.";
  if (bytes.size() >= 1024 || !bytes.starts_with(kBeginning)) {
    return absl::OkStatus();
  }
  return InvalidArgument(path,
                         " is a git-lfs pointer, not the file itself: run "
                         "git lfs pull where it was cloned");
}

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     size_t max_bytes) {
  ASSIGN_OR_RETURN(OpenFile file, OpenRegular(path));
  if (file.num_bytes > max_bytes) {
    return InvalidArgument(path, " has ", file.num_bytes, " bytes, at most ",
                           max_bytes, " are read");
  }
  std::string text(file.num_bytes, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n =
        read(file.fd.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return Internal(path, ": read failed after ", done, " bytes");
    }
    done += n;
  }
  RETURN_IF_ERROR(CheckIsNoLfsPointer(text, path));
  return text;
}

absl::StatusOr<std::string> ReadToEnd(const std::string& path,
                                      size_t max_bytes) {
  ASSIGN_OR_RETURN(const Descriptor fd, Open(path, 0));
  std::string text;
  while (true) {
    char bytes[4096];
    const ssize_t n = read(fd.get(), bytes, sizeof(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailedPrecondition(path, ": ", std::strerror(errno));
    if (n == 0) return text;
    if (text.size() + n > max_bytes) {
      return InvalidArgument(path, " has more than ", max_bytes, " bytes");
    }
    text.append(bytes, n);
  }
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(OpenFile file, OpenRegular(path));
  if (file.num_bytes == 0) return MappedFile({});
  void* data =
      mmap(nullptr, file.num_bytes, PROT_READ, MAP_PRIVATE, file.fd.get(), 0);
  if (data == MAP_FAILED) {
    return Internal(path, ": mmap: ", std::strerror(errno));
  }
  MappedFile mapped({static_cast<const std::byte*>(data), file.num_bytes});
  RETURN_IF_ERROR(CheckIsNoLfsPointer(
      {static_cast<const char*>(data), file.num_bytes}, path));
  return mapped;
}

void MappedFile::DropPages(std::span<const std::byte> bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  // Pages that are only partly in `bytes` are kept.
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t end = (begin + bytes.size()) / page * page;
  if (first >= end) return;
  // If the call fails, the pages stay in memory, which is harmless.
  madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

}  // namespace espalier
