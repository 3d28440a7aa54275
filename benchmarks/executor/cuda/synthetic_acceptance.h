// SyntheticModel: a model whose drafts are accepted at a given rate, to measure
// the cost of speculation with random weights. It runs the wrapped model, in
// the same time, and then makes one token certain: a hash of the last token and
// its position. A draft model with rate a makes this token certain at a share a
// of all positions, chosen by another hash, and its neighbour at the others;
// the target makes it certain everywhere.
#pragma once

#include <memory>
#include <utility>

#include "benchmarks/executor/cuda/wrapped_model.h"

namespace espalier {

class SyntheticModel : public WrappedModel {
 public:
  //   agreement  in [0, 1]: how often the token is the target's
  SyntheticModel(std::shared_ptr<CudaModel> model, double agreement)
      : WrappedModel(std::move(model)), agreement_(agreement) {}

  absl::Status Enqueue(const CudaBatch& batch, float* logits,
                       cudaStream_t stream) override;

 private:
  const double agreement_;
};

}  // namespace espalier
