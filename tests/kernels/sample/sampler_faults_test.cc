// Sensitivity of the sampler's checks: the real sampler passes all of them, and
// every planted fault fails one. Prints which.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "tests/few_cases.h"
#include "tests/kernels/sample/sampler_checks.h"

namespace espalier {
namespace {

using ::espalier::testing::FewCases;
using ::espalier::testing::kLeastPValue;

RandomKey DrawKey(const DrawCase& c, uint32_t sample, uint32_t position) {
  return {.seed = c.params.seed, .sample = sample, .position = position};
}

std::vector<double> Probabilities(const DrawCase& c) {
  const RowEdits edits = EditsOf(c, c.history);
  return reference::DrawProbabilities(c.logits, OptionsOf(c, edits));
}

TokenId Invert(const std::vector<double>& p, double uniform) {
  double sum = 0;
  TokenId last = kNoToken;
  for (TokenId t = 0; t < std::ssize(p); ++t) {
    if (p[t] == 0) continue;
    last = t;
    sum += p[t];
    if (sum > uniform) break;
  }
  return last;
}

// A number that can be 0, and a comparison that takes a token of probability 0
// then.
Sampler FloatUniform() {
  Sampler sampler = RealSampler();
  sampler.draw = [](const DrawCase& c, uint32_t sample, uint32_t position,
                    int) {
    const RandomWords random = WordsAt(DrawKey(c, sample, position), 0);
    const float uniform = static_cast<float>(random.words[0] >> 8) * 0x1p-24f;
    const std::vector<double> p = Probabilities(c);
    double sum = 0;
    for (TokenId t = 0; t < std::ssize(p); ++t) {
      sum += p[t];
      if (sum >= uniform) return t;
    }
    return static_cast<TokenId>(p.size() - 1);
  };
  return sampler;
}

Sampler SharedPurposes() {
  Sampler sampler = RealSampler();
  sampler.noise = [](uint64_t seed, uint32_t rank, uint32_t position,
                     TokenId token) {
    RandomKey key = GumbelKey(seed, rank, position);
    key.purpose = RandomPurpose::kDraw;
    return Gumbel(key, token);
  };
  return sampler;
}

Sampler NoiseOfRow() {
  Sampler sampler = RealSampler();
  sampler.draw = [](const DrawCase& c, uint32_t, uint32_t position, int row) {
    return RealSampler().draw(c, row, position, row);
  };
  return sampler;
}

Sampler NoiseOfEvenPositions() {
  Sampler sampler = RealSampler();
  sampler.draw = [](const DrawCase& c, uint32_t sample, uint32_t position,
                    int row) {
    return RealSampler().draw(c, sample, position / 2, row);
  };
  return sampler;
}

Sampler SampleLeftOut() {
  Sampler sampler = RealSampler();
  sampler.draw = [](const DrawCase& c, uint32_t, uint32_t position, int row) {
    return RealSampler().draw(c, 0, position, row);
  };
  return sampler;
}

// Both of the whole distribution.
Sampler JointTopKTopP() {
  Sampler sampler = RealSampler();
  sampler.draw = [](const DrawCase& c, uint32_t sample, uint32_t position,
                    int) {
    DrawCase only_k = c, only_p = c;
    only_k.params.top_p = 1;
    only_p.params.top_k = 0;
    std::vector<double> p = Probabilities(only_k);
    const std::vector<double> in_p = Probabilities(only_p);
    double sum = 0;
    for (size_t t = 0; t < p.size(); ++t) sum += in_p[t] > 0 ? p[t] : 0;
    for (size_t t = 0; t < p.size(); ++t) p[t] = in_p[t] > 0 ? p[t] / sum : 0;
    return Invert(p, Uniform(DrawKey(c, sample, position), 0));
  };
  return sampler;
}

// Penalties that ignore the last token.
Sampler LastTokenNotCounted() {
  Sampler sampler = RealSampler();
  sampler.draw = [](const DrawCase& c, uint32_t sample, uint32_t position,
                    int row) {
    DrawCase shorter = c;
    if (c.num_generated > 0) {
      shorter.history.pop_back();
      --shorter.num_generated;
    }
    return RealSampler().draw(shorter, sample, position, row);
  };
  return sampler;
}

// Penalties of generated tokens that count one token of the prompt.
Sampler PromptTokenCounted() {
  Sampler sampler = RealSampler();
  sampler.draw = [](const DrawCase& c, uint32_t sample, uint32_t position,
                    int row) {
    DrawCase more = c;
    more.num_generated =
        std::min<int>(c.num_generated + 1, static_cast<int>(c.history.size()));
    return RealSampler().draw(more, sample, position, row);
  };
  return sampler;
}

// One line of the table; the least p-value.
double Report(const char* name, const Sampler& sampler) {
  std::printf("%-40s", name);
  double least = 1;
  for (const Check& check : kSamplerChecks) {
    const double p = check.p_value(sampler);
    std::printf(" %14.3g", p);
    least = std::min(least, p);
  }
  std::printf("\n");
  return least;
}

void ReportHead() {
  std::printf("%-40s", "p-values");
  for (const Check& check : kSamplerChecks) std::printf(" %14s", check.name);
  std::printf("\n");
}

TEST(SamplerChecksTest, TheSamplerPassesAll) {
  ReportHead();
  EXPECT_GE(Report("no fault", RealSampler()), kLeastPValue);
}

TEST(SamplerChecksTest, EveryPlantedFaultFailsOne) {
  const struct {
    const char* name;
    Sampler sampler;
  } kFaults[] = {
      {"float32 uniforms that can be 0", FloatUniform()},
      {"noise shared between purposes", SharedPurposes()},
      {"noise that depends on the row", NoiseOfRow()},
      {"noise that two positions share", NoiseOfEvenPositions()},
      {"noise that samples share", SampleLeftOut()},
      {"joint instead of sequential top_k, top_p", JointTopKTopP()},
      {"penalties without the last token", LastTokenNotCounted()},
      {"penalties with a token of the prompt", PromptTokenCounted()},
  };
  ReportHead();
  for (const auto& fault : kFaults) {
    // Failures here are those of this file's faulty samplers.
    if (FewCases() && &fault != kFaults) break;
    EXPECT_LT(Report(fault.name, fault.sampler), kLeastPValue) << fault.name;
  }
}

}  // namespace
}  // namespace espalier
