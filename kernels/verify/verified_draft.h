// VerifiedDraft: the result of verifying one draft, written by the device that
// verified it.
#pragma once

#include "base/ids.h"

namespace espalier {

struct VerifiedDraft {
  int num_accepted = 0;  // leading tokens of the draft
  TokenId next = 0;      // token after these; negative: none could be sampled
};

// Returns the result as the next step uses it, on the host and on the device: a
// token that could not be sampled becomes 0. After a failed step, whose result
// is arbitrary, num_accepted is clamped.
constexpr VerifiedDraft Within(VerifiedDraft verified, int max_accepted) {
  if (verified.num_accepted < 0) verified.num_accepted = 0;
  if (verified.num_accepted > max_accepted)
    verified.num_accepted = max_accepted;
  if (verified.next < 0) verified.next = 0;
  return verified;
}

}  // namespace espalier
