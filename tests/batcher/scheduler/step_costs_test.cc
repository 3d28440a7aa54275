#include "batcher/scheduler/step_costs.h"

#include <gtest/gtest.h>

#include <random>

#include "beam/drafts/group_drafts.h"

namespace espalier {
namespace {

constexpr absl::Duration kStart = absl::Microseconds(80);
constexpr absl::Duration kTimePerToken = absl::Microseconds(20);

void RecordSteps(int count, StepCosts* costs, double noise = 0) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> factor(1 - noise, 1 + noise);
  for (int i = 0; i < count; ++i) {
    const int num_tokens = 1 + static_cast<int>(random() % 6);
    costs->RecordStep(num_tokens,
                      (kStart + num_tokens * kTimePerToken) * factor(random));
  }
}

TEST(StepCostsTest, AreThoseOfTheLine) {
  StepCosts costs;
  RecordSteps(100, &costs);
  EXPECT_NEAR(costs.At(1, false)->row, 0.2, 1e-9);
  EXPECT_EQ(costs.At(1, false)->draft, 0);
  // A step of eight sequences takes 240 microseconds; one draft each adds 160.
  EXPECT_NEAR(costs.At(8, false)->row, 160.0 / 240, 1e-9);
}

TEST(StepCostsTest, DraftsCostWhatTheirModelTakes) {
  StepCosts costs;
  RecordSteps(100, &costs);
  EXPECT_EQ(costs.At(1, true), std::nullopt);
  for (int i = 0; i < 10; ++i) {
    costs.RecordDrafts(4, absl::Microseconds(100));
  }
  EXPECT_NEAR(costs.At(1, true)->draft, 0.25, 1e-9);
  EXPECT_NEAR(costs.At(4, true)->draft, 100.0 / 160, 1e-9);
  EXPECT_NEAR(costs.At(1, true)->row, 0.2, 1e-9);
}

// Once the draft model took a hundred times as long as it does.
TEST(StepCostsTest, DraftsThatWereDearAreTriedAgain) {
  constexpr absl::Duration kDear = absl::Milliseconds(8);
  StepCosts costs;
  RecordSteps(100, &costs);
  costs.RecordDrafts(8, kDear);
  absl::Duration idle;
  while (costs.At(1, true)->draft > GroupDrafts::kModelCost) {
    EXPECT_NEAR(costs.At(1, true)->draft, 10, 1e-9);
    for (const int num_tokens : {1, 3}) {
      costs.RecordStep(num_tokens, kStart + num_tokens * kTimePerToken);
      idle += kStart + num_tokens * kTimePerToken;
    }
    ASSERT_LE(idle, 51 * kDear);
  }
  EXPECT_GE(idle, 49 * kDear);
  EXPECT_EQ(costs.At(1, true)->draft, GroupDrafts::kModelCost);
  // Fewer than make it known at first.
  costs.RecordDrafts(4, absl::Microseconds(40));
  EXPECT_NEAR(costs.At(1, true)->draft, 0.1, 1e-9);
  costs.RecordDrafts(4, absl::Microseconds(120));
  EXPECT_GT(costs.At(1, true)->draft, 0.1);
  EXPECT_LT(costs.At(1, true)->draft, 0.2);
}

TEST(StepCostsTest, DraftsThatWereCheapAreNotDearerForAPause) {
  StepCosts costs;
  RecordSteps(100, &costs);
  costs.RecordDrafts(8, absl::Nanoseconds(8));
  RecordSteps(1000, &costs);
  EXPECT_LT(costs.At(1, true)->draft, 1e-4);
}

// Once a step is held up for long.
TEST(StepCostsTest, AWaitIsTheLeastOfTheLastOnes) {
  StepCosts costs;
  RecordSteps(100, &costs);
  for (int i = 0; i < 15; ++i) {
    costs.RecordWait(absl::Microseconds(i == 0 ? 5000 : 50 + i));
  }
  EXPECT_EQ(costs.At(1, false)->wait, 0);  // not known yet
  costs.RecordWait(absl::Microseconds(90));
  EXPECT_NEAR(costs.At(1, false)->wait, 0.51, 1e-9);
  EXPECT_NEAR(costs.At(6, false)->wait, 0.255, 1e-9);
  for (int i = 0; i < 16; ++i) costs.RecordWait(absl::Microseconds(200));
  EXPECT_NEAR(costs.At(1, false)->wait, 2, 1e-9);
  costs.RecordWait(-absl::Microseconds(5));  // clocks are not the same
  EXPECT_EQ(costs.At(1, false)->wait, 0);
}

TEST(StepCostsTest, AreUnknownUntilStepsDiffer) {
  StepCosts costs;
  EXPECT_EQ(costs.At(1, false), std::nullopt);
  for (int i = 0; i < 100; ++i) costs.RecordStep(1, kStart);
  EXPECT_EQ(costs.At(1, false), std::nullopt);
  RecordSteps(30, &costs);
  EXPECT_NE(costs.At(1, false), std::nullopt);
}

TEST(StepCostsTest, StepsWithoutATimeTellNothing) {
  StepCosts costs;
  for (int i = 0; i < 100; ++i) {
    costs.RecordStep(1 + i % 3, absl::ZeroDuration());
    costs.RecordDrafts(3, absl::ZeroDuration());
  }
  EXPECT_EQ(costs.At(1, false), std::nullopt);
}

TEST(StepCostsTest, NoiseMovesThemALittle) {
  StepCosts costs;
  RecordSteps(500, &costs, 0.3);
  EXPECT_NEAR(costs.At(1, false)->row, 0.2, 0.08);
}

TEST(StepCostsTest, WhateverIsMeasuredTheyAreSound) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    StepCosts costs;
    for (int i = 0; i < 40; ++i) {
      costs.RecordStep(1 + static_cast<int>(random() % 5),
                       absl::Microseconds(1 + random() % 1000));
    }
    for (const int num_sequences : {1, 3, 100}) {
      const auto cost = costs.At(num_sequences, false);
      ASSERT_TRUE(cost.has_value());
      EXPECT_GE(cost->row, 0);
      EXPECT_LE(cost->row, 1 + 1e-9);
    }
  }
}

TEST(StepCostsTest, FollowTheMachine) {
  StepCosts costs;
  RecordSteps(1000, &costs);
  std::mt19937 random(2);
  for (int i = 0; i < 1500; ++i) {
    const int num_tokens = 1 + static_cast<int>(random() % 6);
    costs.RecordStep(num_tokens, num_tokens * kTimePerToken);
  }
  EXPECT_NEAR(costs.At(1, false)->row, 1, 1e-3);
}

}  // namespace
}  // namespace espalier
