// Formats bytes from a caller or a file, which may not be UTF-8, for error
// messages.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

// Returns ShownInQuotes(bytes) if they are UTF-8. Otherwise returns the first
// 60 bytes in double quotes, with C escapes for quotes, backslashes and bytes
// that are not printable ASCII. If there are more bytes, "..." replaces the
// closing quote.
std::string BytesInQuotes(std::string_view bytes);

}  // namespace espalier
