#include "model/cuda_limits.h"

#include <utility>

#include "base/status.h"

namespace espalier {

absl::Status CheckCudaLimits(const TransformerConfig& config) {
  if (config.encoder) {
    return InvalidArgument(config.family, ": an encoder is not supported on ",
                           "CUDA yet; use --device cpu");
  }
  // Features of encoder-decoders.
  const std::pair<const char*, bool> features[] = {
      {"GELU by the error function", config.activation == Activation::kGelu},
      {"ReLU", config.activation == Activation::kRelu},
      {"sinusoidal positions", config.positions == PositionKind::kSinusoidal},
      {"biases by distance", config.positions == PositionKind::kDistances},
      {"an offset of positions", config.position_offset != 0},
      {"norms of sums", config.norms_sums},
      {"a norm of embeddings", config.has_embedding_norm},
      {"a scaled head", config.scales_head},
      {"a bias of logits", config.has_logits_bias}};
  for (const auto& [name, is_wanted] : features) {
    if (!is_wanted) continue;
    return InvalidArgument(config.family, ": ", name,
                           " is not supported on CUDA yet; use --device cpu");
  }
  struct Limit {
    const char* name;
    int value;
    int most;
  };
  for (const Limit& limit :
       {Limit{"head_dim", config.head_dim, kMaxCudaHeadDim},
        Limit{"hidden_size", config.hidden_size, kMaxCudaHiddenSize}}) {
    if (limit.value <= limit.most) continue;
    return InvalidArgument(limit.name, " must be at most ", limit.most,
                           " on a CUDA device, got ", limit.value);
  }
  return absl::OkStatus();
}

}  // namespace espalier
