// Base64, as of RFC 4648 section 4.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace espalier {

std::string ToBase64(std::string_view bytes);

// The bytes that `text` encodes; nullopt if it is not well-formed.
std::optional<std::string> FromBase64(std::string_view text);

}  // namespace espalier
