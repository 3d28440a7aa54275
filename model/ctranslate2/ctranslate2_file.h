// CTranslate2File: the variables of a CTranslate2 model.bin, by name. The file
// is mapped, so opening reads names and shapes alone, and a variable's bytes
// are read when they are used.
//
//   u32 version, 6 | string specification | u32 revision |
//   u32 number of variables, of each
//     string name | u8 rank | u32 dimensions ... | u8 dtype | u32 bytes | bytes
//   u32 number of aliases, of each
//     string alias | string name of a variable
//
// Numbers are little-endian. A string is a u16 length, then as many bytes, the
// last of which is zero. A file is checked completely when it is opened: each
// variable's bytes are what its shape and dtype need, and the file ends after
// the last alias. Files are untrusted input.
//
// Thread safety: immutable after Open.
// Source: https://github.com/OpenNMT/CTranslate2, `ModelSpec._serialize`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "model/safetensors.h"

namespace espalier {

class CTranslate2File {
 public:
  // Errors, all naming the file: as MappedFile::Open; kInvalidArgument naming
  // the variable and the value, if something in the file is wrong;
  // kResourceExhausted if memory runs out.
  static absl::StatusOr<CTranslate2File> Open(const std::string& path);

  // "TransformerSpec" or "WhisperSpec", say.
  const std::string& specification() const { return specification_; }
  int64_t revision() const { return revision_; }

  // Returns a variable, also by an alias; null: there is none. Its dtype has
  // safetensors' name: "F32", "F16", "BF16", "I8", "I16" or "I32".
  const StoredTensor* Find(const std::string& name) const;

  // Returns the variable's own name if `name` is an alias, else `name`.
  const std::string& NameOf(const std::string& name) const;

  const std::string& path() const { return path_; }
  const std::map<std::string, StoredTensor>& variables() const {
    return variables_;
  }
  // The name of each alias's variable.
  const std::map<std::string, std::string>& aliases() const { return aliases_; }

 private:
  CTranslate2File(std::string path, MappedFile file)
      : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status Read();

  std::string path_;
  MappedFile file_;
  std::string specification_;
  int64_t revision_ = 0;
  std::map<std::string, StoredTensor> variables_;
  std::map<std::string, std::string> aliases_;
};

}  // namespace espalier
