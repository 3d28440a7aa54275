#include "model/ctranslate2/ctranslate2_vocabulary.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

constexpr size_t kMaxBytes = size_t{64} << 20;

absl::StatusOr<std::vector<std::string>> ReadJsonList(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxBytes));
  const absl::StatusOr<json::value> list = ParseJson(text);
  if (!list.ok()) return Annotate(list.status(), path);
  if (!list->is_array()) {
    return InvalidArgument(path, ": must be a list of strings, got ",
                           Shown(&*list));
  }
  std::vector<std::string> tokens;
  for (const json::value& token : list->get_array()) {
    if (!token.is_string()) {
      return InvalidArgument(path, ": token ", tokens.size(),
                             " must be a string, got ", Shown(&token));
    }
    tokens.emplace_back(token.get_string());
  }
  return tokens;
}

absl::StatusOr<std::vector<std::string>> ReadLines(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxBytes));
  std::vector<std::string> tokens;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    tokens.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return tokens;
}

bool IsThere(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace

absl::StatusOr<TokenId> CTranslate2Vocabulary::IdOf(
    std::string_view token) const {
  const auto found = std::ranges::find(tokens, token);
  if (found != tokens.end()) {
    return static_cast<TokenId>(found - tokens.begin());
  }
  return InvalidArgument("token ", ShownInQuotes(token), " is not in ", path);
}

absl::StatusOr<CTranslate2Vocabulary> ReadCTranslate2Vocabulary(
    const std::string& directory, std::string_view name) {
  CTranslate2Vocabulary vocabulary = {Concat(directory, "/", name, ".json"),
                                      {}};
  if (IsThere(vocabulary.path)) {
    ASSIGN_OR_RETURN(vocabulary.tokens, ReadJsonList(vocabulary.path));
    return vocabulary;
  }
  vocabulary.path = Concat(directory, "/", name, ".txt");
  if (IsThere(vocabulary.path)) {
    ASSIGN_OR_RETURN(vocabulary.tokens, ReadLines(vocabulary.path));
    return vocabulary;
  }
  for (const char* const source :
       {"/source_vocabulary.json", "/source_vocabulary.txt"}) {
    if (!IsThere(directory + source)) continue;
    return InvalidArgument(directory + source,
                           ": a vocabulary of the source other than that of "
                           "the target is not supported");
  }
  return NotFound(directory, " has a CTranslate2 model.bin and neither ", name,
                  ".json nor ", name, ".txt");
}

}  // namespace espalier
