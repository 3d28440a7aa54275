#include "base/rename_word.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace espalier {
namespace {

bool IsOfWord(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
}

}  // namespace

size_t FirstPartLength(std::string_view message) {
  if (message[0] == '"') {
    size_t end = 1;
    while (end < message.size() && message[end] != '"') {
      end += message[end] == '\\' ? 2 : 1;
    }
    return std::min(end + 1, message.size());
  }
  const auto end = std::ranges::find_if_not(message, IsOfWord);
  return std::max<size_t>(1, end - message.begin());
}

std::string RenameWord(std::string_view message, std::string_view word,
                       std::string_view name) {
  std::string renamed;
  while (!message.empty()) {
    const std::string_view part = message.substr(0, FirstPartLength(message));
    renamed += part == word ? name : part;
    message.remove_prefix(part.size());
  }
  return renamed;
}

}  // namespace espalier
