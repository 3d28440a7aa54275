#include "kernels/perturb.h"

namespace espalier {

std::vector<TokenScore> PerturbRow(std::span<const float> logits,
                                   const PerturbOptions& options) {
  return reference::PerturbRow(logits, options);
}

}  // namespace espalier
