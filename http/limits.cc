#include "http/limits.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/status.h"

namespace espalier::http {

namespace {

absl::Status CheckNumber(std::string_view name, int64_t value) {
  if (value > 0) return absl::OkStatus();
  return InvalidArgument(name, " must be positive, got ", value);
}

absl::Status CheckDuration(std::string_view name, absl::Duration value) {
  if (value > absl::ZeroDuration()) return absl::OkStatus();
  return InvalidArgument(name, " must be positive, got ",
                         ToStd(absl::FormatDuration(value)));
}

}  // namespace

std::string InParentheses(std::string_view name) {
  return name.empty() ? "" : Concat(" (", name, ")");
}

std::string MustHaveAtMost(const NamedLimit& limit, std::string_view unit,
                           std::string_view got) {
  return Concat("must have at most ", limit.value, " ", unit,
                InParentheses(limit.name), ", got ", got);
}

absl::Status Limits::Check() const {
  RETURN_IF_ERROR(CheckNumber("max_header_bytes", max_header_bytes));
  RETURN_IF_ERROR(CheckNumber("max_headers", max_headers));
  RETURN_IF_ERROR(CheckNumber("max_body_bytes", max_body_bytes));
  RETURN_IF_ERROR(CheckNumber("max_unread_bytes", max_unread_bytes));
  RETURN_IF_ERROR(CheckNumber("max_connections", max_connections));
  RETURN_IF_ERROR(CheckNumber("max_lingering", max_lingering));
  RETURN_IF_ERROR(CheckNumber("min_body_rate", min_body_rate));
  RETURN_IF_ERROR(CheckNumber("min_write_rate", min_write_rate));
  RETURN_IF_ERROR(CheckDuration("header_timeout", header_timeout));
  RETURN_IF_ERROR(CheckDuration("body_timeout", body_timeout));
  RETURN_IF_ERROR(CheckDuration("idle_timeout", idle_timeout));
  RETURN_IF_ERROR(CheckDuration("write_timeout", write_timeout));
  RETURN_IF_ERROR(
      CheckDuration("crowded_write_timeout", crowded_write_timeout));
  RETURN_IF_ERROR(CheckDuration("linger_timeout", linger_timeout));
  RETURN_IF_ERROR(CheckDuration("max_linger", max_linger));
  if (max_unsent_bytes < 0) {
    return InvalidArgument("max_unsent_bytes must not be negative, got ",
                           max_unsent_bytes);
  }
  return absl::OkStatus();
}

}  // namespace espalier::http
