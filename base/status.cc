#include "base/status.h"

namespace espalier {

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  return MakeError(status.code(), context, ": ", ToStd(status.message()));
}

std::string CodeName(absl::StatusCode code) {
  return absl::StatusCodeToString(code);
}

}  // namespace espalier
