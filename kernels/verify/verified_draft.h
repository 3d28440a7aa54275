// VerifiedDraft: what verification says of one draft, where the device that
// verified it finds it again.
#pragma once

#include "base/ids.h"

namespace espalier {

struct VerifiedDraft {
  int num_accepted = 0;  // of its tokens, from the first on
  TokenId next = 0;      // what follows these; negative: it could not be drawn
};

}  // namespace espalier
