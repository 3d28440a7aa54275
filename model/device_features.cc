#include "model/device_features.h"

#include "base/status.h"

namespace espalier {

absl::Status CheckCudaFeatures(const TransformerConfig& config) {
  struct Feature {
    bool is_wanted;
    const char* name;
  };
  const Feature features[] = {
      {config.local_rope.has_value(),
       "rotary positions of their own for layers with a window"},
      {config.rope.partial_rotary_factor < 1 &&
           (config.has_qkv_bias || config.has_qk_norms),
       "a partial_rotary_factor below 1 with biases or norms of q and k"},
      {config.positions == PositionKind::kLearned, "learned positions"},
      {config.norm == NormKind::kLayer, "LayerNorm"},
      {config.has_post_norms, "norms after attention and feed-forward"},
      {config.has_output_bias, "a bias of the attention's output"},
      {config.has_mlp_bias, "biases of the feed-forward part"},
      {!config.has_gate, "a feed-forward part without a gate"},
      {config.activation != Activation::kSilu, "GELU"},
      {config.query_pre_attn_scalar > 0 &&
           config.query_pre_attn_scalar != config.head_dim,
       "a query_pre_attn_scalar other than head_dim"},
      {config.attention_soft_cap > 0, "a soft cap of attention scores"},
      {config.logit_soft_cap > 0, "a soft cap of logits"},
      {config.scales_embeddings, "scaled embeddings"},
  };
  for (const Feature& feature : features) {
    if (!feature.is_wanted) continue;
    return InvalidArgument(config.family, ": ", feature.name,
                           ": not supported on CUDA yet; use --device cpu");
  }
  return absl::OkStatus();
}

}  // namespace espalier
