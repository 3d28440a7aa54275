// Random JSON Schemas and values over few keys and constants, so that keywords
// often meet.
#pragma once

#include <random>

#include "base/json.h"

namespace espalier::testing {

// Returns a schema of draft 2020-12 with about `size` keywords.
json::value RandomSchema(int size, std::mt19937_64& random);

json::value RandomValue(int depth, std::mt19937_64& random);

}  // namespace espalier::testing
