#include "exec_request/plan_drafts.h"

#include "base/check.h"

namespace espalier {

std::span<const float> DraftLogits::values() const {
  CHECK(device_ == kHost) << "logits of GPU " << device_;
  return {logits_.get(), size_};
}

}  // namespace espalier
