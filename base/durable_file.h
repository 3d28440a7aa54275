// Files that survive a crash of the process or the machine. ReplaceFile is
// atomic. Append does not sync: a crash of the process loses at most the Append
// in progress, and a crash of the machine all Appends since the last Sync. A
// part of the lost bytes may remain at the end of the file.
//
// Thread safety: functions without state, for different files; an AppendedFile
// has one user.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier {

// Replaces the content of a file, mode 0600. Readers see either the old content
// or the new one. The new content is on the disk when this returns. After an
// error the file has either content. An error or a crash may leave a file with
// the suffix kNextEnd.
// Errors: kUnavailable with the path and the system's reason.
inline constexpr std::string_view kNextEnd = ".next";
absl::Status ReplaceFile(const std::string& path, std::string_view content);

// Renames a file within its file system, and replaces a file of the new name.
// The new name is on the disk when this returns. After an error the file has
// either name.
// Errors: as ReplaceFile.
absl::Status MoveFile(const std::string& from, const std::string& to);

// Removes a file if it exists.
// Errors: as ReplaceFile.
absl::Status RemoveFile(const std::string& path);

// A file that grows.
class AppendedFile {
 public:
  // Opens the file, creating it if it does not exist, and cuts it or extends it
  // with zeros to `size` bytes. Its name is on the disk when this returns.
  // Errors: as ReplaceFile.
  static absl::StatusOr<AppendedFile> Open(const std::string& path,
                                           int64_t size);
  AppendedFile() = default;  // no file is open
  AppendedFile(AppendedFile&& other) noexcept;
  AppendedFile& operator=(AppendedFile&& other) noexcept;
  ~AppendedFile();

  // Appends `bytes`. An error leaves the file unchanged; if the disk fails even
  // for that, every later call fails.
  // Errors: as ReplaceFile.
  absl::Status Append(std::string_view bytes);
  // Waits until all content is on the disk.
  // Errors: as ReplaceFile.
  absl::Status Sync();

  // Size of the file in bytes.
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
