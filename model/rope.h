// RopeParameters: how positions turn into rotation frequencies, with the
// scalings that models trained further on longer texts use.
// Source: transformers 5, modeling_rope_utils.py.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"

namespace espalier {

enum class RopeType {
  kDefault,  // theta^(-2i / head_dim)
  kLinear,   // the same, divided by `factor`
  kLlama3,   // long waves divided by `factor`, short ones kept, and a blend
             // between
};

struct RopeParameters {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;  // > 0
  double factor = 1.0;     // > 0
  // kLlama3 only: waves longer than original_context / low_freq_factor are
  // divided, waves shorter than original_context / high_freq_factor are kept.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int original_context = 1;
};

// Reads a model's config: `rope_parameters` as transformers 5 writes it, or
// `rope_theta` and `rope_scaling` as older ones did.
// Errors: kInvalidArgument naming the field and the value, also for a scaling
// that is not supported.
absl::StatusOr<RopeParameters> ReadRopeParameters(const json::object& config,
                                                  int max_context);

// Radians a position, for each pair of dimensions.
//   result  [head_dim / 2]
std::vector<double> InverseFrequencies(const RopeParameters& rope,
                                       int head_dim);

}  // namespace espalier
