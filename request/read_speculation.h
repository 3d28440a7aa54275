// The field `speculate` of the request format:
//
//   "off"                    off, also where the engine has a default
//   "ngram:8:coupled"        METHOD[:NUM_TOKENS[:MODE]], or METHOD::MODE
//   {"method": "ngram", "num_tokens": 8, "mode": "coupled"}
//
// where all but the method may be left out, or null, and nothing may stand
// beside "off". False is read as "off".
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "base/json_scan.h"
#include "request/speculation_params.h"

namespace espalier {

// Sets `*out`. Errors: kInvalidArgument naming the part, as in
// speculate.method, and the value. Ranges are checked later, by ValidateParams.
absl::Status ReadSpeculation(std::string_view field, const JsonText& json,
                             std::optional<SpeculationParams>* out);

}  // namespace espalier
