// The byte order mark, U+FEFF in UTF-8, that editors and shells on Windows put
// before a text. JSON must not begin with one, but parsers may ignore it (RFC
// 8259, section 8.1). All user input is read this way: files of requests,
// texts, keys and defaults, and HTTP bodies.
#pragma once

#include <string_view>

namespace espalier {

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Returns `text` without a leading byte order mark.
inline std::string_view WithoutByteOrderMark(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  return text;
}

}  // namespace espalier
