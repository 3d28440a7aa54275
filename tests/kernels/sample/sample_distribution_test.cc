// Draws follow the distribution that the twin enumerates, for every combination
// of filters: chi-square tests at fixed seeds. That samples drawn together are
// those drawn one by one is sample_test.cc's law.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

#include "tests/few_cases.h"
#include "tests/kernels/sample/sampler_checks.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::FewCases;
using ::espalier::testing::kLeastPValue;

// Some tokens penalised, biased and banned.
ScoreProcessors SomeProcessors(int vocab_size) {
  ScoreProcessors processors;
  processors.repetition_penalty = 1.3f;
  processors.frequency_penalty = 0.2f;
  processors.presence_penalty = 0.1f;
  for (TokenId t = 1; t < std::min(vocab_size, 200); t += 5) {
    processors.logit_bias.push_back({t, t % 2 == 0 ? 1.0f : -0.5f});
  }
  if (vocab_size > 3) processors.suppress_tokens = {3};
  return processors;
}

// Bit 0 min_p, 1 top_k, 2 top_p, 3 typical_p, 4 temperature, 5 processors.
DrawCase CaseOf(int options, int vocab_size) {
  DrawCase c = {.logits = Normal(vocab_size, options)};
  for (float& l : c.logits) l *= 0.5f;
  c.params.seed = 1000 + options;
  if (options & 1) c.params.min_p = 0.02f;
  if (options & 2) c.params.top_k = std::max(1, vocab_size / 3);
  if (options & 4) c.params.top_p = 0.85f;
  if (options & 8) c.params.typical_p = 0.8f;
  if (options & 16) c.params.temperature = 1.4f;
  if (options & 32) {
    c.processors = SomeProcessors(vocab_size);
    for (int i = 0; i < 20; ++i) c.history.push_back(i * 7 % vocab_size);
    c.num_generated = 12;
  }
  return c;
}

// Draws against the enumerated distribution of the twin; each position draws
// for kSamples samples at once, which reads and filters the row once.
double PValueOf(const DrawCase& c, int num_draws) {
  constexpr int kSamples = 50;
  std::vector<int> samples(kSamples);
  std::iota(samples.begin(), samples.end(), 0);
  const RowEdits edits = EditsOf(c, c.history);
  DrawOptions options = OptionsOf(c, edits);
  const std::vector<double> probabilities =
      reference::DrawProbabilities(c.logits, options);
  std::vector<int64_t> counts(probabilities.size());
  for (; static_cast<int>(options.position) * kSamples < num_draws;
       ++options.position) {
    for (const Draw& draw : DrawSamples(c.logits, options, samples)) {
      if (draw.token < 0) return 0;
      ++counts[draw.token];
    }
  }
  return testing::ChiSquarePValue(probabilities, counts);
}

class SampleDistributionTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(VocabularySizes, SampleDistributionTest,
                         ::testing::Values(2, 64, 500, 4096),
                         ::testing::PrintToStringParamName());

TEST_P(SampleDistributionTest, EveryCombinationOfFiltersIsAsEnumerated) {
  const int vocab_size = GetParam();
  const int num_draws =
      Cases(std::max(20000, 10 * vocab_size), std::max(1000, vocab_size / 2));
  double least = 1;
  int num_tests = 0;
  for (int options = 0; options < 64; ++options) {
    // For the largest rows, all filters with and without both other options.
    if (vocab_size == 4096 && options / 16 % 3 != 0) continue;
    if (vocab_size > 64 && FewCases() && options % 3 != 0) continue;
    const double p = PValueOf(CaseOf(options, vocab_size), num_draws);
    EXPECT_GE(p, kLeastPValue) << "options " << options;
    least = std::min(least, p);
    ++num_tests;
  }
  std::printf("%d tokens, %d x %d draws: least p-value %.3g\n", vocab_size,
              num_tests, num_draws, least);
}

TEST(SampleManyDrawsTest, AMillionDrawsAreAsEnumerated) {
  for (const int options : {4 + 16, 2 + 4 + 16}) {
    EXPECT_GE(PValueOf(CaseOf(options, 50), Cases(1000000, 50000)),
              kLeastPValue)
        << options;
  }
}

}  // namespace
}  // namespace espalier
