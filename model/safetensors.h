// SafetensorsFile: the tensors of one file in the safetensors format, by name.
// The file is mapped, so opening costs the header only, and a tensor's bytes
// are read when they are used.
//
//   [ 8 bytes: length n, little-endian | n bytes: JSON | tensor data ... ]
//   {"name": {"dtype": "BF16", "shape": [6000, 256],
//             "data_offsets": [0, 3072000]}, "__metadata__": {...}}
//
// A file is checked completely when it is opened, as strictly as the
// safetensors library does: every tensor's bytes are what its shape and dtype
// need, and together they are the whole data, without overlaps and holes.
// Files are untrusted input.
//
// Thread safety: immutable after Open.
// Source: https://github.com/huggingface/safetensors, "Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file.h"

namespace espalier {

// One tensor. `data` lives as long as its file.
struct StoredTensor {
  std::string dtype;           // as in the file: "F32", "BF16", ...
  std::vector<int64_t> shape;  // row-major; empty for a single number
  std::span<const std::byte> data;
};

// Returns the bytes that the tensor's shape and dtype need.
// Errors: kInvalidArgument naming the dtype, or the size that overflows.
absl::StatusOr<int64_t> NumNeededBytes(const StoredTensor& tensor);

class SafetensorsFile {
 public:
  // Errors, all naming the file:
  //   kNotFound            it does not exist
  //   kFailedPrecondition  it may not be opened, for example by its permissions
  //   kInvalidArgument     it is not a regular file, its header is longer than
  //                        16 MiB, or something in it is wrong: names the
  //                        tensor and the value, of which 60 bytes are shown
  //   kInternal            mmap fails
  //   kResourceExhausted   memory runs out
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  // Errors: kInvalidArgument naming file and tensor, if it is missing.
  absl::StatusOr<const StoredTensor*> Find(const std::string& name) const;

  const std::string& path() const { return path_; }
  const std::map<std::string, StoredTensor>& tensors() const {
    return tensors_;
  }

 private:
  SafetensorsFile(std::string path, MappedFile file)
      : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status ReadHeader();

  std::string path_;
  MappedFile file_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace espalier
