// Parser of a template's string literals, with Python's escapes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace espalier::jinja {

// Unescapes `literal`, the text between the quotes. Unknown escapes are kept,
// as in Python. Nullopt for an escape that is cut off, is no code point, or is
// half of a surrogate pair, which UTF-8 cannot encode.
std::optional<std::string> ReadStringLiteral(std::string_view literal);

}  // namespace espalier::jinja
