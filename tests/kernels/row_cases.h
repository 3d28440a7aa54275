// Rows of logits that selection is tested on, and how its results compare.
#pragma once

#include <cmath>
#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/float_limits.h"
#include "kernels/select/select.h"

namespace espalier {

inline void PrintTo(const TokenScore& t, std::ostream* out) {
  *out << "{" << t.token << ", " << t.log_prob << "}";
}

using Scores = std::vector<TokenScore>;

// Logits as a model may give them.
inline std::vector<float> Normal(int size, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> logit(0, 3);
  std::vector<float> logits(size);
  for (float& l : logits) l = logit(random);
  return logits;
}

// Returns a row of logits of this kind.
inline std::vector<float> Row(const std::string& kind, int size) {
  std::vector<float> logits = Normal(size, size);
  for (int i = 0; i < size; ++i) {
    float& l = logits[i];
    const int h = static_cast<int>((int64_t{i} * 7919 + size) % 101);
    if (kind == "ties") l = std::round(l);
    if (kind == "near ties") l = 20 + std::ldexp(std::round(l), -19);
    if (kind == "constant") l = -12.3456f;
    if (kind == "rising") l = i * 0.01f;
    if (kind == "peak") l = i == size / 2 ? 30 : l;
    if (kind == "holes") l = h < 40 ? -kInf : h < 60 ? kNan : l;
    if (kind == "outliers") l = h == 3 ? 1e30f : h < 20 ? -1e30f * h : l;
    if (kind == "widest") l = h == 3 ? 3.4e38f : h < 50 ? -3.4e38f : l;
    if (kind == "infinite") l = h == 3 || i == 0 ? kInf : h == 4 ? kNan : l;
    if (kind == "nothing") l = h < 50 ? -kInf : kNan;
  }
  return logits;
}

// Bound of the difference between the two forms' log-probabilities (select.h).
inline float Tolerance(size_t vocab_size, float log_prob) {
  return 0x1p-23f *
         (std::log(static_cast<float>(vocab_size)) + 2 + std::abs(log_prob));
}

inline bool Near(float a, float b, float tolerance) {
  return a == b || std::abs(a - b) <= tolerance;
}

inline std::vector<TokenId> TokensOf(const Scores& scores) {
  std::vector<TokenId> tokens;
  for (const TokenScore& t : scores) tokens.push_back(t.token);
  return tokens;
}

}  // namespace espalier
