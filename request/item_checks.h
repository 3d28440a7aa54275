// Checks of the items of a catalogue, however they are written.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "base/ids.h"

namespace espalier {

// Tokens of an item at most: a search of its end reads level by level.
inline constexpr int64_t kMaxItemTokens = 1024;

// Checks an item without the range of its tokens, and that all items so far
// have not too many tokens together.
//   end_ids  ids that end outputs, which an item has last or not at all
// Errors: kInvalidArgument with the number that is out of range, or the id.
absl::Status CheckItem(std::span<const TokenId> item, int64_t num_tokens_so_far,
                       std::span<const TokenId> end_ids);

}  // namespace espalier
