#include "request/read_numpy_items.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/shown_bytes.h"
#include "base/status.h"
#include "request/item_checks.h"

namespace espalier {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

static_assert(std::endian::native == std::endian::little);

template <typename T>
T ReadAs(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

void SkipSpaces(std::string_view* text) {
  text->remove_prefix(std::min(text->find_first_not_of(' '), text->size()));
}

bool Consume(std::string_view* text, std::string_view prefix) {
  SkipSpaces(text);
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// Returns the value of a key of the header, a literal of a Python dict such as
// {'descr': '<i4', 'fortran_order': False, 'shape': (3, 4), }: what is between
// `open` and `close`. Empty without it.
std::string_view ValueOf(std::string_view header, std::string_view key,
                         std::string_view open, std::string_view close) {
  const size_t at = header.find(key);
  if (at == header.npos) return {};
  std::string_view rest = header.substr(at + key.size());
  if (!Consume(&rest, ":") || !Consume(&rest, open)) return {};
  const size_t end = rest.find(close);
  return end == rest.npos ? std::string_view() : rest.substr(0, end);
}

std::optional<int64_t> ConsumeSize(std::string_view* text) {
  SkipSpaces(text);
  int64_t size = 0;
  const char* const end = text->data() + text->size();
  const auto [next, error] = std::from_chars(text->data(), end, size);
  if (error != std::errc() || size < 0) return std::nullopt;
  text->remove_prefix(next - text->data());
  return size;
}

struct Shape {
  int64_t num_rows = 0;
  int64_t num_columns = 0;
};

std::optional<Shape> ShapeOf(std::string_view text) {
  const std::optional<int64_t> num_rows = ConsumeSize(&text);
  if (!num_rows || !Consume(&text, ",")) return std::nullopt;
  const std::optional<int64_t> num_columns = ConsumeSize(&text);
  SkipSpaces(&text);
  if (!num_columns || !text.empty()) return std::nullopt;
  return Shape{*num_rows, *num_columns};
}

// Appends the tokens of a row, from 0 up to its end.
// Errors: kInvalidArgument with the first number that is none.
template <typename T>
absl::Status AppendRow(const char* row, int64_t num_columns, int vocab_size,
                       std::vector<TokenId>* tokens) {
  bool has_ended = false;
  for (int64_t c = 0; c < num_columns; ++c) {
    const T number = ReadAs<T>(row + c * sizeof(T));
    if (std::is_signed_v<T> && number == static_cast<T>(-1)) {
      has_ended = true;
      continue;
    }
    if (has_ended) {
      return InvalidArgument("must have nothing but -1 after a -1, got ",
                             number);
    }
    if (std::cmp_less(number, 0) ||
        std::cmp_greater_equal(number, vocab_size)) {
      return InvalidArgument("must have token ids from 0 to ", vocab_size - 1,
                             std::is_signed_v<T> ? ", and then -1" : "",
                             ", got ", number);
    }
    tokens->push_back(static_cast<TokenId>(number));
  }
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<TokenLists> ReadRows(std::string_view data, Shape shape,
                                    int vocab_size,
                                    std::span<const TokenId> end_ids) {
  TokenLists items;
  items.ends.reserve(shape.num_rows);
  items.tokens.reserve(data.size() / sizeof(T));
  for (int64_t r = 0; r < shape.num_rows; ++r) {
    const size_t begin = items.tokens.size();
    const absl::Status read = AppendRow<T>(
        data.data() + static_cast<size_t>(r * shape.num_columns) * sizeof(T),
        shape.num_columns, vocab_size, &items.tokens);
    if (!read.ok()) return InvalidArgument("row ", r, " ", Message(read));
    const absl::Status status =
        CheckItem(std::span(items.tokens).subspan(begin),
                  std::ssize(items.tokens), end_ids);
    if (!status.ok()) return InvalidArgument("row ", r, ": ", Message(status));
    items.EndList();
  }
  return items;
}

}  // namespace

bool IsNumpyFile(std::string_view bytes) { return bytes.starts_with(kMagic); }

absl::StatusOr<TokenLists> ReadNumpyItems(std::string_view bytes,
                                          int vocab_size,
                                          std::span<const TokenId> end_ids) {
  // Magic, version, size of the header; from version 2 on that has 4 bytes.
  const int version = bytes.size() > 6 ? bytes[6] : 1;
  if (version < 1 || version > 3) {
    return InvalidArgument(
        "the version of the NumPy file must be 1, 2 or 3, got ", version);
  }
  const size_t size_bytes = version == 1 ? 2 : 4;
  const size_t begin = kMagic.size() + 2 + size_bytes;
  size_t header_size = 0;
  if (bytes.size() >= begin) {
    const char* const size = bytes.data() + kMagic.size() + 2;
    header_size =
        size_bytes == 2 ? ReadAs<uint16_t>(size) : ReadAs<uint32_t>(size);
  }
  if (bytes.size() < begin || bytes.size() - begin < header_size) {
    return InvalidArgument("the header of the NumPy file is cut off, got ",
                           bytes.size(), " bytes");
  }
  const std::string_view header = bytes.substr(begin, header_size);
  const std::string_view data = bytes.substr(begin + header_size);
  const std::string_view type = ValueOf(header, "'descr'", "'", "'");
  const std::string_view shape_text = ValueOf(header, "'shape'", "(", ")");
  const std::optional<Shape> shape = ShapeOf(shape_text);
  if (!shape) {
    return InvalidArgument(
        "`shape` of the NumPy file must be that of two dimensions, items and "
        "tokens, got ",
        BytesInQuotes(shape_text));
  }
  if (ValueOf(header, "'fortran_order'", "", ",") != "False") {
    return InvalidArgument(
        "`fortran_order` of the NumPy file must be False: save "
        "numpy.ascontiguousarray(items)");
  }
  const auto read = [&]<typename T>(T) -> absl::StatusOr<TokenLists> {
    // Without overflow.
    const int64_t num_numbers = std::ssize(data) / int64_t{sizeof(T)};
    const bool fits =
        shape->num_columns == 0
            ? data.empty()
            : shape->num_rows == num_numbers / shape->num_columns &&
                  num_numbers % shape->num_columns == 0 &&
                  data.size() % sizeof(T) == 0;
    if (!fits) {
      return InvalidArgument("the NumPy file must have ", sizeof(T), " bytes ",
                             "for each number of `shape`, (", shape->num_rows,
                             ", ", shape->num_columns, "), got ", data.size(),
                             " bytes");
    }
    if (shape->num_columns == 0 && shape->num_rows > 0) {
      return InvalidArgument("an item must have a token, got `shape` (",
                             shape->num_rows, ", 0)");
    }
    return ReadRows<T>(data, *shape, vocab_size, end_ids);
  };
  if (type == "<i2") return read(int16_t());
  if (type == "<u2") return read(uint16_t());
  if (type == "<i4") return read(int32_t());
  if (type == "<u4") return read(uint32_t());
  if (type == "<i8") return read(int64_t());
  if (type == "<u8") return read(uint64_t());
  return InvalidArgument(
      "`descr` of the NumPy file must be a type of 16 to 64 bits, \"<i2\", "
      "\"<u2\", \"<i4\", \"<u4\", \"<i8\" or \"<u8\", got ",
      BytesInQuotes(type), ": save items.astype(\"<i4\")");
}

}  // namespace espalier
