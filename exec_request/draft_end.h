// LengthToEnd: where a draft ends. After a token that ends its sequence nothing
// is drafted. That token itself need not be in the draft, since the step that
// verifies it draws one token more. But where acceptance depends on the logits
// that a draft was drawn from (NeedsDraftLogits), it is kept: rejection
// sampling follows the model's distribution only if every token that was drawn
// is verified, whichever it is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/ids.h"

namespace espalier {

// How many tokens of `draft` count: those up to the first one of `ids`,
// ascending, which end its sequence; and that one if `keeps_end`.
inline size_t LengthToEnd(std::span<const TokenId> draft,
                          std::span<const TokenId> ids, bool keeps_end) {
  const auto end = std::ranges::find_if(draft, [&](TokenId token) {
    return std::ranges::binary_search(ids, token);
  });
  const size_t length = end - draft.begin();
  return keeps_end && end != draft.end() ? length + 1 : length;
}

}  // namespace espalier
