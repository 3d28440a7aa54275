// VerifiedDraft: what verification says of one draft, where the device that
// verified it finds it again.
#pragma once

#include "base/ids.h"

namespace espalier {

struct VerifiedDraft {
  int num_accepted = 0;  // of its tokens, from the first on
  TokenId next = 0;      // what follows these; negative: it could not be drawn
};

// As one goes on from it, on the host as on a device: what could not be drawn
// is fed as 0, and after a step that failed, of which it may say anything, it
// accepts no more than there is.
constexpr VerifiedDraft Within(VerifiedDraft verified, int max_accepted) {
  if (verified.num_accepted < 0) verified.num_accepted = 0;
  if (verified.num_accepted > max_accepted)
    verified.num_accepted = max_accepted;
  if (verified.next < 0) verified.next = 0;
  return verified;
}

}  // namespace espalier
