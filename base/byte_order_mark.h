// The byte order mark, U+FEFF in UTF-8, that editors and shells of Windows put
// before a text. JSON has none (RFC 8259, section 8.1), but whoever reads it
// may pass over one, as all that people write for us is read: files of requests
// and of texts, of keys and of defaults, and bodies of calls.
#pragma once

#include <string_view>

namespace espalier {

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// `text` after its mark, if it has one.
inline std::string_view WithoutByteOrderMark(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  return text;
}

}  // namespace espalier
