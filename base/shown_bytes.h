// What error messages show of bytes from a caller or a file, which may be no
// UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

// `bytes` as ShownInQuotes shows them if they are UTF-8; and otherwise the
// first 60 of them, with C escapes in place of what ASCII has no letter for,
// and "..." in place of others.
std::string BytesInQuotes(std::string_view bytes);

}  // namespace espalier
