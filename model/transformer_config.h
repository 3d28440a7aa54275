// TransformerConfig: the sizes and features of a transformer, a decoder alone
// or with an encoder, and its generation defaults, read from a model
// directory's config.json and generation_config.json under the names
// transformers gives them.
//
// One forward pass computes what the features say, on each device; a family
// (model_family.h) is a reader of config.json and a table of tensor names. What
// a family's config.json may ask for and is not among the features is refused
// by name: a model that loads is computed exactly.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "model/rope.h"
#include "model/tensor_names.h"

namespace espalier {

enum class NormKind {
  kRms,    // x / sqrt(mean(x^2) + epsilon) * weight
  kLayer,  // (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias
};

enum class Activation {
  kSilu,
  kGeluTanh,  // gelu_new and gelu_pytorch_tanh
  kGelu,      // that of the error function
  kRelu,
};

// What tells a token where it is.
enum class PositionKind {
  kRotary,      // queries and keys are rotated
  kLearned,     // a table is added to the embeddings
  kSinusoidal,  // so is one of sines and cosines (model/positions.h)
  kDistances,   // scores have biases by the distance of query and key
};

// The kind of a layer.
struct LayerConfig {
  // Positions that a token attends to, its own among them; 0: all before it.
  int window = 0;
  bool has_cross_attention = false;  // to the encoder's output
  int intermediate_size = 0;         // of the feed-forward part

  friend bool operator==(const LayerConfig&, const LayerConfig&) = default;
};

// The encoder of an encoder-decoder. It has the decoder's features and heads,
// and each of its tokens attends to all of them.
struct EncoderConfig {
  TensorNames names;
  std::vector<LayerConfig> layers;
  int max_tokens = 0;
  TokenId decoder_start_token_id = 0;
};

struct TransformerConfig {
  std::string_view family = "Llama";  // for people
  // A translator that is trained on single sentences shortens texts of several.
  bool translates_sentences = false;
  TensorNames names;

  int vocab_size = 0;
  int hidden_size = 0;
  // The size of embeddings that are projected to hidden_size, and back before
  // the head; 0: they have that size.
  int word_embed_proj_dim = 0;
  std::vector<LayerConfig> layers;
  int num_heads = 0;     // a multiple of num_kv_heads
  int num_kv_heads = 0;  // default: num_heads
  int head_dim = 0;      // even, if rotated; default: hidden_size / num_heads
  // max_position_embeddings, or less (rope.h).
  int max_context = 0;

  NormKind norm = NormKind::kRms;
  double norm_eps = 1e-6;
  bool norm_adds_one = false;   // norms multiply by 1 + weight
  bool has_post_norms = false;  // a norm of what is added, after each part
  // x = norm(x + part(x)), else x + part(norm(x)). Then there is no final norm.
  bool norms_sums = false;
  bool has_embedding_norm = false;  // before the first layer
  bool has_qk_norms = false;  // queries and keys have a norm, head by head
  bool has_qkv_bias = false;
  bool has_output_bias = false;  // of the attention's output
  bool has_mlp_bias = false;     // of all of the feed-forward part

  Activation activation = Activation::kSilu;
  bool has_gate = true;  // activation(gate) * up, else activation(up)

  PositionKind positions = PositionKind::kRotary;
  RopeParameters rope;
  std::optional<RopeParameters> local_rope =
      std::nullopt;         // of layers with a window
  int position_offset = 0;  // rows of learned positions before that of 0
  // Of kDistances. Those of at least max_distance have one bias.
  int num_distance_buckets = 0;
  int max_distance = 0;

  // Scores are divided by its root; 0: head_dim.
  double query_pre_attn_scalar = 0;
  double attention_soft_cap = 0;   // of scores; 0: none
  double logit_soft_cap = 0;       // of logits; 0: none
  bool scales_embeddings = false;  // by the root of hidden_size
  bool tie_word_embeddings = false;
  bool may_lack_head = false;    // tied if the checkpoint has none
  bool scales_head = false;      // what it reads is divided by that root
  bool has_logits_bias = false;  // added to the logits
  bool has_fp8_weights = false;  // matrices may be stored so (fp8_rows.h)

  std::optional<EncoderConfig> encoder = std::nullopt;

  // generation_config.json's where it has them, else config.json's.
  std::vector<TokenId> eos_token_ids;

  bool projects_embeddings() const { return word_embed_proj_dim > 0; }
  int embedding_size() const {
    return projects_embeddings() ? word_embed_proj_dim : hidden_size;
  }
  int q_size() const { return num_heads * head_dim; }
  int kv_size() const { return num_kv_heads * head_dim; }
  int num_layers() const { return static_cast<int>(layers.size()); }
  // The largest of the decoder's layers and the encoder's.
  int max_intermediate_size() const;
  float attention_scale() const;
};

// Reads `directory`/config.json and, if there is one, generation_config.json.
// Sizes are checked against limits far above any model's, so that products of
// two of them fit 64 bits; what they make a reader allocate is bounded by the
// weights, whose shapes must agree.
// Errors: kNotFound if there is no config.json, kInvalidArgument naming file,
// field and value.
absl::StatusOr<TransformerConfig> ReadTransformerConfig(
    const std::string& directory);

// What is special about the model, for people: "biases of q, k and v", "a
// window of 4096 tokens in 16 of 32 layers".
std::vector<std::string> DescribeFeatures(const TransformerConfig& config);

}  // namespace espalier
