// TransformerConfig: the sizes and features of a transformer, a decoder alone
// or with an encoder, and its generation defaults, read from a model
// directory's config.json and generation_config.json under the names
// transformers gives them.
//
// Each device has one forward pass for all features. A family (model_family.h)
// is a reader of config.json and a table of tensor names. The reader refuses,
// by name, fields of config.json that no feature covers, so a model that loads
// is computed exactly.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/feature_matrix.h"
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
  kGelu,      // by the error function
  kRelu,
};

// The position encoding.
enum class PositionKind {
  kRotary,      // queries and keys are rotated
  kLearned,     // a learned table is added to the embeddings
  kSinusoidal,  // sines and cosines are added (model/positions.h)
  kDistances,   // scores have biases by the distance of query and key
};

// Frequencies of sinusoidal positions (model/positions.h).
enum class SinusoidKind {
  kVaswani,        // Marian, PEGASUS
  kTensor2Tensor,  // M2M100; computed, whatever a checkpoint stores
};

// The kind of a layer.
struct LayerConfig {
  // Positions that a token attends to, including its own; 0: no window.
  int window = 0;
  bool has_cross_attention = false;  // to the encoder's output
  int intermediate_size = 0;         // feed-forward width

  friend bool operator==(const LayerConfig&, const LayerConfig&) = default;
};

// The encoder of an encoder-decoder. It has the decoder's features and heads,
// and each of its tokens attends to all of them.
struct EncoderConfig {
  TensorNames names;
  std::vector<LayerConfig> layers;
  int max_tokens = 0;
  // Features of each of its 2 * max_tokens frames, which two convolutions make
  // max_tokens positions; 0: it reads tokens.
  int num_mel_bins = 0;
  TokenId decoder_start_token_id = 0;

  // The shape of all sources; nullopt: they are tokens.
  std::optional<FeatureShape> feature_shape() const;
};

struct TransformerConfig {
  std::string_view family = "Llama";  // for messages
  // Trained on single sentences: it truncates texts of several.
  bool translates_sentences = false;
  TensorNames names;

  int vocab_size = 0;
  int hidden_size = 0;
  // Embedding size of models that project embeddings to hidden_size and back
  // before the head; 0: hidden_size.
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
  bool has_post_norms = false;  // a norm before each residual add
  // Post-norm: x = norm(x + part(x)), without a final norm; else pre-norm:
  // x + part(norm(x)).
  bool norms_sums = false;
  bool has_embedding_norm = false;  // before the first layer
  bool has_qk_norms = false;  // queries and keys have a norm, head by head
  bool has_qkv_bias = false;
  bool lacks_key_bias = false;   // keys have none, with has_qkv_bias
  bool has_output_bias = false;  // o_proj
  bool has_mlp_bias = false;     // all feed-forward matrices

  Activation activation = Activation::kSilu;
  bool has_gate = true;  // activation(gate) * up, else activation(up)

  PositionKind positions = PositionKind::kRotary;
  RopeParameters rope;
  std::optional<RopeParameters> local_rope =
      std::nullopt;  // for layers with a window
  SinusoidKind sinusoids = SinusoidKind::kVaswani;
  // Row of position 0 in the learned table, or in that of sinusoids.
  int position_offset = 0;
  // A token that gets no position: M2M100's padding. Sources and decoder
  // prompts that contain it are refused.
  std::optional<TokenId> token_without_position = std::nullopt;
  // kDistances only. All distances from max_distance on share a bias.
  int num_distance_buckets = 0;
  bool has_layer_distances = false;  // biases of each layer, not of a stack
  int max_distance = 0;

  // Scores are divided by its square root; 0: head_dim.
  double query_pre_attn_scalar = 0;
  double attention_soft_cap = 0;   // on attention scores; 0: none
  double logit_soft_cap = 0;       // on logits; 0: none
  bool scales_embeddings = false;  // by sqrt(hidden_size)
  bool tie_word_embeddings = false;
  bool may_lack_head = false;    // tied if the checkpoint has none
  bool scales_head = false;      // its input is divided by sqrt(hidden_size)
  bool has_logits_bias = false;  // added to the logits
  bool has_fp8_weights = false;  // matrices may be e4m3 (fp8_rows.h)
  // Matrices and embeddings may be int8 (int8_rows.h), and become this type.
  std::optional<DType> int8_rows = std::nullopt;

  std::optional<EncoderConfig> encoder = std::nullopt;

  // From generation_config.json if it has them, else from config.json.
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

// Reads `directory`/config.json, or of a directory of CTranslate2 its model.bin
// (ctranslate2/ctranslate2_model.h), and, if there is one,
// generation_config.json.
// Sizes are limited far above any model's, so that products of two fit 64 bits.
// Allocations are bounded by the weights, whose shapes must agree.
// Errors: kNotFound if there is no config.json, kInvalidArgument naming file,
// field and value; as CTranslate2Model::Open.
absl::StatusOr<TransformerConfig> ReadTransformerConfig(
    const std::string& directory);

}  // namespace espalier
