// Checks of a sampler. Each returns a p-value of the observed draws, under the
// hypothesis that the sampler follows kernels/sample/sample.h. A sampler is a
// function, so that the same checks run on the real one and on ones with a
// planted fault.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/gumbel_topk/gumbel_topk.h"
#include "kernels/logits/score_processors.h"
#include "kernels/sample/sample.h"
#include "tests/kernels/row_cases.h"
#include "tests/p_value.h"

namespace espalier {

// Input of a draw: a row of a batch, and a text.
struct DrawCase {
  std::vector<float> logits;
  SamplingParams params = {};
  ScoreProcessors processors = {};
  std::vector<TokenId> history = {};
  int num_generated = 0;
};

struct Sampler {
  // The token that `sample` of the request draws at `position`, from whatever
  // row of a batch it lies in.
  std::function<TokenId(const DrawCase&, uint32_t sample, uint32_t position,
                        int row)>
      draw;
  // The noise of a token of a beam.
  std::function<double(uint64_t seed, uint32_t rank, uint32_t position,
                       TokenId)>
      noise;
};

inline RowEdits EditsOf(const DrawCase& c, std::span<const TokenId> history) {
  return CollectEdits(c.processors, history, c.num_generated,
                      static_cast<int>(c.logits.size()));
}

inline DrawOptions OptionsOf(const DrawCase& c, const RowEdits& edits) {
  return {.params = c.params,
          .repetition_penalty = c.processors.repetition_penalty,
          .edits = edits.edits,
          .is_allow_list = edits.is_allow_list};
}

inline Sampler RealSampler() {
  return {
      .draw =
          [](const DrawCase& c, uint32_t sample, uint32_t position, int) {
            const RowEdits edits = EditsOf(c, c.history);
            DrawOptions options = OptionsOf(c, edits);
            options.sample = sample;
            options.position = position;
            return DrawRow(c.logits, options).token;
          },
      .noise =
          [](uint64_t seed, uint32_t rank, uint32_t position, TokenId token) {
            return Gumbel(GumbelKey(seed, rank, position), token);
          }};
}

// `num_draws` draws against `probabilities`. Samples, positions and rows vary.
inline double DrawsPValue(const Sampler& sampler, const DrawCase& c,
                          std::span<const double> probabilities,
                          int num_draws) {
  std::vector<int64_t> counts(probabilities.size());
  for (int i = 0; i < num_draws; ++i) {
    const TokenId token = sampler.draw(c, i % 3, i / 3, i % 64);
    if (token < 0) return 0;
    ++counts[token];
  }
  return testing::ChiSquarePValue(probabilities, counts);
}

// Against the enumerated distribution of the twin.
inline double TwinPValue(const Sampler& sampler, const DrawCase& c,
                         int num_draws) {
  const RowEdits edits = EditsOf(c, c.history);
  return DrawsPValue(
      sampler, c, reference::DrawProbabilities(c.logits, OptionsOf(c, edits)),
      num_draws);
}

// At these positions, seed 1 draws a number below 2^-24, which becomes 0 if
// only its first 24 bits are converted to float32. A token of probability 0
// must not be sampled.
inline double LeastUniformsPValue(const Sampler& sampler) {
  DrawCase c = {.logits = {0, 0, 0, 0}, .params = {.seed = 1}};
  c.processors.suppress_tokens = {0};
  for (const uint32_t position :
       {24033162u, 48243344u, 64017375u, 64834730u, 64985377u, 70834991u}) {
    if (sampler.draw(c, 0, position, 0) == 0) return 0;
  }
  return 1;
}

// A draw must be independent of a beam's noise with the same seed and position.
inline double PurposesPValue(const Sampler& sampler) {
  constexpr int kBins = 8, kDraws = 50000;
  const DrawCase c = {.logits = std::vector<float>(kBins, 0.0f),
                      .params = {.seed = 77}};
  std::vector<int64_t> counts(kBins * kBins);
  for (uint32_t i = 0; i < kDraws; ++i) {
    const double noise = sampler.noise(c.params.seed, 0, i, 0);
    const int bin = static_cast<int>(kBins * std::exp(-std::exp(-noise)));
    ++counts[sampler.draw(c, 0, i, 0) * kBins + bin];
  }
  return testing::ChiSquarePValue(
      std::vector<double>(kBins * kBins, 1.0 / (kBins * kBins)), counts);
}

// Draws at successive positions, and of successive samples: pairs of tokens are
// as likely as if they had nothing to do with each other.
inline double PairsPValue(const Sampler& sampler) {
  constexpr int kTokens = 8, kDraws = 50000;
  const DrawCase c = {.logits = std::vector<float>(kTokens, 0.0f),
                      .params = {.seed = 5}};
  std::vector<int64_t> positions(kTokens * kTokens), samples(positions);
  for (uint32_t i = 0; i < kDraws; ++i) {
    const TokenId token = sampler.draw(c, 0, 2 * i, 0);
    ++positions[token * kTokens + sampler.draw(c, 0, 2 * i + 1, 0)];
    ++samples[token * kTokens + sampler.draw(c, 1, 2 * i, 0)];
  }
  const std::vector<double> even(positions.size(), 1.0 / positions.size());
  return std::min(testing::ChiSquarePValue(even, positions),
                  testing::ChiSquarePValue(even, samples));
}

// A request draws the same tokens in another row. This check is deterministic.
inline double RowsPValue(const Sampler& sampler) {
  const DrawCase c = {.logits = Normal(100, 3), .params = {.seed = 9}};
  for (uint32_t i = 0; i < 1000; ++i) {
    if (sampler.draw(c, 0, i, 0) != sampler.draw(c, 0, i, 5)) return 0;
  }
  return 1;
}

// top_k, then top_p of the rest.
inline double TopKThenTopPPValue(const Sampler& sampler) {
  DrawCase c = {.logits = Normal(50, 4),
                .params = {.temperature = 2.0f, .top_k = 8, .top_p = 0.75f}};
  return TwinPValue(sampler, c, 20000);
}

// Penalties: from first principles, without CollectEdits.
inline double PenaltiesPValue(const Sampler& sampler) {
  DrawCase c = {.logits = {1.0f, 0.5f, -0.5f, 0.25f, 0.0f, -1.0f},
                .history = {0, 5, 1, 2, 1, 1, 3, 2, 3},
                .num_generated = 7};
  c.processors.repetition_penalty = 1.5f;
  c.processors.frequency_penalty = 0.4f;
  c.processors.presence_penalty = 0.3f;
  std::vector<double> p;
  double sum = 0;
  for (TokenId t = 0; t < std::ssize(c.logits); ++t) {
    double logit = c.logits[t];
    int in_text = 0, generated = 0;
    for (int i = 0; i < std::ssize(c.history); ++i) {
      in_text += c.history[i] == t;
      generated += i >= 2 && c.history[i] == t;
    }
    if (in_text > 0) logit = logit < 0 ? logit * 1.5 : logit / 1.5;
    logit -= 0.4 * generated + (generated > 0 ? 0.3 : 0);
    p.push_back(std::exp(logit));
    sum += p.back();
  }
  for (double& x : p) x /= sum;
  return DrawsPValue(sampler, c, p, 50000);
}

struct Check {
  const char* name;
  double (*p_value)(const Sampler&);
};

inline constexpr std::array<Check, 6> kSamplerChecks = {{
    {"least uniforms", LeastUniformsPValue},
    {"purposes", PurposesPValue},
    {"pairs", PairsPValue},
    {"rows", RowsPValue},
    {"top_k, top_p", TopKThenTopPPValue},
    {"penalties", PenaltiesPValue},
}};

}  // namespace espalier
