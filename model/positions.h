// What tells tokens where they are, in families that neither rotate queries and
// keys nor learn a table: sines and cosines that are added to the embeddings,
// and biases of scores by distance.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/dtype.h"

namespace espalier {

// [num_positions, size]: of position p, sin(p / 10000^(2 i / size)) in the
// first half, the cosines of the same in the second: Marian's order of Vaswani
// et al. 2017, section 3.5. Of an odd size the first half has one more.
std::vector<float> SinusoidalPositions(int num_positions, int size);

// Whether `stored`, [num_positions, size], are those. transformers adds stored
// positions in the place of computed ones. Each may be off by 1e-3, and by what
// rounding to `dtype` makes of it.
// Errors: kInvalidArgument naming the first that is not.
absl::Status CheckSinusoidalPositions(std::span<const std::byte> stored,
                                      DType dtype, int num_positions, int size);

// T5's relative position biases, written out for each distance
// (AttentionOptions::biases).
//   buckets   [num_buckets, num_heads]
//   sees_all  half of the buckets are for keys after the query; else there are
//             no such keys
//   result    [num_heads, 2 * max_distance + 1]
// Half of a direction's buckets are of one distance each, the others of
// logarithmically growing ranges, computed in float32 as transformers does.
// Source: Raffel et al. 2020, section 2.1, https://arxiv.org/abs/1910.10683.
std::vector<float> BiasesByDistance(std::span<const float> buckets,
                                    int num_heads, int max_distance,
                                    bool sees_all);

}  // namespace espalier
