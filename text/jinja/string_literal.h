// What a string literal of a template says, as Python reads its escapes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace espalier::jinja {

// `literal` stands between quotes. An escape that Python does not know stays as
// it is. Nothing for one that is cut off, that is no code point, or a half of a
// surrogate pair, which UTF-8 has not.
std::optional<std::string> ReadStringLiteral(std::string_view literal);

}  // namespace espalier::jinja
