#include "base/status.h"

#include <utility>

#include "absl/strings/cord.h"

namespace espalier {
namespace {

constexpr char kPermanent[] = "espalier/permanent";

}  // namespace

absl::Status MarkPermanent(absl::Status status) {
  status.SetPayload(kPermanent, absl::Cord());
  return status;
}

bool IsPermanent(const absl::Status& status) {
  return status.GetPayload(kPermanent).has_value();
}

absl::Status WithMessage(const absl::Status& status, std::string_view message) {
  absl::Status same = MakeError(status.code(), message);
  return IsPermanent(status) ? MarkPermanent(std::move(same)) : same;
}

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  return WithMessage(status, Concat(context, ": ", ToStd(status.message())));
}

std::string CodeName(absl::StatusCode code) {
  return absl::StatusCodeToString(code);
}

}  // namespace espalier
