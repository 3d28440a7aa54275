// RopeParameters: rotary position embeddings (RoPE) and their scalings for long
// contexts.
//
// Dynamic and longrope change all angles once a sequence exceeds the original
// training context. Cached pages are shared by sequences of any length and
// cannot be rotated again, so the context ends there (MaxContext).
// Source: transformers 5, modeling_rope_utils.py.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"

namespace espalier {

// The upper limit of rope_theta, and of the fields that have other names for
// it.
inline constexpr double kMaxRopeTheta = 1e12;

enum class RopeType {
  kDefault,   // theta^(-2i / rotary_dim)
  kLinear,    // as kDefault, divided by `factor`
  kDynamic,   // as kDefault up to max_position_embeddings
  kLlama3,    // frequencies of long waves are divided by `factor`, those of
              // short ones kept, and those between interpolated
  kYarn,      // likewise, by the turns of a wave in the original context
  kLongRope,  // as kDefault, divided by a factor for each pair of dimensions
};

struct RopeParameters {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;  // > 0
  double factor = 1.0;     // > 0
  // The share of a head's dimensions that are rotated, the first ones.
  double partial_rotary_factor = 1.0;
  // Factor of cosines and sines; kYarn and kLongRope only.
  double attention_factor = 1.0;
  // kLlama3 only: waves longer than original_context / low_freq_factor
  // positions are divided, those shorter than original_context /
  // high_freq_factor kept.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int original_context = 1;  // kLlama3, kYarn, kLongRope
  // kYarn only: waves that turn beta_fast times or more in original_context are
  // kept, those that turn beta_slow times or less are divided.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;               // kYarn: rounds the bounds to whole pairs
  std::vector<double> short_factors;  // kLongRope: [rotary_dim / 2]

  int RotaryDim(int head_dim) const {
    return static_cast<int>(head_dim * partial_rotary_factor);
  }
};

// The rope types that a family allows, and its defaults.
struct RopeRules {
  static constexpr RopeType kAllTypes[] = {
      RopeType::kDefault, RopeType::kLinear, RopeType::kDynamic,
      RopeType::kLlama3,  RopeType::kYarn,   RopeType::kLongRope};
  std::span<const RopeType> types = kAllTypes;
  bool allows_partial = false;
  double partial_rotary_factor = 1.0;  // if the field is missing
  // The types su and yarn mean longrope, as in early Phi-3.
  bool has_old_longrope_names = false;
  // Used if config.json has no original_max_position_embeddings at its top
  // level, even if its rope object has one.
  std::optional<int> original_context = std::nullopt;
};

// Reads a model's config: `rope_parameters` as transformers 5 writes it, or
// `rope_theta` and `rope_scaling` as older ones did. rope_scaling wins if both
// are there. `max_context` is max_position_embeddings.
// Errors: kInvalidArgument naming the field and the value, also for a scaling
// that is not supported.
absl::StatusOr<RopeParameters> ReadRopeParameters(const json::object& config,
                                                  int max_context, int head_dim,
                                                  const RopeRules& rules = {});

// Reads one rope object. `theta` is for an object without rope_theta, `config`
// is all of config.json.
// Errors: as ReadRopeParameters.
absl::StatusOr<RopeParameters> ReadRopeObject(const json::object& rope,
                                              const json::object& config,
                                              double theta, int max_context,
                                              int head_dim,
                                              const RopeRules& rules);

// Returns the longest context, at most max_context, that `rope`'s angles cover.
int MaxContext(const RopeParameters& rope, int max_context);

// Returns the radians per position of each pair of dimensions.
//   result  [rope.RotaryDim(head_dim) / 2]
std::vector<double> InverseFrequencies(const RopeParameters& rope,
                                       int head_dim);

// "default", "linear", ...
std::string_view NameOf(RopeType type);

}  // namespace espalier
