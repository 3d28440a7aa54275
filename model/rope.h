// RopeParameters: how positions turn into rotation angles, with the scalings
// that models trained further on longer texts use.
//
// Two scalings change all angles once a sequence gets longer than the model was
// first trained on: dynamic and longrope. Pages that sequences of any length
// share cannot change with one of them, so contexts end there (MaxContext).
// Source: transformers 5, modeling_rope_utils.py.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"

namespace espalier {

// rope_theta and its other names are at most this.
inline constexpr double kMaxRopeTheta = 1e12;

enum class RopeType {
  kDefault,   // theta^(-2i / rotary_dim)
  kLinear,    // the same, divided by `factor`
  kDynamic,   // as kDefault up to max_position_embeddings
  kLlama3,    // long waves divided by `factor`, short ones kept, and a blend
              // between
  kYarn,      // the same by how often a wave turns in the original context
  kLongRope,  // divided by a factor for each pair of dimensions
};

struct RopeParameters {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;  // > 0
  double factor = 1.0;     // > 0
  // The share of a head's dimensions that are rotated, the first ones.
  double partial_rotary_factor = 1.0;
  // What cosines and sines are multiplied by: kYarn and kLongRope.
  double attention_factor = 1.0;
  // kLlama3 only: waves longer than original_context / low_freq_factor are
  // divided, waves shorter than original_context / high_freq_factor are kept.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int original_context = 1;  // kLlama3, kYarn, kLongRope
  // kYarn only: waves that turn beta_fast times or more in original_context are
  // kept, those that turn beta_slow times or less are divided.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;               // to whole pairs of dimensions
  std::vector<double> short_factors;  // kLongRope: [rotary_dim / 2]

  int RotaryDim(int head_dim) const {
    return static_cast<int>(head_dim * partial_rotary_factor);
  }
};

// What a family allows, and its defaults.
struct RopeRules {
  static constexpr RopeType kAllTypes[] = {
      RopeType::kDefault, RopeType::kLinear, RopeType::kDynamic,
      RopeType::kLlama3,  RopeType::kYarn,   RopeType::kLongRope};
  std::span<const RopeType> types = kAllTypes;
  bool allows_partial = false;
  double partial_rotary_factor = 1.0;  // where there is none
  // Whether the types su and yarn stand for longrope, as in early Phi-3.
  bool has_old_longrope_names = false;
  // Where config.json does not have it beside the rope's own fields.
  std::optional<int> original_context = std::nullopt;
};

// Reads a model's config: `rope_parameters` as transformers 5 writes it, or
// `rope_theta` and `rope_scaling` as older ones did.
// Errors: kInvalidArgument naming the field and the value, also for a scaling
// that is not supported.
absl::StatusOr<RopeParameters> ReadRopeParameters(const json::object& config,
                                                  int max_context, int head_dim,
                                                  const RopeRules& rules = {});

// One object of them, with `theta` where it has none. `config` is all of
// config.json.
absl::StatusOr<RopeParameters> ReadRopeObject(const json::object& rope,
                                              const json::object& config,
                                              double theta, int max_context,
                                              int head_dim,
                                              const RopeRules& rules);

// The longest context whose angles are those of `rope`.
int MaxContext(const RopeParameters& rope, int max_context);

// Radians a position, for each pair of dimensions.
//   result  [rope.RotaryDim(head_dim) / 2]
std::vector<double> InverseFrequencies(const RopeParameters& rope,
                                       int head_dim);

// "default", "linear", ...
std::string_view NameOf(RopeType type);

}  // namespace espalier
