// What BART and Marian have in common: an encoder and a decoder of one width,
// LayerNorm after each part, biases everywhere, a feed-forward part without a
// gate, one embedding for both and for the head.
#pragma once

#include "absl/status/status.h"
#include "base/json.h"
#include "model/transformer_config.h"

namespace espalier {

// Missing fields stand for what BartConfig has for them, which MarianConfig has
// too.
absl::Status ReadBartFields(const json::object& json,
                            TransformerConfig* config);

}  // namespace espalier
