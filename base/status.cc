#include "base/status.h"

#include <utility>

#include "absl/strings/cord.h"

namespace espalier {
namespace {

constexpr char kForGood[] = "espalier/for_good";

}  // namespace

absl::Status ForGood(absl::Status status) {
  status.SetPayload(kForGood, absl::Cord());
  return status;
}

bool IsForGood(const absl::Status& status) {
  return status.GetPayload(kForGood).has_value();
}

absl::Status WithMessage(const absl::Status& status, std::string_view message) {
  absl::Status same = MakeError(status.code(), message);
  return IsForGood(status) ? ForGood(std::move(same)) : same;
}

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  return WithMessage(status, Concat(context, ": ", ToStd(status.message())));
}

std::string CodeName(absl::StatusCode code) {
  return absl::StatusCodeToString(code);
}

}  // namespace espalier
