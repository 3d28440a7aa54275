// Reads files: whole into a string with a size limit, or mapped read-only
// (weights). Both reject git-lfs pointers, the small texts that a clone without
// git-lfs has in place of large files.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier {

// Checks that the content `bytes` of the file at `path` is not a git-lfs
// pointer. ReadFile and MappedFile::Open call this.
// Errors: kInvalidArgument naming the file and the remedy.
absl::Status CheckIsNoLfsPointer(std::string_view bytes,
                                 const std::string& path);

// Returns the content of the file at `path`.
// Errors, naming the file: kNotFound if it does not exist, kFailedPrecondition
// with the system's reason if it cannot be opened (no permission, part of the
// path is no directory, too many open files), kInvalidArgument if it is larger
// than `max_bytes`, not a regular file or a git-lfs pointer, kInternal if
// reading fails.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

// Returns all bytes of `path`, a file or a pipe; blocks until the end of a
// pipe.
// Errors: as ReadFile, but kFailedPrecondition if reading fails, as for a
// directory.
absl::StatusOr<std::string> ReadToEnd(const std::string& path,
                                      size_t max_bytes);

// A file mapped read-only into memory during the lifetime of this. The file
// must not be truncated while it is mapped.
class MappedFile {
 public:
  // Errors: as ReadFile, without a size limit; kInternal if mapping fails.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

  // Releases the memory of bytes that will not be read again soon. The system
  // reads the file again on the next access.
  // REQUIRES: `bytes` are in a mapped file.
  static void DropPages(std::span<const std::byte> bytes);

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace espalier
