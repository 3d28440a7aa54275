#include "request/param_checks.h"

#include <cmath>

namespace espalier {

absl::Status CheckAtLeast(std::string_view field, int64_t value, int64_t low) {
  if (value >= low) return absl::OkStatus();
  return InvalidArgument(field, " must be at least ", low, ", got ", value);
}

absl::Status CheckRange(std::string_view field, int64_t value, int64_t low,
                        int64_t high, std::string_view why_high) {
  RETURN_IF_ERROR(CheckAtLeast(field, value, low));
  if (value <= high) return absl::OkStatus();
  return InvalidArgument(field, " must be at most ", high, why_high, ", got ",
                         value);
}

absl::Status CheckFloat32(std::string_view field, double value) {
  if (std::isfinite(static_cast<float>(value))) return absl::OkStatus();
  return InvalidArgument(field, " must be finite and within float32, got ",
                         value);
}

}  // namespace espalier
