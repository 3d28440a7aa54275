// TensorNames: where a family's checkpoints keep the weights, by the names of
// transformers. A family whose names are Llama's but for two says those two.
#pragma once

#include <span>
#include <string_view>

namespace espalier {

// Each is followed by ".weight", or by ".bias" for what has one. An empty name
// stands for a tensor that the family does not have.
struct TensorNames {
  // Before all names but the head's. A checkpoint of the model without its head
  // lacks it, and is read all the same, as transformers does.
  std::string_view base = "model.";
  // Another beginning that they may have in its place.
  std::string_view other_base = "";
  // Beginnings of the names of what a checkpoint has beside the text model.
  std::span<const std::string_view> not_of_text = {};
  std::string_view embedding = "embed_tokens";
  // Other names of the embedding, which a checkpoint may have beside it or in
  // its place.
  std::span<const std::string_view> embedding_aliases = {};
  std::string_view project_in = "";  // of embeddings, and back
  std::string_view project_out = "";
  std::string_view positions = "";  // learned ones
  std::string_view embedding_norm = "";
  std::string_view distance_biases = "";  // [buckets, num_heads]
  std::string_view final_norm = "norm";
  std::string_view head = "lm_head";
  std::string_view logits_bias = "";  // [1, vocab_size]; whole names, as head's

  std::string_view layers = "layers.";  // then a layer's number and a dot
  std::string_view attention_norm = "input_layernorm";
  // Three tensors, or one with the rows of all three.
  std::string_view q = "self_attn.q_proj";
  std::string_view k = "self_attn.k_proj";
  std::string_view v = "self_attn.v_proj";
  std::string_view qkv = "";
  std::string_view q_norm = "";  // of each head
  std::string_view k_norm = "";
  std::string_view output = "self_attn.o_proj";
  std::string_view post_attention_norm = "";  // of what is added
  // Of cross-attention: a decoder's with an encoder.
  std::string_view cross_norm = "";
  std::string_view cross_q = "";
  std::string_view cross_k = "";
  std::string_view cross_v = "";
  std::string_view cross_output = "";
  std::string_view mlp_norm = "post_attention_layernorm";
  // Two tensors, or one with the rows of both; `up` alone without a gate.
  std::string_view gate = "mlp.gate_proj";
  std::string_view up = "mlp.up_proj";
  std::string_view gate_up = "";
  std::string_view down = "mlp.down_proj";
  std::string_view post_mlp_norm = "";  // of what is added

  // Whether layers' matrices are stored [inputs, outputs].
  bool are_transposed = false;
};

}  // namespace espalier
