#include "speculate/speculation_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace espalier {
namespace {

TEST(SpeculationFiguresTest, StepsAreCountedByPlace) {
  SpeculationFigures figures;
  EXPECT_EQ(figures.AcceptanceRate(), 0);
  EXPECT_EQ(figures.TokensPerStep(), 1);
  figures.Record(3, 1);
  figures.Record(0, 0);
  figures.Record(2, 2);
  figures.Record(kMaxDraftTokens, 0);
  EXPECT_EQ(figures.num_target_steps, 4);
  EXPECT_EQ(figures.num_drafted_tokens, 5 + kMaxDraftTokens);
  EXPECT_EQ(figures.num_accepted_tokens, 3);
  EXPECT_EQ(figures.num_drafted_at[0], 3);
  EXPECT_EQ(figures.num_drafted_at[2], 2);
  EXPECT_EQ(figures.num_drafted_at[kMaxDraftTokens - 1], 1);
  EXPECT_EQ(figures.num_accepted_at[0], 2);
  EXPECT_EQ(figures.num_accepted_at[1], 1);
  EXPECT_EQ(figures.num_accepted_at[2], 0);
  EXPECT_DOUBLE_EQ(figures.AcceptanceRate(), 3.0 / (5 + kMaxDraftTokens));
  EXPECT_DOUBLE_EQ(figures.TokensPerStep(), 7.0 / 4);
}

TEST(SpeculationFiguresTest, SumsAreThoseOfAllSteps) {
  SpeculationFigures first, second, both;
  first.Record(3, 1);
  second.Record(5, 5);
  second.Record(1, 0);
  for (const auto& [drafted, accepted] : {std::pair(3, 1), {5, 5}, {1, 0}}) {
    both.Record(drafted, accepted);
  }
  const SpeculationFigures earlier = first;
  first.Add(second);
  EXPECT_EQ(first, both);
  first.Subtract(earlier);
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace espalier
