// What strategies and selection need of a request's options, in the types the
// kernels use. All take `params` as ValidateParams leaves them.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "base/ids.h"
#include "base/shared_list.h"
#include "exec_request/step_plan.h"
#include "request/generation_params.h"

namespace espalier {

// Sequences that live at a step, at most: beams, or samples.
int NumSequences(const GenerationParams& params);

// Sequences that have pages, at most. The last token is never fed; where it is
// the only one, nothing is fed after the prompt.
int NumSlots(const GenerationParams& params);

// The EOS ids that end a sequence; and with them the stop ids. Ascending, each
// once.
SharedList<TokenId> DistinctEosTokenIds(const GenerationParams& params);
SharedList<TokenId> FinishingTokenIds(const GenerationParams& params);

// With the edits of a request for `prompt`. `allowed_owner` owns what
// allowed_sequences are looked up in, if there are any.
std::shared_ptr<const SelectionParams> MakeSelectionParams(
    const GenerationParams& params, std::span<const TokenId> prompt = {},
    std::shared_ptr<const void> allowed_owner = nullptr);

// Lengths have no upper bound in a request but the model's context, and n-gram
// sizes none at all: more than int can count behaves as that many.
constexpr int SaturateToInt(int64_t value) {
  constexpr int64_t kMax = std::numeric_limits<int>::max();
  return static_cast<int>(value < kMax ? value : kMax);
}

}  // namespace espalier
