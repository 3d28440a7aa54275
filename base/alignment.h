// Alignment of a text with what an encoder has read: which cross-attention
// scores a request asks for, and what it gets (Request::alignment).
//
// Thread safety: values; a query is immutable where it is shared.
#pragma once

#include <vector>

namespace espalier {

// A head of the decoder's cross-attention.
struct AttentionHead {
  int layer = 0;
  int head = 0;

  friend bool operator==(const AttentionHead&, const AttentionHead&) = default;
};

// Layers and heads of a decoder's cross-attention.
struct AttentionShape {
  int num_layers = 0;
  int num_heads = 0;  // in each layer
};

struct AlignmentQuery {
  std::vector<AttentionHead> heads = {};
  int num_positions = 0;  // the source's first ones
  // Log-probabilities are renormalized over the tokens below it.
  int num_text_tokens = 0;
};

// One entry for each token that the decoder begins with, but the last.
struct Alignment {
  // [tokens, heads, num_positions]  scale * q k^T, before the softmax
  std::vector<float> attention_scores = {};
  std::vector<float> log_probs = {};  // [tokens], of the next token; nats
};

}  // namespace espalier
