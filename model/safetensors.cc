#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

constexpr size_t kLengthBytes = 8;
// Over 100,000 tensors. The safetensors library allows 100 MB, but a header is
// parsed whole, into several times its size.
constexpr uint64_t kMaxHeaderBytes = 16 << 20;

std::optional<int64_t> DTypeBytes(std::string_view dtype) {
  static constexpr std::pair<std::string_view, int> kBytes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};
  for (const auto& [name, bytes] : kBytes) {
    if (name == dtype) return bytes;
  }
  return std::nullopt;
}

// The value of `key`, a list of numbers >= 0.
absl::StatusOr<std::vector<int64_t>> ReadList(const json::object& entry,
                                              std::string_view key) {
  const json::value* value = entry.if_contains(key);
  if (value == nullptr || !value->is_array()) {
    return InvalidArgument(key, " must be a list of integers, got ",
                           Shown(value));
  }
  std::vector<int64_t> list;
  for (const json::value& item : value->get_array()) {
    // Boost.JSON reads whole numbers as int64 where they fit.
    if (!item.is_int64() || item.get_int64() < 0) {
      return InvalidArgument(key, " must hold integers in [0, 2^63), got ",
                             Shown(&item));
    }
    list.push_back(item.get_int64());
  }
  return list;
}

// A tensor from its entry in the header; `data` is all tensors' data.
absl::StatusOr<StoredTensor> ReadEntry(const json::value& value,
                                       std::span<const std::byte> data) {
  const json::object* entry = value.if_object();
  if (entry == nullptr) {
    return InvalidArgument("entry must be an object, got ", Shown(&value));
  }
  const json::value* dtype = entry->if_contains("dtype");
  if (dtype == nullptr || !dtype->is_string()) {
    return InvalidArgument("dtype must be a string, got ", Shown(dtype));
  }
  StoredTensor tensor;
  tensor.dtype = std::string(dtype->get_string());
  ASSIGN_OR_RETURN(tensor.shape, ReadList(*entry, "shape"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> offsets,
                   ReadList(*entry, "data_offsets"));
  if (offsets.size() != 2) {
    return InvalidArgument("data_offsets must be 2 integers, got ",
                           Shown(entry->if_contains("data_offsets")));
  }
  const int64_t begin = offsets[0], end = offsets[1];
  if (begin > end) {
    return InvalidArgument("data_offsets [", begin, ", ", end, "] must ascend");
  }
  if (static_cast<uint64_t>(end) > data.size()) {
    return InvalidArgument("the file breaks off: data_offsets [", begin, ", ",
                           end, "] are not within ", data.size(),
                           " bytes of data");
  }
  ASSIGN_OR_RETURN(const int64_t needed, NumNeededBytes(tensor));
  if (needed != end - begin) {
    return InvalidArgument("data_offsets [", begin, ", ", end, "] hold ",
                           end - begin, " bytes, shape and dtype need ",
                           needed);
  }
  tensor.data = data.subspan(begin, end - begin);
  return tensor;
}

// Checks that the tensors are the whole of `data`, each byte once.
absl::Status CheckCoverage(const std::map<std::string, StoredTensor>& tensors,
                           std::span<const std::byte> data) {
  using Named = std::pair<const std::byte*, const std::string*>;
  std::vector<std::pair<Named, const std::byte*>> runs;
  for (const auto& [name, tensor] : tensors) {
    const std::byte* begin = tensor.data.data();
    // Empty tensors cover no bytes, so their offsets do not matter.
    if (!tensor.data.empty()) {
      runs.push_back({{begin, &name}, begin + tensor.data.size()});
    }
  }
  std::sort(runs.begin(), runs.end());
  const std::byte* covered = data.data();
  for (const auto& [named, end] : runs) {
    const auto& [begin, name] = named;
    if (begin != covered) {
      return InvalidArgument("tensor ", Shown(*name), ": data begins at ",
                             begin - data.data(), ", the one before ends at ",
                             covered - data.data());
    }
    covered = end;
  }
  const size_t num_covered = covered - data.data();
  if (num_covered != data.size()) {
    return InvalidArgument("tensors end at ", num_covered, ", the data at ",
                           data.size());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> NumNeededBytes(const StoredTensor& tensor) {
  const std::optional<int64_t> dtype_bytes = DTypeBytes(tensor.dtype);
  if (!dtype_bytes)
    return InvalidArgument("unknown dtype ", Shown(tensor.dtype));
  int64_t bytes = *dtype_bytes;
  for (const int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      return InvalidArgument("shape overflows at dimension of ", size);
    }
  }
  return bytes;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  SafetensorsFile file(path, std::move(mapped));
  try {
    if (const absl::Status status = file.ReadHeader(); !status.ok()) {
      return Annotate(status, path);
    }
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(path, ": not enough memory for the header");
  }
  return file;
}

namespace {

// Checks that __metadata__ maps names to strings, as the safetensors library
// does. The values are not used.
absl::Status CheckMetadata(const json::value& metadata) {
  if (metadata.is_null()) return absl::OkStatus();
  if (!metadata.is_object()) {
    return InvalidArgument("__metadata__ must be an object, got ",
                           Shown(&metadata));
  }
  for (const auto& [key, value] : metadata.get_object()) {
    if (value.is_string()) continue;
    return InvalidArgument("__metadata__ must have strings, got ",
                           Shown(&value), " for ", ShownInQuotes(key));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SafetensorsFile::ReadHeader() {
  const std::span<const std::byte> bytes = file_.bytes();
  uint64_t length = 0;
  if (bytes.size() < kLengthBytes) {
    return InvalidArgument("file of ", bytes.size(), " bytes has no header");
  }
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    return InvalidArgument("header length ", length, " must be at most ",
                           kMaxHeaderBytes);
  }
  if (length > bytes.size() - kLengthBytes) {
    return InvalidArgument("the file breaks off: its header has ", length,
                           " bytes, and ", bytes.size() - kLengthBytes,
                           " follow its length");
  }
  const std::string_view text(
      reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  auto header = ParseJson(text);
  if (!header.ok()) return Annotate(header.status(), "header");
  if (!header->is_object()) {
    return InvalidArgument("header must be an object, got ", Shown(&*header));
  }
  const auto data = bytes.subspan(kLengthBytes + length);
  for (const auto& [key, value] : header->get_object()) {
    if (key == "__metadata__") {
      RETURN_IF_ERROR(CheckMetadata(value));
      continue;
    }
    const std::string name(key);
    auto tensor = ReadEntry(value, data);
    if (!tensor.ok()) {
      return Annotate(tensor.status(), Concat("tensor ", Shown(name)));
    }
    tensors_.emplace(name, *std::move(tensor));
  }
  return CheckCoverage(tensors_, data);
}

absl::StatusOr<const StoredTensor*> SafetensorsFile::Find(
    const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return InvalidArgument(path_, ": tensor ", Shown(name), " is missing");
  }
  return &found->second;
}

}  // namespace espalier
