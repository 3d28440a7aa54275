// BuildItemTrie on a device: the trie of a catalogue, in equal arrays
// (constrain/item_trie_builder.h).
//
//   sort      items by keys of several tokens, the last tokens first
//   compare   each item with the one before it: tokens in common
//   number    level by level: an item has a new node on each level beyond what
//             it has in common, so a prefix sum numbers the nodes
//
// It takes memory of the device, 28 bytes a token and 36 an item at most, and
// frees it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/item_trie_arrays.h"

namespace espalier {

// The longest item that a device sorts: it has a pass for each few tokens.
inline constexpr int32_t kMaxCudaItemTokens = 64;

// Returns the trie of items [ends.size()], of which the i-th has
// tokens[ends[i - 1], ends[i]), with 0 before the first; in host memory. Drops
// duplicates and empty items. Waits for `stream`.
// REQUIRES: at most ItemTrieArrays::kMaxTokens tokens, none negative; `ends`
// ascending, the last tokens.size(). Errors: kResourceExhausted without the
// memory; kOutOfRange if an item has more than kMaxCudaItemTokens tokens; else
// as base/cuda.h.
absl::StatusOr<ItemTrieArrays> CudaBuildItemTrie(
    std::span<const TokenId> tokens, std::span<const uint32_t> ends,
    cudaStream_t stream);

}  // namespace espalier
