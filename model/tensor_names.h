// TensorNames: the names of a family's tensors in checkpoints of transformers.
// The defaults are Llama's; a family sets the names that differ.
#pragma once

#include <span>
#include <string_view>

namespace espalier {

// ".weight" or ".bias" follows each name. An empty name is a tensor that the
// family does not have.
struct TensorNames {
  // Prefix of all names but the head's. Checkpoints of a model without a head
  // lack the prefix and load too, as in transformers.
  std::string_view base = "model.";
  // Alternative prefix.
  std::string_view other_base = "";
  // Prefixes of tensors that are not part of the text model.
  std::span<const std::string_view> not_of_text = {};
  std::string_view embedding = "embed_tokens";
  // Other names under which a checkpoint may store the embedding, in addition
  // or instead.
  std::span<const std::string_view> embedding_aliases = {};
  std::string_view project_in = "";  // embedding_size to hidden_size
  std::string_view project_out = "";
  std::string_view conv1 = "";  // convolutions of features
  std::string_view conv2 = "";
  std::string_view positions = "";  // learned
  std::string_view embedding_norm = "";
  std::string_view distance_biases = "";  // [buckets, num_heads]
  std::string_view final_norm = "norm";
  std::string_view head = "lm_head";
  std::string_view logits_bias = "";  // [1, vocab_size]; whole names, as head's

  std::string_view layers = "layers.";  // then a layer's number and a dot
  std::string_view attention_norm = "input_layernorm";
  // Three tensors, or qkv with the rows of all three.
  std::string_view q = "self_attn.q_proj";
  std::string_view k = "self_attn.k_proj";
  std::string_view v = "self_attn.v_proj";
  std::string_view qkv = "";
  std::string_view q_norm = "";  // per head
  std::string_view k_norm = "";
  std::string_view output = "self_attn.o_proj";
  std::string_view post_attention_norm = "";  // before the residual add
  // Cross-attention of an encoder-decoder's decoder.
  std::string_view cross_norm = "";
  std::string_view cross_q = "";
  std::string_view cross_k = "";
  std::string_view cross_v = "";
  std::string_view cross_output = "";
  std::string_view mlp_norm = "post_attention_layernorm";
  // Two tensors, or gate_up with the rows of both; `up` alone without a gate.
  std::string_view gate = "mlp.gate_proj";
  std::string_view up = "mlp.up_proj";
  std::string_view gate_up = "";
  std::string_view down = "mlp.down_proj";
  std::string_view post_mlp_norm = "";  // before the residual add

  // The layers' matrices are stored [inputs, outputs].
  bool are_transposed = false;
};

}  // namespace espalier
