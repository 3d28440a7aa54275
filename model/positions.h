// Position encodings other than RoPE and learned tables: sinusoidal positions,
// which are added to the embeddings, and relative position biases, which are
// added to attention scores.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "model/transformer_config.h"

namespace espalier {

// Returns [num_positions, size]. Row p has sin(p / 10000^(2 i / size)) in its
// first half and the cosines in its second, which is Marian's order of Vaswani
// et al. 2017, section 3.5. If `size` is odd, the first half is longer by one.
std::vector<float> SinusoidalPositions(int num_positions, int size);

// Returns [num_positions, size]. Row p has the sines of the angles
// (first + p) / 10000^(i / (size / 2 - 1)) in its first half and the cosines in
// its second, in tensor2tensor's order and as M2M100 of transformers computes
// them, in float32. If `size` is odd, the last column is 0.
// REQUIRES: size >= 4.
std::vector<float> Tensor2TensorPositions(int first, int num_positions,
                                          int size);

// Returns the table of config.sinusoids, [num_positions, hidden_size], whose
// row 0 is that of position 0.
std::vector<float> SinusoidTable(const TransformerConfig& config,
                                 int num_positions);

// Checks that `stored` equals SinusoidalPositions, within 1e-3 plus the
// rounding to `dtype`: transformers adds the stored positions instead of
// computed ones.
//   stored  [num_positions, size]
// Errors: kInvalidArgument naming the first value that differs.
absl::Status CheckSinusoidalPositions(std::span<const std::byte> stored,
                                      DType dtype, int num_positions, int size);

// T5's relative position biases, written out for each distance
// (AttentionOptions::biases).
//   buckets   [num_buckets, num_heads]
//   sees_all  true (encoder): half of the buckets are for keys after the query;
//             false (decoder): there are no such keys
//   result    [num_heads, 2 * max_distance + 1]
// Half of a direction's buckets cover one distance each, the others ranges that
// grow logarithmically, computed in float32 as in transformers.
// Source: Raffel et al. 2020, section 2.1, https://arxiv.org/abs/1910.10683.
std::vector<float> BiasesByDistance(std::span<const float> buckets,
                                    int num_heads, int max_distance,
                                    bool sees_all);

}  // namespace espalier
