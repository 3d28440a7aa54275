#include "model/ctranslate2/ctranslate2_file.h"

#include <cstddef>
#include <cstring>
#include <iterator>
#include <new>
#include <span>

#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

constexpr uint32_t kVersion = 6;
// Whisper large has 1,300 variables. Each takes far more memory than the few
// bytes that a hostile file can give it.
constexpr uint32_t kMaxVariables = 1 << 17;

struct VariableType {
  std::string_view name;
  uint64_t bytes;
};
constexpr VariableType kTypes[] = {{"F32", 4}, {"I8", 1},  {"I16", 2},
                                   {"I32", 4}, {"F16", 2}, {"BF16", 2}};

// Reads from the beginning of some bytes to their end.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t num_left() const { return bytes_.size() - at_; }

  absl::StatusOr<std::span<const std::byte>> Take(uint64_t num_bytes) {
    if (num_bytes > num_left()) {
      return InvalidArgument("the file breaks off: ", num_bytes,
                             " bytes at offset ", at_, " are not within ",
                             bytes_.size());
    }
    const std::span<const std::byte> taken = bytes_.subspan(at_, num_bytes);
    at_ += num_bytes;
    return taken;
  }

  template <typename T>
  absl::StatusOr<T> TakeNumber() {
    ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, Take(sizeof(T)));
    T number;
    std::memcpy(&number, bytes.data(), sizeof(T));
    return number;
  }

  absl::StatusOr<std::string> TakeString() {
    const size_t begin = at_;
    ASSIGN_OR_RETURN(const uint16_t length, TakeNumber<uint16_t>());
    ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, Take(length));
    std::string text(reinterpret_cast<const char*>(bytes.data()), length);
    if (text.find('\0') + 1 != text.size() || text.size() < 2 ||
        !IsUtf8(text)) {
      return InvalidArgument("the string at offset ", begin,
                             " must be UTF-8 with a zero at its end alone");
    }
    text.pop_back();
    return text;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

absl::StatusOr<StoredTensor> TakeVariable(ByteReader& reader) {
  StoredTensor variable;
  ASSIGN_OR_RETURN(const uint8_t rank, reader.TakeNumber<uint8_t>());
  for (int i = 0; i < rank; ++i) {
    ASSIGN_OR_RETURN(const uint32_t size, reader.TakeNumber<uint32_t>());
    variable.shape.push_back(size);
  }
  ASSIGN_OR_RETURN(const uint8_t type, reader.TakeNumber<uint8_t>());
  if (type >= std::size(kTypes)) {
    return InvalidArgument("dtype must be less than ", std::size(kTypes),
                           ", got ", int{type});
  }
  variable.dtype = kTypes[type].name;
  uint64_t needed = kTypes[type].bytes;
  for (const int64_t size : variable.shape) {
    if (__builtin_mul_overflow(needed, static_cast<uint64_t>(size), &needed)) {
      return InvalidArgument("shape overflows at dimension of ", size);
    }
  }
  ASSIGN_OR_RETURN(const uint32_t num_bytes, reader.TakeNumber<uint32_t>());
  if (num_bytes != needed) {
    return InvalidArgument("has ", num_bytes, " bytes, shape and dtype need ",
                           needed);
  }
  ASSIGN_OR_RETURN(variable.data, reader.Take(num_bytes));
  return variable;
}

absl::StatusOr<uint32_t> TakeCount(ByteReader& reader, std::string_view what) {
  const absl::StatusOr<uint32_t> count = reader.TakeNumber<uint32_t>();
  if (!count.ok()) return Annotate(count.status(), Concat("number of ", what));
  if (*count <= kMaxVariables) return *count;
  return InvalidArgument("number of ", what, " must be at most ", kMaxVariables,
                         ", got ", *count);
}

}  // namespace

absl::StatusOr<CTranslate2File> CTranslate2File::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  CTranslate2File file(path, std::move(mapped));
  try {
    if (const absl::Status status = file.Read(); !status.ok()) {
      return Annotate(status, path);
    }
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(path, ": not enough memory for the names");
  }
  return file;
}

absl::Status CTranslate2File::Read() {
  ByteReader reader(file_.bytes());
  ASSIGN_OR_RETURN(const uint32_t version, reader.TakeNumber<uint32_t>());
  if (version != kVersion) {
    return InvalidArgument("is no CTranslate2 model of binary version ",
                           kVersion, ": it begins with ", version,
                           version < kVersion
                               ? "; a converter of CTranslate2 3 or later "
                                 "writes that version"
                               : "");
  }
  ASSIGN_OR_RETURN(specification_, reader.TakeString());
  ASSIGN_OR_RETURN(revision_, reader.TakeNumber<uint32_t>());
  ASSIGN_OR_RETURN(const uint32_t num_variables,
                   TakeCount(reader, "variables"));
  for (uint32_t i = 0; i < num_variables; ++i) {
    absl::StatusOr<std::string> name = reader.TakeString();
    if (!name.ok()) {
      return Annotate(name.status(), Concat("name of variable ", i));
    }
    absl::StatusOr<StoredTensor> variable = TakeVariable(reader);
    if (!variable.ok()) {
      return Annotate(variable.status(), Concat("variable ", Shown(*name)));
    }
    if (!variables_.emplace(*name, *std::move(variable)).second) {
      return InvalidArgument("variable ", Shown(*name), " is there twice");
    }
  }
  ASSIGN_OR_RETURN(const uint32_t num_aliases, TakeCount(reader, "aliases"));
  for (uint32_t i = 0; i < num_aliases; ++i) {
    absl::StatusOr<std::string> alias = reader.TakeString();
    if (!alias.ok()) return Annotate(alias.status(), Concat("alias ", i));
    absl::StatusOr<std::string> name = reader.TakeString();
    if (!name.ok()) {
      return Annotate(name.status(), Concat("alias ", Shown(*alias)));
    }
    // So that aliases have no cycles.
    if (!variables_.contains(*name)) {
      return InvalidArgument("alias ", Shown(*alias), " is of ", Shown(*name),
                             ", which is no variable");
    }
    if (variables_.contains(*alias) ||
        !aliases_.emplace(*alias, *std::move(name)).second) {
      return InvalidArgument("alias ", Shown(*alias), " is there twice");
    }
  }
  if (reader.num_left() == 0) return absl::OkStatus();
  return InvalidArgument("has ", reader.num_left(),
                         " bytes after the last alias");
}

const std::string& CTranslate2File::NameOf(const std::string& name) const {
  const auto alias = aliases_.find(name);
  return alias == aliases_.end() ? name : alias->second;
}

const StoredTensor* CTranslate2File::Find(const std::string& name) const {
  const auto found = variables_.find(NameOf(name));
  return found == variables_.end() ? nullptr : &found->second;
}

}  // namespace espalier
