// The twin of TransformerModel: the forward pass of a whole sequence in obvious
// loops and double arithmetic, without pages, batches or shared code.
#pragma once

#include <vector>

#include "base/ids.h"
#include "tests/model/tiny_model.h"

namespace espalier::testing {

// Logits after every token.
//   result  [tokens.size()][vocab_size]
std::vector<std::vector<double>> ReferenceLogits(
    const TinyModel& model, const std::vector<TokenId>& tokens);

}  // namespace espalier::testing
