// Files that must be whole after the process, or the machine, has ended at any
// moment: one is replaced at once or not at all, and one that grows loses at
// most what was appended last.
//
// Thread safety: functions without state; an AppendedFile has one user.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier {

// Gives the file at `path` this content: who reads it sees the old one or the
// new one, and after it returns the disk has the new one. Its mode is 0600.
// Errors: kUnavailable with the path and the system's reason.
absl::Status ReplaceFile(const std::string& path, std::string_view content);

// Renames a file within a folder, or into another of the same disk.
// Errors: as ReplaceFile.
absl::Status MoveFile(const std::string& from, const std::string& to);

// Removes a file if there is one. Errors: as ReplaceFile.
absl::Status RemoveFile(const std::string& path);

// A file that grows.
class AppendedFile {
 public:
  // What it has is kept up to `size` bytes, and the rest cut off; it is made if
  // there is none, and after this returns the disk has its name.
  // Errors: as ReplaceFile.
  static absl::StatusOr<AppendedFile> Open(const std::string& path,
                                           int64_t size);
  AppendedFile() = default;  // none is open
  AppendedFile(AppendedFile&& other) noexcept;
  AppendedFile& operator=(AppendedFile&& other) noexcept;
  ~AppendedFile();

  // After an error the file is as it was; if the disk does not even allow that,
  // every later call fails. Errors: as ReplaceFile.
  absl::Status Append(std::string_view bytes);
  // Returns when the disk has it all. Errors: as ReplaceFile.
  absl::Status Sync();

  // Bytes that were appended, and those that were kept.
  int64_t size() const { return size_; }

 private:
  friend absl::Status ReplaceFile(const std::string& path,
                                  std::string_view content);
  static absl::StatusOr<AppendedFile> OpenUnsynced(const std::string& path,
                                                   int64_t size);
  AppendedFile(int fd, std::string path, int64_t size);

  int fd_ = -1;
  std::string path_;
  int64_t size_ = 0;
};

}  // namespace espalier
