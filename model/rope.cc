#include "model/rope.h"

#include <cmath>
#include <numbers>
#include <string>

#include "base/status.h"
#include "model/config_fields.h"

namespace espalier {
namespace {

constexpr double kMaxTheta = 1e12;
constexpr double kMaxFactor = 1e6;

// The object that describes the scaling, or null: `rope_scaling`, the older
// name, wins where both are given, as in transformers.
absl::StatusOr<const json::object*> FindRope(const json::object& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json::value* value = FindField(config, key);
    if (value == nullptr) continue;
    if (!value->is_object()) {
      return InvalidArgument(key, " must be an object, got ", Shown(value));
    }
    return &value->get_object();
  }
  return nullptr;
}

absl::StatusOr<RopeType> ReadType(const json::object& rope) {
  const json::value* value = FindField(rope, "rope_type");
  if (value == nullptr) value = FindField(rope, "type");  // before 2024
  if (value == nullptr || *value == "default") return RopeType::kDefault;
  if (*value == "linear") return RopeType::kLinear;
  if (*value == "llama3") return RopeType::kLlama3;
  return InvalidArgument("rope_type must be default, linear or llama3, got ",
                         Shown(value));
}

absl::Status ReadLlama3(const json::object& rope, int max_context,
                        RopeParameters* result) {
  ASSIGN_OR_RETURN(result->low_freq_factor,
                   ReadNumber(rope, "low_freq_factor", 0, kMaxFactor));
  ASSIGN_OR_RETURN(result->high_freq_factor,
                   ReadNumber(rope, "high_freq_factor", 0, kMaxFactor));
  if (result->high_freq_factor <= result->low_freq_factor) {
    return InvalidArgument("high_freq_factor ", result->high_freq_factor,
                           " must be above low_freq_factor ",
                           result->low_freq_factor);
  }
  ASSIGN_OR_RETURN(result->original_context,
                   ReadInt(rope, "original_max_position_embeddings", 1,
                           max_context, max_context));
  return absl::OkStatus();
}

double ScaleLlama3(const RopeParameters& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double context = rope.original_context;
  if (wavelength > context / rope.low_freq_factor) {
    return frequency / rope.factor;
  }
  if (wavelength < context / rope.high_freq_factor) return frequency;
  const double smooth = (context / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

}  // namespace

absl::StatusOr<RopeParameters> ReadRopeParameters(const json::object& config,
                                                  int max_context) {
  RopeParameters result;
  ASSIGN_OR_RETURN(result.theta, ReadNumber(config, "rope_theta", 0, kMaxTheta,
                                            result.theta));
  ASSIGN_OR_RETURN(const json::object* rope, FindRope(config));
  if (rope == nullptr) return result;
  ASSIGN_OR_RETURN(result.theta,
                   ReadNumber(*rope, "rope_theta", 0, kMaxTheta, result.theta));
  ASSIGN_OR_RETURN(const double partial,
                   ReadNumber(*rope, "partial_rotary_factor", 0, 1, 1.0));
  if (partial != 1.0) {
    return InvalidArgument("partial_rotary_factor must be 1, got ", partial);
  }
  ASSIGN_OR_RETURN(result.type, ReadType(*rope));
  if (result.type == RopeType::kDefault) return result;
  ASSIGN_OR_RETURN(result.factor, ReadNumber(*rope, "factor", 0, kMaxFactor));
  if (result.type == RopeType::kLlama3) {
    RETURN_IF_ERROR(ReadLlama3(*rope, max_context, &result));
  }
  return result;
}

std::vector<double> InverseFrequencies(const RopeParameters& rope,
                                       int head_dim) {
  std::vector<double> frequencies;
  for (int i = 0; i < head_dim / 2; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * i / head_dim);
    if (rope.type == RopeType::kLinear) frequency /= rope.factor;
    if (rope.type == RopeType::kLlama3) {
      frequency = ScaleLlama3(rope, frequency);
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace espalier
