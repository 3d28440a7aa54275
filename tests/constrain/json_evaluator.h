// Satisfies: whether a JSON value satisfies a JSON Schema of draft 2020-12, by
// the definition of each keyword. It has the keywords of RandomSchema and
// shares nothing with the compiler.
#pragma once

#include "base/json.h"

namespace espalier::testing {

bool Satisfies(const json::value& value, const json::value& schema);

}  // namespace espalier::testing
