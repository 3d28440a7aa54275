// Random rows of logits with random options, on which samplers are compared
// with their twins.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "kernels/sample/sample.h"
#include "tests/kernels/row_cases.h"

namespace espalier {

// A row, and its draws; c.options does not have the edits yet.
struct RandomCase {
  std::string kind;
  std::vector<float> logits;
  std::vector<TokenEdit> edits;
  DrawOptions options;
};

template <typename T>
T OneOf(std::mt19937& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

inline std::vector<TokenEdit> RandomEdits(std::mt19937& random,
                                          int vocab_size) {
  std::vector<TokenEdit> edits;
  for (TokenId t = random() % 5; t < vocab_size; t += 1 + random() % 50) {
    edits.push_back({.token = t,
                     .banned = random() % 7 == 0,
                     .repeated = random() % 2 == 0,
                     .bias = OneOf(random, {0.0f, 1.0f, -2.0f}),
                     .penalty = OneOf(random, {0.0f, 0.5f})});
  }
  return edits;
}

inline SamplingParams RandomParams(std::mt19937& random) {
  return {.temperature =
              OneOf(random, {1.0f, 1.0f, 0.7f, 1.3f, 0.0f, 1e-3f, 50.0f}),
          .min_p = OneOf(random, {0.0f, 0.0f, 0.05f, 0.5f, 1.0f}),
          .top_k = OneOf(random, {0, 0, 1, 50, 400, 5000}),
          .top_p = OneOf(random, {1.0f, 0.9f, 0.5f, 0.1f}),
          .typical_p = OneOf(random, {1.0f, 1.0f, 0.9f, 0.3f}),
          .seed = random()};
}

inline RandomCase DrawRandomCase(std::mt19937& random) {
  RandomCase c;
  c.kind =
      OneOf<std::string>(random, {"normal", "ties", "near ties", "constant",
                                  "rising", "peak", "outliers", "widest"});
  const int vocab_size =
      OneOf(random, {1, 2, 63, 64, 65, 700, 1024, 1025, 3000, 20000});
  c.logits = Row(c.kind, vocab_size);
  const float factor = OneOf(random, {1.0f, 1.0f, 0.01f, 0.1f});
  if (c.kind != "widest") {
    for (float& l : c.logits) l *= factor;
  }
  if (random() % 2 == 0) c.edits = RandomEdits(random, vocab_size);
  c.options = {.params = RandomParams(random),
               .sample = static_cast<uint32_t>(random() % 10),
               .position = static_cast<uint32_t>(random() % 1000),
               .repetition_penalty = 1.3f,
               .is_allow_list = random() % 10 == 0};
  // Distances that differ by less than the rounding of a float32 may change
  // places, and here all do.
  if (c.kind == "near ties") c.options.params.typical_p = 1;
  return c;
}

}  // namespace espalier
