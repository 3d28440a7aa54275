#include "model/cuda_limits.h"

#include <utility>

#include "base/status.h"

namespace espalier {

absl::Status CheckCudaLimits(const TransformerConfig& config) {
  const std::pair<const char*, bool> features[] = {
      {"biases by distance", config.positions == PositionKind::kDistances},
      {"a scaled head", config.scales_head}};
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
