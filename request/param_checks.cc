#include "request/param_checks.h"

#include <cmath>

#include "base/json.h"

namespace espalier {

absl::Status CheckAtLeast(std::string_view field, int64_t value, int64_t low) {
  if (value >= low) return absl::OkStatus();
  return InvalidField(FieldName{field}, " must be at least ", Limit(low),
                      Got(value));
}

absl::Status CheckRange(std::string_view field, int64_t value, int64_t low,
                        int64_t high, Prose why_high) {
  RETURN_IF_ERROR(CheckAtLeast(field, value, low));
  if (value <= high) return absl::OkStatus();
  return InvalidField(FieldName{field}, " must be at most ", Limit(high),
                      why_high, Got(value));
}

absl::Status CheckFloat32(std::string_view field, double value) {
  if (std::isfinite(static_cast<float>(value))) return absl::OkStatus();
  return InvalidField(FieldName{field}, " must be finite and within float32",
                      Got(value));
}

absl::Status CheckName(std::string_view field, const std::string& name,
                       int64_t max_bytes) {
  if (!IsUtf8(name)) return InvalidField(FieldName{field}, " is not UTF-8");
  if (std::ssize(name) <= max_bytes) return absl::OkStatus();
  return InvalidField(FieldName{field}, " must have at most ", Limit(max_bytes),
                      " bytes", Got(name.size(), ": ", ShownInQuotes(name)));
}

}  // namespace espalier
