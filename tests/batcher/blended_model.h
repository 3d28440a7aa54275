// BlendedModel: a toy model that agrees with another in part, as a draft model
// agrees with its target: logits are (1 - distance) times those of one ToyModel
// and `distance` times those of a second one, which differs in its seed alone.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "exec_request/model.h"
#include "tests/toy_model.h"

namespace espalier::testing {

class BlendedModel : public Model {
 public:
  BlendedModel(ToyModelOptions options, uint64_t other_seed, float distance)
      : first_(options),
        second_(WithSeed(options, other_seed)),
        distance_(distance) {}

  const ModelDescription& description() const override {
    return first_.description();
  }

  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    other_logits_.resize(logits.size());
    RETURN_IF_ERROR(first_.Forward(plan, logits));
    RETURN_IF_ERROR(second_.Forward(plan, other_logits_));
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = (1 - distance_) * logits[i] + distance_ * other_logits_[i];
    }
    return absl::OkStatus();
  }

 private:
  static ToyModelOptions WithSeed(ToyModelOptions options, uint64_t seed) {
    options.seed = seed;
    return options;
  }

  ToyModel first_;
  ToyModel second_;
  const float distance_;
  std::vector<float> other_logits_;
};

}  // namespace espalier::testing
