#include "base/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/fault_injection.h"
#include "base/status.h"

namespace espalier {
namespace {

absl::Status SystemError(std::string_view what, const std::string& path) {
  return MakeError(absl::StatusCode::kUnavailable, "cannot ", what, " ", path,
                   ": ", std::strerror(errno));
}

// Each of these may be the last one before the process ends.
absl::Status CheckFault(std::string_view what, const std::string& path) {
  if (!FaultInjected(FaultPoint::kWriteFile)) return absl::OkStatus();
  errno = EIO;
  return SystemError(what, path);
}

absl::Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  const absl::Status fault = CheckFault("write", path);
  if (!fault.ok()) bytes = bytes.substr(0, bytes.size() / 2);
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError("write", path);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return fault;
}

absl::Status SyncDescriptor(int fd, const std::string& path) {
  RETURN_IF_ERROR(CheckFault("sync", path));
  if (fsync(fd) != 0) return SystemError("sync", path);
  return absl::OkStatus();
}

absl::Status CutFile(int fd, int64_t size, const std::string& path) {
  RETURN_IF_ERROR(CheckFault("cut", path));
  if (ftruncate(fd, size) != 0) return SystemError("cut", path);
  return absl::OkStatus();
}

// The folder's entries, so that a name is found again.
absl::Status SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder =
      slash == path.npos ? "." : path.substr(0, slash + 1);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError("open", folder);
  const absl::Status synced = SyncDescriptor(fd, folder);
  close(fd);
  return synced;
}

}  // namespace

absl::Status ReplaceFile(const std::string& path, std::string_view content) {
  const std::string next = path + std::string(kNextEnd);
  {
    // It is renamed, and the folder synced then.
    ASSIGN_OR_RETURN(AppendedFile file, AppendedFile::OpenUnsynced(next, 0));
    RETURN_IF_ERROR(file.Append(content));
    RETURN_IF_ERROR(file.Sync());
  }
  return MoveFile(next, path);
}

absl::Status MoveFile(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(CheckFault("rename", from));
  if (rename(from.c_str(), to.c_str()) != 0) return SystemError("rename", from);
  return SyncFolderOf(to);
}

absl::Status RemoveFile(const std::string& path) {
  RETURN_IF_ERROR(CheckFault("remove", path));
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return SystemError("remove", path);
  }
  return SyncFolderOf(path);
}

absl::StatusOr<AppendedFile> AppendedFile::Open(const std::string& path,
                                                int64_t size) {
  ASSIGN_OR_RETURN(AppendedFile file, OpenUnsynced(path, size));
  // An existing name may not be synced yet: its creator may have crashed.
  RETURN_IF_ERROR(SyncFolderOf(path));
  return file;
}

absl::StatusOr<AppendedFile> AppendedFile::OpenUnsynced(const std::string& path,
                                                        int64_t size) {
  RETURN_IF_ERROR(CheckFault("open", path));
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
           S_IRUSR | S_IWUSR);
  if (fd < 0) return SystemError("open", path);
  AppendedFile file(fd, path, size);
  RETURN_IF_ERROR(CutFile(fd, size, path));
  return file;
}

AppendedFile::AppendedFile(int fd, std::string path, int64_t size)
    : fd_(fd), path_(std::move(path)), size_(size) {}

AppendedFile::AppendedFile(AppendedFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      size_(other.size_) {}

AppendedFile& AppendedFile::operator=(AppendedFile&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) close(fd_);
  fd_ = std::exchange(other.fd_, -1);
  path_ = std::move(other.path_);
  size_ = other.size_;
  return *this;
}

AppendedFile::~AppendedFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status AppendedFile::Append(std::string_view bytes) {
  const absl::Status written = WriteAll(fd_, bytes, path_);
  if (written.ok()) {
    size_ += std::ssize(bytes);
  } else if (fd_ >= 0 && !CutFile(fd_, size_, path_).ok()) {
    // The next append would follow a part of these bytes.
    close(std::exchange(fd_, -1));
  }
  return written;
}

absl::Status AppendedFile::Sync() { return SyncDescriptor(fd_, path_); }

}  // namespace espalier
