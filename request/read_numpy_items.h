// Items from a file of NumPy (numpy.save), an array of token ids with a row for
// each item:
//
//   numpy.save("songs.npy", numpy.array([[17, 4095, 3], [17, 9, -1]], "int32"))
//
// A row ends at its first -1, which fills it up.
//
// Thread safety: functions without state.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "constrain/item_trie_builder.h"

namespace espalier {

// True if the bytes begin as files of NumPy do.
bool IsNumpyFile(std::string_view bytes);

// Returns the items of a file with a two-dimensional array of int16, uint16,
// int32, uint32, int64 or uint64, little-endian and in C order.
//   end_ids  as of ReadItems
// Errors: kInvalidArgument naming the part of the header that is another one,
// or the row, from 0, and what is wrong with it.
absl::StatusOr<TokenLists> ReadNumpyItems(std::string_view bytes,
                                          int vocab_size,
                                          std::span<const TokenId> end_ids);

}  // namespace espalier
