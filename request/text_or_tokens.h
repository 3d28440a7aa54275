// TextOrTokens: a prompt or a continuation as callers give it.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"

namespace espalier {

// A text, or tokens that are used exactly as given.
using TextOrTokens = std::variant<std::string, std::vector<TokenId>>;

}  // namespace espalier
