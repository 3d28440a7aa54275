// LengthToEnd: length of a draft up to the end of its sequence. Drafts stop at
// a token that ends the sequence. The ending token itself need not be in the
// draft, because the step that verifies it samples one token more. If
// acceptance depends on the logits that the draft was drawn from
// (NeedsDraftLogits), the ending token is kept: rejection sampling follows the
// model's distribution only if every sampled token is verified.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/ids.h"

namespace espalier {

// Returns the number of tokens of `draft` before the first one in `ids`, which
// are ascending and end a sequence; including that one if `keeps_end`.
inline size_t LengthToEnd(std::span<const TokenId> draft,
                          std::span<const TokenId> ids, bool keeps_end) {
  const auto end = std::ranges::find_if(draft, [&](TokenId token) {
    return std::ranges::binary_search(ids, token);
  });
  const size_t length = end - draft.begin();
  return keeps_end && end != draft.end() ? length + 1 : length;
}

}  // namespace espalier
