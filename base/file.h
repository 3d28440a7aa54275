// Files, read in one of two ways: whole into a string with a size limit, or
// mapped into memory read-only (weights). Both refuse a git-lfs pointer: a
// clone without git-lfs has these small texts in the place of large files.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace espalier {

// Refuses `bytes`, those of the file at `path`, if they are a git-lfs pointer.
// ReadFile and MappedFile::Open do so by themselves.
// Errors: kInvalidArgument naming the file and the remedy.
absl::Status CheckIsNoLfsPointer(std::string_view bytes,
                                 const std::string& path);

// The bytes of the file at `path`.
// Errors, naming the file: kNotFound if there is none, kFailedPrecondition with
// the system's reason if it cannot be opened (no permission, part of the path
// is no directory, too many open files), kInvalidArgument if it is larger than
// `max_bytes`, not a regular file or a git-lfs pointer, kInternal if reading
// fails.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

// The bytes that `path` gives until its end: a file or, which may take a while,
// a pipe.
// Errors: as ReadFile, but kFailedPrecondition if reading fails: of a
// directory.
absl::StatusOr<std::string> ReadToEnd(const std::string& path,
                                      size_t max_bytes);

// A file mapped read-only into memory; unmapped when this dies. The file must
// not be cut short while it is mapped.
class MappedFile {
 public:
  // Errors: as ReadFile, without a limit to the size; kInternal if mapping
  // fails.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

  // Gives back the memory of bytes that have been read and are not read again
  // soon; when they are, the system reads the file anew.
  // REQUIRES: `bytes` are of a mapped file.
  static void DropPages(std::span<const std::byte> bytes);

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace espalier
