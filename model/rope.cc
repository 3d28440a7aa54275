#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "base/status.h"
#include "model/config_fields.h"

namespace espalier {
namespace {

constexpr double kMaxFactor = 1e6;
constexpr int kMaxOriginalContext = 1 << 26;

constexpr std::pair<std::string_view, RopeType> kNames[] = {
    {"default", RopeType::kDefault}, {"linear", RopeType::kLinear},
    {"dynamic", RopeType::kDynamic}, {"llama3", RopeType::kLlama3},
    {"yarn", RopeType::kYarn},       {"longrope", RopeType::kLongRope}};

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

std::string ListOf(std::span<const RopeType> types) {
  std::string list;
  for (size_t i = 0; i < types.size(); ++i) {
    if (i > 0) list += i + 1 == types.size() ? " or " : ", ";
    list += NameOf(types[i]);
  }
  return list;
}

absl::StatusOr<RopeType> ReadType(const json::object& rope,
                                  const RopeRules& rules) {
  const json::value* value = FindField(rope, "rope_type");
  if (value == nullptr) value = FindField(rope, "type");  // before 2024
  if (value == nullptr) return RopeType::kDefault;
  if (rules.has_old_longrope_names && (*value == "su" || *value == "yarn")) {
    return RopeType::kLongRope;
  }
  for (const auto& [name, type] : kNames) {
    if (*value == json::string_view(name) &&
        std::ranges::count(rules.types, type) > 0) {
      return type;
    }
  }
  return InvalidArgument("rope_type must be ", ListOf(rules.types), ", got ",
                         Shown(value));
}

absl::Status ReadPartial(const json::object& rope, const json::object& config,
                         int head_dim, const RopeRules& rules,
                         RopeParameters* result) {
  ASSIGN_OR_RETURN(const double outer,
                   ReadNumber(config, "partial_rotary_factor", 0, 1,
                              rules.partial_rotary_factor));
  ASSIGN_OR_RETURN(const double partial,
                   ReadNumber(rope, "partial_rotary_factor", 0, 1, outer));
  if (!rules.allows_partial && partial != 1.0) {
    return InvalidArgument("partial_rotary_factor must be 1, got ", partial);
  }
  result->partial_rotary_factor = partial;
  const int rotary_dim = result->RotaryDim(head_dim);
  if (rotary_dim < 2 || rotary_dim % 2 != 0) {
    return InvalidArgument("partial_rotary_factor ", partial, " of a head of ",
                           head_dim, " must be an even number of dimensions");
  }
  return absl::OkStatus();
}

// The length of the original training, from beside the rope's own fields or
// among them.
absl::StatusOr<int> ReadOriginalContext(const json::object& rope,
                                        const json::object& config,
                                        int max_context, int limit,
                                        const RopeRules& rules) {
  constexpr char kKey[] = "original_max_position_embeddings";
  if (FindField(config, kKey) != nullptr) {
    return ReadInt(config, kKey, 1, limit);
  }
  if (rules.original_context) return *rules.original_context;
  return ReadInt(rope, kKey, 1, limit, max_context);
}

absl::Status ReadLlama3(const json::object& rope, RopeParameters* result) {
  ASSIGN_OR_RETURN(result->low_freq_factor,
                   ReadNumber(rope, "low_freq_factor", 0, kMaxFactor));
  ASSIGN_OR_RETURN(result->high_freq_factor,
                   ReadNumber(rope, "high_freq_factor", 0, kMaxFactor));
  if (result->high_freq_factor <= result->low_freq_factor) {
    return InvalidArgument("high_freq_factor ", result->high_freq_factor,
                           " must be above low_freq_factor ",
                           result->low_freq_factor);
  }
  return absl::OkStatus();
}

double MScale(double scale, double weight) {
  return scale <= 1 ? 1.0 : 0.1 * weight * std::log(scale) + 1.0;
}

absl::Status ReadYarn(const json::object& rope, RopeParameters* result) {
  if (result->theta <= 1) {
    return InvalidArgument("rope_theta must be above 1 with rope_type yarn, ",
                           "got ", result->theta);
  }
  ASSIGN_OR_RETURN(result->beta_fast,
                   ReadNumber(rope, "beta_fast", 0, kMaxFactor, 32.0));
  ASSIGN_OR_RETURN(result->beta_slow,
                   ReadNumber(rope, "beta_slow", 0, kMaxFactor, 1.0));
  if (result->beta_fast < result->beta_slow) {
    return InvalidArgument("beta_fast ", result->beta_fast,
                           " must be at least beta_slow ", result->beta_slow);
  }
  ASSIGN_OR_RETURN(result->truncate, ReadBool(rope, "truncate", true));
  double attention_factor = MScale(result->factor, 1);
  if (FindField(rope, "mscale") != nullptr &&
      FindField(rope, "mscale_all_dim") != nullptr) {
    ASSIGN_OR_RETURN(const double mscale,
                     ReadNumber(rope, "mscale", 0, kMaxFactor));
    ASSIGN_OR_RETURN(const double all_dim,
                     ReadNumber(rope, "mscale_all_dim", 0, kMaxFactor));
    attention_factor =
        MScale(result->factor, mscale) / MScale(result->factor, all_dim);
  }
  ASSIGN_OR_RETURN(
      result->attention_factor,
      ReadNumber(rope, "attention_factor", 0, kMaxFactor, attention_factor));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> ReadFactors(const json::object& rope,
                                                std::string_view key,
                                                int count) {
  const json::value* value = FindField(rope, key);
  if (value == nullptr || !value->is_array() ||
      std::ssize(value->get_array()) != count) {
    return InvalidArgument(key, " must be a list of ", count, " numbers, got ",
                           Shown(value));
  }
  std::vector<double> factors;
  for (const json::value& item : value->get_array()) {
    json::error_code error;
    const double factor = item.to_number<double>(error);
    if (error || !(factor > 0 && factor <= kMaxFactor)) {
      return InvalidArgument(key, " must hold numbers in (0, ", kMaxFactor,
                             "], got ", Shown(&item));
    }
    factors.push_back(factor);
  }
  return factors;
}

absl::Status ReadLongRope(const json::object& rope, int max_context,
                          int head_dim, RopeParameters* result) {
  const int num_pairs = result->RotaryDim(head_dim) / 2;
  ASSIGN_OR_RETURN(result->short_factors,
                   ReadFactors(rope, "short_factor", num_pairs));
  RETURN_IF_ERROR(ReadFactors(rope, "long_factor", num_pairs).status());
  ASSIGN_OR_RETURN(result->factor, ReadNumber(rope, "factor", 0, kMaxFactor,
                                              static_cast<double>(max_context) /
                                                  result->original_context));
  const double attention_factor =
      result->factor <= 1 || result->original_context == 1
          ? 1.0
          : std::sqrt(1 + std::log(result->factor) /
                              std::log(result->original_context));
  ASSIGN_OR_RETURN(
      result->attention_factor,
      ReadNumber(rope, "attention_factor", 0, kMaxFactor, attention_factor));
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

// The pair of dimensions, as a real number, whose wave turns so many times in
// the original context.
double PairOfTurns(const RopeParameters& rope, int rotary_dim, double turns) {
  return rotary_dim *
         std::log(rope.original_context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

// Returns the scaled frequency of pair `i`: unchanged up to the pair that turns
// beta_fast times, divided by rope.factor from the pair that turns beta_slow
// times on, linearly interpolated between.
double ScaleYarn(const RopeParameters& rope, int rotary_dim, int i,
                 double frequency) {
  double low = PairOfTurns(rope, rotary_dim, rope.beta_fast);
  double high = PairOfTurns(rope, rotary_dim, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotary_dim - 1.0);
  if (low == high) high += 0.001;
  const double divided = std::clamp((i - low) / (high - low), 0.0, 1.0);
  return frequency / rope.factor * divided + frequency * (1 - divided);
}

}  // namespace

absl::StatusOr<RopeParameters> ReadRopeObject(const json::object& rope,
                                              const json::object& config,
                                              double theta, int max_context,
                                              int head_dim,
                                              const RopeRules& rules) {
  RopeParameters result;
  ASSIGN_OR_RETURN(result.theta,
                   ReadNumber(rope, "rope_theta", 0, kMaxRopeTheta, theta));
  RETURN_IF_ERROR(ReadPartial(rope, config, head_dim, rules, &result));
  ASSIGN_OR_RETURN(result.type, ReadType(rope, rules));
  if (result.type == RopeType::kDefault) return result;
  if (result.type != RopeType::kLongRope) {
    ASSIGN_OR_RETURN(result.factor, ReadNumber(rope, "factor", 0, kMaxFactor));
  }
  if (result.type == RopeType::kLinear || result.type == RopeType::kDynamic) {
    return result;
  }
  const int limit =
      result.type == RopeType::kLlama3 ? max_context : kMaxOriginalContext;
  ASSIGN_OR_RETURN(
      result.original_context,
      ReadOriginalContext(rope, config, max_context, limit, rules));
  if (result.type == RopeType::kLlama3) {
    RETURN_IF_ERROR(ReadLlama3(rope, &result));
  } else if (result.type == RopeType::kYarn) {
    RETURN_IF_ERROR(ReadYarn(rope, &result));
  } else {
    RETURN_IF_ERROR(ReadLongRope(rope, max_context, head_dim, &result));
  }
  return result;
}

absl::StatusOr<RopeParameters> ReadRopeParameters(const json::object& config,
                                                  int max_context, int head_dim,
                                                  const RopeRules& rules) {
  ASSIGN_OR_RETURN(const double theta,
                   ReadNumber(config, "rope_theta", 0, kMaxRopeTheta,
                              RopeParameters().theta));
  ASSIGN_OR_RETURN(const json::object* rope, FindRope(config));
  const json::object none;
  return ReadRopeObject(rope == nullptr ? none : *rope, config, theta,
                        max_context, head_dim, rules);
}

int MaxContext(const RopeParameters& rope, int max_context) {
  return rope.type == RopeType::kLongRope
             ? std::min(max_context, rope.original_context)
             : max_context;
}

std::vector<double> InverseFrequencies(const RopeParameters& rope,
                                       int head_dim) {
  const int rotary_dim = rope.RotaryDim(head_dim);
  std::vector<double> frequencies;
  for (int i = 0; i < rotary_dim / 2; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * i / rotary_dim);
    if (rope.type == RopeType::kLinear) frequency /= rope.factor;
    if (rope.type == RopeType::kLlama3) {
      frequency = ScaleLlama3(rope, frequency);
    }
    if (rope.type == RopeType::kYarn) {
      frequency = ScaleYarn(rope, rotary_dim, i, frequency);
    }
    if (rope.type == RopeType::kLongRope) frequency /= rope.short_factors[i];
    frequencies.push_back(frequency);
  }
  return frequencies;
}

std::string_view NameOf(RopeType type) {
  for (const auto& [name, named] : kNames) {
    if (named == type) return name;
  }
  return "";
}

}  // namespace espalier
