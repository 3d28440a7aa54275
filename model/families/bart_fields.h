// Config fields that BART, Marian and PEGASUS share: an encoder and a decoder
// of one width, LayerNorm, biases everywhere, a feed-forward part without a
// gate, one embedding for both and for the head.
#pragma once

#include "absl/status/status.h"
#include "base/json.h"
#include "model/transformer_config.h"

namespace espalier {

// Missing fields have the defaults of BartConfig, which are also those of
// MarianConfig and PegasusConfig. The result is pre-norm.
absl::Status ReadBartFields(const json::object& json,
                            TransformerConfig* config);

// Sets norms_sums (post-norm), as BART and Marian are. Conversion scripts left
// norm fields in config.json that transformers ignores; values that contradict
// post-norm belong to another model and are refused.
absl::Status ReadNormsOfSums(const json::object& json,
                             TransformerConfig* config);

}  // namespace espalier
