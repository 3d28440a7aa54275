// The check of results at a deadline accepts every possible result, and rejects
// any other.
#include "tests/sim/best_so_far.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

Hypothesis Sample(std::vector<TokenId> tokens, float score,
                  FinishReason reason = FinishReason::kDeadline) {
  return {.tokens = std::move(tokens),
          .score = score,
          .cum_log_prob = score,
          .finish_reason = reason};
}

// Alone the request fails after this step: one sample lives, one has ended.
const SearchStates kAlone = {
    {Sample({1, 2}, -1), Sample({1, 0}, -2, FinishReason::kEos)}};

std::string Check(std::vector<Hypothesis> hypotheses, bool fails_alone = true) {
  GenerationParams params;
  params.do_sample = true;
  params.num_return_sequences = 2;
  params.speculate = {SpeculationMethod::kNgram, 4, SpeculationMode::kCoupled};
  Result result;
  result.hypotheses = std::move(hypotheses);
  result.usage.num_steps = 1;
  return CheckBestSoFar(params, result, kAlone, fails_alone, 1);
}

TEST(BestSoFarTest, SamplesMayBeAheadOfOneThatFailsAlone) {
  EXPECT_EQ(Check(kAlone[0]), "");
  EXPECT_EQ(Check(kAlone[0], false), "");
  EXPECT_EQ(Check({Sample({1, 2, 3}, -1.5)}), "");
  EXPECT_EQ(Check({Sample({1, 2, 3, 0}, -1.5, FinishReason::kEos)}), "");
}

TEST(BestSoFarTest, WhatGoesOnFromNoLivingSampleIsRefused) {
  const auto is_refused = HasSubstr("at no step alone");
  EXPECT_THAT(Check({Sample({1, 2, 3}, -1.5)}, false), is_refused);
  EXPECT_THAT(Check({Sample({1, 3, 3}, -1.5)}), is_refused);
  // A token after the end; likelier than its prefix; two from one sequence.
  EXPECT_THAT(Check({Sample({1, 0, 3}, -2.5)}), is_refused);
  EXPECT_THAT(Check({Sample({1, 2, 3}, -0.5)}), is_refused);
  EXPECT_THAT(Check({Sample({1, 2, 3}, -1.5), Sample({1, 2, 4}, -1.6f)}),
              is_refused);
}

}  // namespace
}  // namespace espalier::testing
