// TransformerConfig: the shape of a transformer and its generation defaults,
// read from a model directory's config.json and generation_config.json under
// the names transformers gives them.
//
// What changes the computation and is not supported (biases, other
// activations, quantised weights, other rotary scalings) is refused by name:
// a model that loads is computed exactly.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "model/rope.h"

namespace espalier {

struct TransformerConfig {
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_heads = 0;     // a multiple of num_kv_heads
  int num_kv_heads = 0;  // default: num_heads
  int head_dim = 0;      // even; default: hidden_size / num_heads
  int max_context = 0;   // max_position_embeddings
  double rms_norm_eps = 1e-6;
  RopeParameters rope;
  bool tie_word_embeddings = false;

  // generation_config.json's where it has them, else config.json's.
  std::vector<TokenId> eos_token_ids;
  int default_max_new_tokens = 256;

  int q_size() const { return num_heads * head_dim; }
  int kv_size() const { return num_kv_heads * head_dim; }
};

// Reads `directory`/config.json and, if there is one, generation_config.json.
// Sizes are checked against limits far above any model's, so that products of
// two of them fit 64 bits; what they make a reader allocate is bounded by the
// weights, whose shapes must agree.
// Errors: kNotFound if there is no config.json, kInvalidArgument naming file,
// field and value.
absl::StatusOr<TransformerConfig> ReadTransformerConfig(
    const std::string& directory);

}  // namespace espalier
