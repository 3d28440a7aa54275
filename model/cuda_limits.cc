#include "model/cuda_limits.h"

#include "base/status.h"

namespace espalier {

absl::Status CheckCudaLimits(const TransformerConfig& config) {
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
  if (config.projects_embeddings()) {
    return InvalidArgument("word_embed_proj_dim must be hidden_size, ",
                           config.hidden_size, ", on a CUDA device, got ",
                           config.word_embed_proj_dim);
  }
  return absl::OkStatus();
}

}  // namespace espalier
