// Scores of attention themselves, scale * q k^T before the softmax, which
// alignments read (base/alignment.h).
#pragma once

#include <span>

#include "base/ids.h"
#include "kernels/kv_cache/kv_layer.h"

namespace espalier {

// Fills scores[p] with scale * q k^T of the key at position p. A score depends
// on its query and key alone: the same bits at any page size.
//   q       [head_dim]
//   pages   of positions [0, scores.size()) at least
//   scores  [positions]  out
// REQUIRES: kv_head < layer.num_kv_heads.
void AttentionScores(std::span<const float> q, std::span<const PageId> pages,
                     const KvLayer& layer, int kv_head, float scale,
                     std::span<float> scores);

}  // namespace espalier
