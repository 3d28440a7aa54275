// Bit-exactness of any model on the CPU: a sequence's logits are the same alone
// and in any batch.
#pragma once

#include <vector>

#include "exec_request/model.h"

namespace espalier::testing {

// Random tokens for the model's encoder; none if it has no encoder.
std::vector<TokenId> SourceFor(const Model& model, int length, int seed);

// Twelve sequences of up to `longest` tokens join, grow by a few tokens and
// pause at random; whatever happens around them, their logits are those they
// have alone.
void ExpectSameBitsInAnyBatch(Model* model, int longest, int seed);

}  // namespace espalier::testing
