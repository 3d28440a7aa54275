// Methods of strings, with the semantics of Python's str.
#pragma once

#include <span>

#include "text/jinja/methods.h"

namespace espalier::jinja {

// REQUIRES: the methods are called on strings.
std::span<const NamedMethod> TextMethods();

}  // namespace espalier::jinja
