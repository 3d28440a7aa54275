// Names of fields in the messages of errors, told in the words of who gave
// them.
//
// Thread safety: a function without state.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"

namespace espalier {

// `text` with `name` in place of the word `word`, but for what stands in
// quotes, which is a value: "max_new_tokens must be 1" becomes "max_tokens must
// be 1".
inline std::string RenameWord(std::string_view text, std::string_view word,
                              std::string_view name) {
  const auto is_part = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  std::string renamed;
  while (!text.empty()) {
    size_t length = 1;
    if (text[0] == '"') {
      while (length < text.size() && text[length] != '"') {
        length += text[length] == '\\' ? 2 : 1;
      }
      ++length;
    } else if (is_part(text[0])) {
      while (length < text.size() && is_part(text[length])) ++length;
    }
    const std::string_view part = text.substr(0, length);
    renamed += part == word ? name : part;
    text.remove_prefix(part.size());
  }
  return renamed;
}

}  // namespace espalier
