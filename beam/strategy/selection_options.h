// Request options: converts a request's options to the types that strategies
// and selection use. All functions take `params` as ValidateParams leaves them.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "base/ids.h"
#include "base/shared_list.h"
#include "constrain/constraint.h"
#include "exec_request/step_plan.h"
#include "request/generation_params.h"

namespace espalier {

// Returns the kind of selection that the request's strategy describes.
SelectionKind KindOf(const GenerationParams& params);

// Returns the largest number of sequences with pages. The last token is never
// fed; if it is the only one, nothing is fed after the prompt.
int NumSlots(const GenerationParams& params);

// Return the EOS ids that end a sequence; and the EOS and stop ids. Ascending,
// without duplicates.
SharedList<TokenId> DistinctEosTokenIds(const GenerationParams& params);
SharedList<TokenId> FinishingTokenIds(const GenerationParams& params);

// Returns the params with the edits of a request for `prompt`. `constraint`
// owns the allow lists, if there are any.
//   has_token_masks  ModelDescription's: tables of `constraint` replace lists
std::shared_ptr<const SelectionParams> MakeSelectionParams(
    const GenerationParams& params, std::span<const TokenId> prompt = {},
    std::shared_ptr<const Constraint> constraint = nullptr,
    bool has_token_masks = false);

// Clamps to int. In a request lengths are bounded only by the model's context,
// and n-gram sizes not at all.
constexpr int SaturateToInt(int64_t value) {
  constexpr int64_t kMax = std::numeric_limits<int>::max();
  return static_cast<int>(value < kMax ? value : kMax);
}

}  // namespace espalier
