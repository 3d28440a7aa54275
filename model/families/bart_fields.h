// What BART, Marian and PEGASUS have in common: an encoder and a decoder of one
// width, LayerNorm, biases everywhere, a feed-forward part without a gate, one
// embedding for both and for the head.
#pragma once

#include "absl/status/status.h"
#include "base/json.h"
#include "model/transformer_config.h"

namespace espalier {

// Missing fields stand for what BartConfig has for them, which MarianConfig and
// PegasusConfig have too. Norms are before each part.
absl::Status ReadBartFields(const json::object& json,
                            TransformerConfig* config);

// Norms after each part, of BART and Marian. Fields of the scripts that models
// were converted by, of which transformers takes no notice, are refused where
// they say otherwise: they are of another model.
absl::Status ReadNormsOfSums(const json::object& json,
                             TransformerConfig* config);

}  // namespace espalier
