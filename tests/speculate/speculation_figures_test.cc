#include "speculate/speculation_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(SpeculationFiguresTest, StepsAreCountedByPlace) {
  SpeculationFigures figures;
  EXPECT_EQ(figures.AcceptanceRate(), 0);
  EXPECT_EQ(figures.TokensPerStep(), 1);
  figures.Record(3, 1, 2);
  figures.Record(0, 0, 1);
  figures.Record(2, 2, 3);
  figures.Record(kMaxDraftTokens, 0, 1);
  EXPECT_EQ(figures.num_target_steps, 4);
  EXPECT_EQ(figures.num_tokens, 7);
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

TEST(SpeculationFiguresTest, AStepThatEndsWithADraftGivesNoTokenMore) {
  SpeculationFigures figures;
  figures.Record(3, 2, 2);
  EXPECT_EQ(figures.num_accepted_tokens, 2);
  EXPECT_EQ(figures.TokensPerStep(), 2);
  figures.Record(3, 2, 3);
  EXPECT_EQ(figures.TokensPerStep(), 2.5);
}

TEST(SpeculationFiguresDeathTest, TokensAreThoseAcceptedAndOneMoreOrNone) {
  SpeculationFigures figures;
  EXPECT_DEATH(figures.Record(3, 2, 4), "4 tokens, 2 of them accepted");
  EXPECT_DEATH(figures.Record(3, 2, 1), "1 tokens, 2 of them accepted");
  EXPECT_DEATH(figures.Record(3, 0, 0), "0 tokens, 0 of them accepted");
}

TEST(SpeculationFiguresTest, SumsAreThoseOfAllSteps) {
  SpeculationFigures first, second, both;
  first.Record(3, 1, 2);
  second.Record(5, 5, 5);
  second.Record(1, 0, 1);
  both.Record(3, 1, 2);
  both.Record(5, 5, 5);
  both.Record(1, 0, 1);
  const SpeculationFigures earlier = first;
  first.Add(second);
  EXPECT_EQ(first, both);
  first.Subtract(earlier);
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace espalier
