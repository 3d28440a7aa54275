#include "model/transformer_features.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "base/wording.h"

namespace espalier {
namespace {

std::string DescribeRope(const TransformerConfig& config) {
  const RopeParameters& rope = config.rope;
  std::string text = "rotary positions";
  if (rope.type != RopeType::kDefault) text += Concat(", ", NameOf(rope.type));
  if (rope.partial_rotary_factor < 1) {
    text += Concat(", of ", rope.RotaryDim(config.head_dim), " of ",
                   config.head_dim, " dimensions");
  }
  if (config.local_rope) text += ", others in layers with a window";
  return text;
}

std::string DescribePositions(const TransformerConfig& config) {
  switch (config.positions) {
    case PositionKind::kRotary:
      return DescribeRope(config);
    case PositionKind::kLearned:
      return "learned positions";
    case PositionKind::kSinusoidal:
      return "sinusoidal positions";
    case PositionKind::kDistances:
      return Concat("biases of scores by distance, up to ",
                    config.max_distance);
  }
  return "";
}

std::string_view NameOf(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "SiLU";
    case Activation::kGeluTanh:
      return "GELU (tanh)";
    case Activation::kGelu:
      return "GELU";
    case Activation::kRelu:
      return "ReLU";
  }
  return "";
}

std::string DescribeBiases(const TransformerConfig& config) {
  std::vector<std::string> parts;
  if (config.has_qkv_bias) {
    parts.push_back(config.lacks_key_bias ? "q, v" : "q, k, v");
  }
  if (config.has_output_bias) parts.push_back("the attention's output");
  if (config.has_mlp_bias) parts.push_back("feed-forward");
  return parts.empty() ? "" : "biases of " + JoinWithAnd(parts);
}

std::string DescribeWindow(const TransformerConfig& config) {
  const auto num_local =
      config.num_layers() -
      std::ranges::count(config.layers, 0, &LayerConfig::window);
  if (num_local == 0) return "";
  const LayerConfig& widest =
      *std::ranges::max_element(config.layers, {}, &LayerConfig::window);
  return Concat("a window of ", widest.window, " tokens in ", num_local, " of ",
                Pluralize(config.num_layers(), "layer"));
}

}  // namespace

std::vector<std::string> DescribeFeatures(const TransformerConfig& config) {
  std::vector<std::string> features = {
      DescribePositions(config),
      config.norm == NormKind::kLayer ? "LayerNorm" : "RMSNorm",
      Concat(config.has_gate ? "gated " : "", NameOf(config.activation)),
      DescribeBiases(config), DescribeWindow(config)};
  const auto add_if = [&](bool has, std::string feature) {
    if (has) features.push_back(std::move(feature));
  };
  if (config.encoder) {
    features.push_back(Concat(
        "an encoder of ", Pluralize(config.encoder->layers.size(), "layer")));
    add_if(config.encoder->num_mel_bins > 0,
           Concat("convolutions of ", config.encoder->num_mel_bins,
                  " features a frame"));
  }
  add_if(config.norms_sums, "norms of sums");
  add_if(config.has_embedding_norm, "a norm of embeddings");
  add_if(config.scales_head, "a scaled head");
  add_if(config.has_logits_bias, "a bias of logits");
  add_if(config.has_qk_norms, "norms of queries and keys");
  add_if(config.has_post_norms, "norms after each part");
  add_if(config.query_pre_attn_scalar > 0,
         Concat("scores over the root of ", config.query_pre_attn_scalar));
  add_if(config.attention_soft_cap > 0,
         Concat("scores capped at ", config.attention_soft_cap));
  add_if(config.logit_soft_cap > 0,
         Concat("logits capped at ", config.logit_soft_cap));
  add_if(config.scales_embeddings, "scaled embeddings");
  add_if(config.projects_embeddings(),
         Concat("projected embeddings of ", config.word_embed_proj_dim));
  add_if(config.tie_word_embeddings, "tied embeddings");
  std::erase(features, "");
  return features;
}

}  // namespace espalier
