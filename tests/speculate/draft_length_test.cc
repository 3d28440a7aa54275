#include "speculate/draft_length.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace espalier {
namespace {

// Tokens for the cost of k drafts that are each accepted with probability a,
// where each costs c: Leviathan et al. 2023, theorem 3.8.
double Rate(double a, double c, int k) {
  const double num_tokens = a == 1 ? k + 1 : (1 - std::pow(a, k + 1)) / (1 - a);
  return num_tokens / (1 + c * k);
}

int BestOfFormula(double a, double c, int max_tokens) {
  int best = 0;
  for (int k = 1; k <= max_tokens; ++k) {
    if (Rate(a, c, k) > Rate(a, c, best) + 1e-12) best = k;
  }
  return best;
}

// Accepts drafts at a rate, each place as evenly as that can be.
class EvenVerifier {
 public:
  int NumAccepted(int num_drafted, double rate) {
    int num_accepted = 0;
    for (; num_accepted < num_drafted; ++num_accepted) {
      double& due = due_[num_accepted];
      due += rate;
      if (due < 1 - 1e-9) break;
      due -= 1;
    }
    return num_accepted;
  }

 private:
  std::vector<double> due_ = std::vector<double>(kMaxDraftTokens);
};

TEST(DraftLengthTest, TheBestLengthIsTheFormulas) {
  for (const double a : {0.0, 0.03, 0.2, 0.41, 0.5, 0.63, 0.77, 0.9, 1.0}) {
    const std::vector<double> acceptance(20, a);
    for (const double c : {0.001, 0.01, 0.05, 0.13, 0.35, 0.8, 1.7}) {
      const int best = BestOfFormula(a, c, 20);
      EXPECT_EQ(BestDraftLength(acceptance, {.row = c}), best) << a << " " << c;
      EXPECT_EQ(BestDraftLength(acceptance, {.row = c / 4, .draft = 3 * c / 4}),
                best);
    }
    // Drafts that cost nothing. At low acceptance, rounding hides the gain of
    // long ones.
    if (a >= 0.5) {
      EXPECT_EQ(BestDraftLength(acceptance, {}), 20);
    }
  }
}

TEST(DraftLengthTest, AWaitIsPaidOnceAStep) {
  const std::vector<double> all(6, 1.0);
  EXPECT_EQ(BestDraftLength(all, {.wait = 5.9}), 6);
  EXPECT_EQ(BestDraftLength(all, {.wait = 6.1}), 0);
  EXPECT_EQ(BestDraftLength(all, {.row = 0.5, .wait = 2.9}), 6);
  EXPECT_EQ(BestDraftLength(all, {.row = 0.5, .wait = 3.1}), 0);
  // Without one, a single token is best.
  EXPECT_EQ(BestDraftLength({{0.9, 0.3}}, {.row = 0.2}), 1);
  EXPECT_EQ(BestDraftLength({{0.9, 0.3}}, {.row = 0.2, .wait = 0.5}), 2);
}

TEST(DraftLengthTest, WithoutRoomDraftsAreShorterAndThenFewer) {
  constexpr DraftCost kCheap = {.row = 0.01};
  DraftLength length({.max_tokens = 8});
  ASSERT_EQ(length.Next(kCheap), 8);
  length.RecordUnverified(8);
  EXPECT_EQ(length.Next(kCheap), 4);
  length.RecordUnverified(4);
  EXPECT_EQ(length.Next(kCheap), 2);
  length.RecordUnverified(2);
  for (const int num_skipped : {1, 2, 4, 8, 8}) {
    EXPECT_EQ(length.Next(kCheap), 1);
    length.RecordUnverified(1);
    for (int i = 0; i < num_skipped; ++i) EXPECT_EQ(length.Next(kCheap), 0);
  }
  // One more with each that is verified, and at once where one is longer.
  EXPECT_DOUBLE_EQ(length.acceptance(0), 0.8);  // nothing is known
  for (int num_tokens = 1; num_tokens < 5; ++num_tokens) {
    EXPECT_EQ(length.Next(kCheap), num_tokens);
    length.Record(num_tokens, num_tokens);
  }
  length.RecordUnverified(5);
  EXPECT_EQ(length.Next(kCheap), 2);
  length.Record(2, 2);
  EXPECT_EQ(length.Next(kCheap), 3);
}

// If all tokens are accepted, more than three are worth a wait of three steps.
// With room for two, the length tries one now and then.
TEST(DraftLengthTest, WhatFindsRoomHasToBeWorthTheWait) {
  constexpr DraftCost kSlow = {.row = 0.01, .wait = 3};
  DraftLength length({.max_tokens = 8});
  for (int i = 0; i < 50; ++i) length.Record(8, 8);
  ASSERT_EQ(length.Next(kSlow), 8);
  length.RecordUnverified(4);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(length.Next(kSlow), 0);
  int num_drafted = 0;
  for (int step = 0; step < 400; ++step) {
    const int num_tokens = length.Next(kSlow);
    num_drafted += num_tokens;
    if (num_tokens > 2) {
      length.RecordUnverified(num_tokens);
    } else {
      length.Record(num_tokens, num_tokens);
    }
  }
  EXPECT_GT(num_drafted, 0);
  EXPECT_LE(num_drafted, 120);
  // As soon as there is room for all, probes find it.
  int step = 0;
  for (; step < 400 && length.Next(kSlow) < 8; ++step) length.Record(1, 1);
  EXPECT_LT(step, 400);
}

TEST(DraftLengthTest, AFixedLengthIsThatOfEveryStep) {
  DraftLength length({.max_tokens = 3, .is_fixed = true});
  for (int step = 0; step < 100; ++step) {
    EXPECT_EQ(length.Next({.row = 2}), 3);
    length.Record(3, 0);
  }
}

TEST(DraftLengthTest, APlaceThatIsNeverAcceptedEndsTheDraft) {
  EXPECT_EQ(BestDraftLength({{0.9, 0.9, 0.0, 0.9}}, {.row = 0.01}), 2);
  EXPECT_EQ(BestDraftLength({{0.3, 1.0, 1.0}}, {.row = 0.29}), 3);
  EXPECT_EQ(BestDraftLength({{0.3, 0.5, 1.0}}, {.row = 0.29}), 1);
  EXPECT_EQ(BestDraftLength({{0.3, 1.0, 1.0}}, {.row = 0.31}), 0);
}

TEST(DraftLengthTest, AFixedAcceptanceLeadsToTheFormulasLength) {
  for (const double a : {0.0, 0.35, 0.5, 0.7, 0.85, 0.95}) {
    for (const double c : {0.02, 0.05, 0.2}) {
      DraftLength length({.max_tokens = 16, .decay = 0.998});
      EvenVerifier verifier;
      int num_tokens = 0;
      for (int step = 0; step < 6000; ++step) {
        num_tokens = length.Next({.row = c});
        length.Record(num_tokens, verifier.NumAccepted(num_tokens, a));
      }
      EXPECT_NEAR(num_tokens, BestOfFormula(a, c, 16), 1) << a << " " << c;
      EXPECT_NEAR(length.acceptance(0), a, 0.03);
    }
  }
}

// With the weights that it has by itself, which see the last 20 drafts only.
TEST(DraftLengthTest, LengthsAreNearlyAsGoodAsTheBest) {
  for (const double a : {0.2, 0.5, 0.8, 0.9}) {
    DraftLength length({.max_tokens = 8});
    EvenVerifier verifier;
    double sum = 0;
    for (int step = 0; step < 2000; ++step) {
      const int num_tokens = length.Next({.row = 0.05});
      length.Record(num_tokens, verifier.NumAccepted(num_tokens, a));
      sum += Rate(a, 0.05, num_tokens);
    }
    const double best = Rate(a, 0.05, BestOfFormula(a, 0.05, 8));
    EXPECT_GE(sum / 2000, 0.97 * best) << a;
  }
}

struct Waste {
  int until_off = 0;  // tokens drafted until a step has none
  int after = 0;      // in the 10,000 steps after it
};

Waste WasteOf(DraftLength* length, double row_cost) {
  Waste waste;
  while (const int num_tokens = length->Next({.row = row_cost})) {
    waste.until_off += num_tokens;
    length->Record(num_tokens, 0);
  }
  for (int step = 0; step < 10'000; ++step) {
    const int num_tokens = length->Next({.row = row_cost});
    waste.after += num_tokens;
    length->Record(num_tokens, 0);
  }
  return waste;
}

TEST(DraftLengthTest, WithoutAcceptanceItTurnsItselfOff) {
  for (const double cost : {0.01, 0.05, 0.2, 0.5}) {
    DraftLength length({.max_tokens = 8});
    const Waste waste = WasteOf(&length, cost);
    EXPECT_LE(waste.until_off, 100) << cost;
    EXPECT_GT(waste.after, 10'000 / 70) << "probes";
    EXPECT_LE(waste.after, 10'000 / 64 + 10);
  }
}

TEST(DraftLengthTest, WhenAcceptanceReturnsItDraftsAgain) {
  DraftLength length({.max_tokens = 8});
  WasteOf(&length, 0.05);
  EvenVerifier verifier;
  int num_steps = 0;
  int num_tokens = 0;
  for (; num_tokens < 4; ++num_steps) {
    ASSERT_LT(num_steps, 64 + 40);
    num_tokens = length.Next({.row = 0.05});
    length.Record(num_tokens, verifier.NumAccepted(num_tokens, 0.8));
  }
}

TEST(DraftLengthTest, ProbesAreSparseAgainAfterDraftsThatPaid) {
  DraftLength length({.max_tokens = 8, .probe_interval = 8});
  WasteOf(&length, 0.05);
  for (int step = 0; step < 200; ++step) {
    const int num_tokens = length.Next({.row = 0.05});
    length.Record(num_tokens, num_tokens);
  }
  while (const int num_tokens = length.Next({.row = 0.05})) {
    length.Record(num_tokens, 0);
  }
  // The step before was the first of eight.
  for (int step = 1; step < 8; ++step) EXPECT_EQ(length.Next({.row = 0.05}), 0);
  EXPECT_EQ(length.Next({.row = 0.05}), 1);
}

TEST(DraftLengthTest, TheLoadDecidesAtOnce) {
  DraftLength length({.max_tokens = 8});
  const int idle = length.Next({.row = 0.02});
  EXPECT_GE(idle, 5);
  EXPECT_LT(length.Next({.row = 0.2}), idle);
  // If two tokens cost more than two steps, no length is worth a try.
  for (int step = 0; step < 1000; ++step) {
    ASSERT_EQ(length.Next({.row = 0.7, .draft = 0.4}), 0);
  }
  EXPECT_EQ(length.Next({.row = 0.02}), idle);
}

TEST(DraftLengthTest, AStepWithoutDraftsTeachesNothing) {
  DraftLength length({.max_tokens = 8});
  const int first = length.Next({.row = 0.05});
  for (int step = 0; step < 100; ++step) {
    length.Record(0, 0);
    ASSERT_EQ(length.Next({.row = 0.05}), first);
  }
  // A probe is due until there is a draft for it.
  WasteOf(&length, 0.05);
  while (length.Next({.row = 0.05}) == 0) {
  }
  for (int step = 0; step < 5; ++step) {
    length.Record(0, 0);
    EXPECT_EQ(length.Next({.row = 0.05}), 1);
  }
  length.Record(1, 0);
  EXPECT_EQ(length.Next({.row = 0.05}), 0);
}

TEST(DraftLengthTest, PlacesHaveAveragesOfTheirOwn) {
  DraftLength length({.max_tokens = 4});
  for (int step = 0; step < 200; ++step) length.Record(4, 2);
  EXPECT_GT(length.acceptance(0), 0.95);
  EXPECT_GT(length.acceptance(1), 0.95);
  EXPECT_LT(length.acceptance(2), 0.2);
  EXPECT_EQ(length.Next({.row = 0.2}), 2);
  // More than it drafts itself may be verified.
  length.Record(7, 7);
  EXPECT_LE(length.Next({.row = 0.2}), 4);
}

}  // namespace
}  // namespace espalier
