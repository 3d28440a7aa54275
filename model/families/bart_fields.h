// Config fields that BART, Marian, PEGASUS, M2M100 and mBART share: an encoder
// and a decoder of one width, LayerNorm, biases everywhere, a feed-forward part
// without a gate, one embedding for both and for the head.
#pragma once

#include "absl/status/status.h"
#include "base/json.h"
#include "model/transformer_config.h"

namespace espalier {

// Defaults that differ among the families.
struct BartDefaults {
  Activation activation = Activation::kGelu;
  bool scales_embeddings = false;
  int hidden_size = 1024;
  int num_layers = 12;
  int num_heads = 16;
  int intermediate_size = 4096;
};

// Missing fields have the defaults of BartConfig, which but for `defaults` are
// also those of the others' classes. The result is pre-norm.
absl::Status ReadBartFields(const json::object& json,
                            const BartDefaults& defaults,
                            TransformerConfig* config);

// Sets norms_sums (post-norm), as BART and Marian are. Conversion scripts left
// norm fields in config.json that transformers ignores; values that contradict
// post-norm belong to another model and are refused.
absl::Status ReadNormsOfSums(const json::object& json,
                             TransformerConfig* config);

// Sets the names of final norms, which M2M100 and mBART have as they are
// pre-norm. As ReadNormsOfSums, refuses values that contradict it.
absl::Status ReadNormsBefore(const json::object& json,
                             TransformerConfig* config);

}  // namespace espalier
