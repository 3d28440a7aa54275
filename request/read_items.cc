#include "request/read_items.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <span>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/byte_order_mark.h"
#include "base/field_error.h"
#include "base/file.h"
#include "base/json_scan.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "base/wording.h"
#include "request/param_checks.h"
#include "request/read_json_text.h"
#include "request/read_numpy_items.h"

namespace espalier {
namespace {

// Appends the ids of a line that is nothing but a list of ids in the
// vocabulary, as nearly all are. Returns false, with a part of them, if it is
// another one.
bool AppendPlainIds(std::string_view line, int vocab_size,
                    std::vector<TokenId>* tokens) {
  const char* at = line.data();
  const char* const end = at + line.size();
  const auto skip_spaces = [&] {
    while (at < end && *at == ' ') ++at;
  };
  for (char before = '['; at < end && *at == before; before = ',') {
    ++at;
    skip_spaces();
    TokenId id = 0;
    const char* const first = at;
    const auto [next, error] = std::from_chars(at, end, id);
    const bool has_zero_first = next - first > 1 && *first == '0';
    if (error != std::errc() || has_zero_first || *first == '-' ||
        id >= vocab_size) {
      return false;
    }
    tokens->push_back(id);
    at = next;
    skip_spaces();
  }
  return at + 1 == end && *at == ']';
}

// Reads a line of any kind.
absl::Status AppendItem(std::string_view line, const Tokenizer* tokenizer,
                        int vocab_size, std::vector<TokenId>* tokens) {
  constexpr std::string_view kField = "item";
  ASSIGN_OR_RETURN(
      const JsonText json,
      ScanJson(line, 0, [](int, std::string_view, const JsonText&) {}));
  if (json.is_array()) {
    std::vector<int64_t> ids;
    RETURN_IF_ERROR(Read(kField, json, &ids));
    RETURN_IF_ERROR(CheckTokens(kField, ids, vocab_size));
    tokens->insert(tokens->end(), ids.begin(), ids.end());
    return absl::OkStatus();
  }
  if (!json.text.starts_with('"')) {
    return WrongType(kField, "a list of token ids or a text", json.text);
  }
  const std::string text = Unquoted(json.text);
  if (tokenizer == nullptr) {
    return InvalidArgument("a text needs a tokenizer, which the model lacks",
                           ", got ", ShownInQuotes(text));
  }
  ASSIGN_OR_RETURN(const std::vector<TokenId> of_text,
                   ItemOfText(*tokenizer, text));
  RETURN_IF_ERROR(CheckTokens("tokens", of_text, vocab_size));
  tokens->insert(tokens->end(), of_text.begin(), of_text.end());
  return absl::OkStatus();
}

// Reads a line into a list of its own, unless it is blank.
absl::Status ReadLine(std::string_view line, const Tokenizer* tokenizer,
                      int vocab_size, std::span<const TokenId> end_ids,
                      TokenLists* items) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.find_first_not_of(" \t") == line.npos) return absl::OkStatus();
  const size_t begin = items->tokens.size();
  if (!AppendPlainIds(line, vocab_size, &items->tokens)) {
    items->tokens.resize(begin);
    RETURN_IF_ERROR(AppendItem(line, tokenizer, vocab_size, &items->tokens));
  }
  if (items->tokens.size() == begin) {
    return InvalidArgument("an item must have a token, got ", Shown(line));
  }
  RETURN_IF_ERROR(CheckItem(std::span(items->tokens).subspan(begin),
                            std::ssize(items->tokens), end_ids));
  items->EndList();
  return absl::OkStatus();
}

absl::StatusOr<TokenLists> ReadLines(std::string_view lines,
                                     const Tokenizer* tokenizer, int vocab_size,
                                     std::span<const TokenId> end_ids) {
  lines = WithoutByteOrderMark(lines);
  TokenLists items;
  int64_t line_number = 0;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    ++line_number;
    const absl::Status status =
        ReadLine(line, tokenizer, vocab_size, end_ids, &items);
    if (!status.ok()) {
      return InvalidArgument("line ", line_number, ": ", Message(status));
    }
  }
  return items;
}

}  // namespace

absl::StatusOr<std::vector<TokenId>> ItemOfText(const Tokenizer& tokenizer,
                                                const std::string& text) {
  const auto is_too_long = [](auto... got) {
    return InvalidArgument("an item must have at most ", kMaxItemTokens,
                           " tokens, got ", got...);
  };
  // EncodeOutput takes any length.
  if (std::ssize(text) > kMaxItemTokens &&
      absl::IsOutOfRange(
          tokenizer.Encode(text, {.max_tokens = kMaxItemTokens}).status())) {
    return is_too_long("a text of ", text.size(), " bytes");
  }
  ASSIGN_OR_RETURN(std::vector<TokenId> tokens, tokenizer.EncodeOutput(text));
  if (std::ssize(tokens) > kMaxItemTokens) return is_too_long(tokens.size());
  return tokens;
}

absl::Status CheckCatalogueName(std::string_view name) {
  constexpr size_t kMaxBytes = 64;
  const bool is_name =
      !name.empty() && name.size() <= kMaxBytes &&
      std::ranges::all_of(name, [](char c) {
        return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
      });
  // A URL drops these parts of its path.
  if (name == "." || name == "..") {
    return InvalidArgument(
        "the name of a catalogue must not be \".\" or "
        "\"..\", got ",
        BytesInQuotes(name));
  }
  if (is_name) return absl::OkStatus();
  return InvalidArgument("the name of a catalogue must be 1 to ", kMaxBytes,
                         " letters, digits, \".\", \"_\" and \"-\", got ",
                         BytesInQuotes(name));
}

absl::StatusOr<std::vector<TokenId>> ReadItem(std::string_view line,
                                              const Tokenizer* tokenizer,
                                              int vocab_size) {
  std::vector<TokenId> tokens;
  RETURN_IF_ERROR(AppendItem(line, tokenizer, vocab_size, &tokens));
  return tokens;
}

absl::StatusOr<std::shared_ptr<const ItemCatalogue>> ReadItems(
    std::string_view bytes, const Tokenizer* tokenizer, int vocab_size,
    std::span<const TokenId> end_ids, const ItemTrieBuilder& build) {
  if (bytes.starts_with("PK\x03\x04")) {
    return InvalidArgument(
        "a catalogue must not be a zip archive, such as numpy.savez writes: "
        "save one array by numpy.save");
  }
  ASSIGN_OR_RETURN(const TokenLists items,
                   IsNumpyFile(bytes)
                       ? ReadNumpyItems(bytes, vocab_size, end_ids)
                       : ReadLines(bytes, tokenizer, vocab_size, end_ids));
  if (items.size() == 0) return InvalidArgument("there is no item");
  return std::make_shared<const ItemCatalogue>(build(items));
}

absl::StatusOr<std::shared_ptr<const ItemCatalogue>> LoadItems(
    const std::string& path, const Tokenizer* tokenizer, int vocab_size,
    std::span<const TokenId> end_ids, const ItemTrieBuilder& build) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  absl::StatusOr<std::shared_ptr<const ItemCatalogue>> items = ReadItems(
      {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()},
      tokenizer, vocab_size, end_ids, build);
  if (!items.ok()) return Annotate(items.status(), path);
  return items;
}

}  // namespace espalier
