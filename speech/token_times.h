// Times of tokens by cross-attention: heads of a Whisper decoder look at the
// frames that they write about. Their attention, normalised and smoothed, is a
// matrix of tokens and frames, and the times are those of the likeliest path
// through it that goes forward in both (dynamic time warping).
//
// Thread safety: functions without state.
// Source: openai/whisper, whisper/timing.py.
#pragma once

#include <span>
#include <vector>

namespace espalier {

// Scores of attention before the softmax, [tokens, heads, positions].
struct AttentionScores3d {
  std::span<const float> values = {};
  int num_tokens = 0;
  int num_heads = 0;
  int num_positions = 0;
};

// Returns the matrix of tokens [first, first + count): the softmax over
// positions of each head, less its mean over all tokens, divided by its
// standard deviation over these, median-filtered over 7 positions and averaged
// over the heads.
//   result  [count, num_positions]
// REQUIRES: values has its shape's size; 0 <= first, first + count <=
// num_tokens; all counts are at least 1.
std::vector<float> AlignmentMatrix(const AttentionScores3d& scores, int first,
                                   int count);

// Returns the position at which the path of the largest sum through a matrix
// enters each row. The path goes from the first to the last corner, a row
// further, a position further, or both; both only if the sum before them is
// larger than those of the other two, and a row only if it is larger.
//   matrix  [num_rows, num_cols]
//   result  [num_rows], ascending
// NaN loses each comparison. REQUIRES: num_rows, num_cols >= 1.
std::vector<int> AlignRows(std::span<const float> matrix, int num_rows,
                           int num_cols);

}  // namespace espalier
