// Formats bytes from a caller or a file, which may not be UTF-8, for error
// messages.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

// Returns ShownInQuotes(bytes) if they are UTF-8. Otherwise returns the first
// 60 bytes, with C escapes for bytes that are not printable ASCII, and "..." if
// there are more.
std::string BytesInQuotes(std::string_view bytes);

}  // namespace espalier
