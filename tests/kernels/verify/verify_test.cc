// Verification against its twin, and its laws.
#include "kernels/verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/verify/recover.h"
#include "tests/few_cases.h"
#include "tests/kernels/each_target.h"
#include "tests/kernels/verify/random_drafts.h"

namespace espalier {

inline void PrintTo(const VerifiedTokens& verified, std::ostream* out) {
  for (size_t i = 0; i < verified.tokens.size(); ++i) {
    *out << "{" << verified.tokens[i] << ", " << verified.log_probs[i] << "} ";
  }
  *out << "length " << verified.length;
}

namespace {

using ::testing::Each;
using ::testing::ElementsAre;

using VerifyTest = TargetTest;
INSTANTIATE_TEST_SUITE_P(Targets, VerifyTest, EachTarget(), TargetTestName);

void ExpectNear(const VerifiedTokens& fast, const VerifiedTokens& twin,
                size_t vocab_size) {
  ASSERT_EQ(fast.tokens, twin.tokens);
  ASSERT_EQ(fast.length, twin.length);
  for (size_t i = 0; i < twin.tokens.size(); ++i) {
    EXPECT_TRUE(Near(fast.log_probs[i], twin.log_probs[i],
                     2 * Tolerance(vocab_size, twin.log_probs[i])))
        << fast.log_probs[i] << " " << twin.log_probs[i];
  }
}

TEST_P(VerifyTest, GivesWhatTheTwinGives) {
  const int num_cases = testing::Cases(1200, 300);
  std::mt19937 random(11);
  int judged = 0, accepted = 0, recovered = 0;
  for (int i = 0; i < num_cases; ++i) {
    const RandomDraft c = DrawRandomDraft(random);
    const VerifiedTokens fast = VerifyDrafts(c.inputs());
    const VerifiedTokens twin = reference::VerifyDrafts(c.inputs());
    ASSERT_NO_FATAL_FAILURE(ExpectNear(fast, twin, c.vocab_size))
        << c.kind << " " << c.vocab_size << " case " << i;
    const int k = static_cast<int>(c.drafts.size());
    judged += std::min(k, fast.length);
    accepted += fast.num_accepted();
    recovered += fast.length <= k && fast.tokens[fast.length - 1] >= 0;
  }
  std::printf("%d drafts judged: %d accepted, %d recovered from\n", judged,
              accepted, recovered);
  // Both happen often, or this shows nothing.
  EXPECT_GT(accepted, judged / 4);
  EXPECT_GT(recovered, judged / 8);
}

VerifyRow RowAt(std::span<const float> logits, uint32_t position,
                const SamplingParams& params = {}) {
  return {.logits = logits,
          .options = {.params = params, .position = position}};
}

// Verifies one draft against a target whose second row only allows token 0.
VerifiedTokens VerifyOne(const VerifyRow& target, TokenId draft,
                         const VerifyRow* draft_row) {
  std::vector<float> certain(target.logits.size(), -kInf);
  certain[0] = 0;
  const VerifyRow targets[] = {target, RowAt(certain, 99)};
  return VerifyDrafts(
      {.drafts = {&draft, 1},
       .target_rows = targets,
       .draft_rows = {draft_row, draft_row == nullptr ? 0u : 1u}});
}

TEST_P(VerifyTest, WhatTheDraftCannotGiveIsRejected) {
  const std::vector<float> logits = Normal(500, 1);
  std::vector<float> without = logits;
  without[7] = -kInf;
  for (uint32_t position = 0; position < 200; ++position) {
    const VerifyRow target = RowAt(logits, position);
    const VerifyRow draft = RowAt(without, position);
    EXPECT_EQ(VerifyOne(target, 7, &draft).length, 1);
    // From rows without anything, too: then the token is p's.
    for (const float bad : {-kInf, kNan}) {
      const std::vector<float> nothing(500, bad);
      const VerifyRow empty = RowAt(nothing, position);
      const VerifiedTokens verified = VerifyOne(target, 7, &empty);
      EXPECT_EQ(verified.length, 1);
      EXPECT_GE(verified.tokens[0], 0);
    }
  }
}

TEST_P(VerifyTest, WhatTheTargetCannotGiveIsRejected) {
  const std::vector<float> logits = Normal(500, 1);
  std::vector<float> without = logits;
  without[7] = -kInf;
  for (uint32_t position = 0; position < 200; ++position) {
    const VerifyRow target = RowAt(without, position);
    const VerifyRow draft = RowAt(logits, position);
    for (const VerifyRow* row :
         {&draft, static_cast<const VerifyRow*>(nullptr)}) {
      const VerifiedTokens verified = VerifyOne(target, 7, row);
      EXPECT_EQ(verified.length, 1);
      EXPECT_NE(verified.tokens[0], 7);
    }
  }
}

TEST_P(VerifyTest, ADraftOfTheTargetsOwnRowIsAlwaysAccepted) {
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.temperature = 0.6f, .top_k = 20},
        SamplingParams{.top_p = 0.8f},
        SamplingParams{.min_p = 0.01f, .typical_p = 0.9f}}) {
    const std::vector<float> logits = Normal(3000, 2);
    for (uint32_t position = 0; position < 100; ++position) {
      const VerifyRow row = RowAt(logits, position, params);
      const TokenId draft = DrawDraft(row, VerifyMode::kRejection).token;
      EXPECT_EQ(VerifyOne(row, draft, &row).length, 2);
    }
  }
}

TEST_P(VerifyTest, GreedyStopsAtTheFirstDifference) {
  const std::vector<float> logits[] = {
      {0, 3, 1, 2}, {5, 3, 1, 2}, {0, 3, 4, 2}, {0, 1, 4, 7}};
  const TokenEdit ban = {.token = 1, .banned = true};
  std::vector<VerifyRow> targets;
  for (const std::vector<float>& row : logits) {
    targets.push_back(RowAt(row, 0, {.temperature = 0}));
  }
  // Edits come first: token 3 is the best of the first row then.
  targets[0].options.edits = {&ban, 1};
  const auto tokens = [&](std::vector<TokenId> drafts, VerifyMode mode) {
    return VerifyDrafts(
               {.mode = mode, .drafts = drafts, .target_rows = targets})
        .tokens;
  };
  for (const VerifyMode mode : {VerifyMode::kRejection, VerifyMode::kCoupled}) {
    EXPECT_THAT(tokens({3, 0, 2}, mode), ElementsAre(3, 0, 2, 3));
    EXPECT_THAT(tokens({3, 0, 1}, mode), ElementsAre(3, 0, 2, -1));
    EXPECT_THAT(tokens({3, 1, 2}, mode), ElementsAre(3, 0, -1, -1));
    EXPECT_THAT(tokens({1, 0, 2}, mode), ElementsAre(3, -1, -1, -1));
  }
}

TEST_P(VerifyTest, TheBonusIsWhatPlainSamplingDraws) {
  const std::vector<float> logits = Normal(3000, 3);
  for (uint32_t position = 0; position < 100; ++position) {
    const VerifyRow row = RowAt(logits, position, {.top_p = 0.9f});
    for (const VerifyMode mode :
         {VerifyMode::kRejection, VerifyMode::kCoupled}) {
      const VerifiedTokens verified =
          VerifyDrafts({.mode = mode, .target_rows = {&row, 1}});
      const Draw draw = DrawRow(row.logits, row.options);
      EXPECT_THAT(verified.tokens, ElementsAre(draw.token));
      EXPECT_THAT(verified.log_probs, ElementsAre(draw.log_prob));
      EXPECT_EQ(verified.length, 1);
    }
  }
}

// As if the draft were shorter.
TEST_P(VerifyTest, ANegativeDraftEndsTheDraft) {
  std::mt19937 random(12);
  for (int i = 0; i < 300; ++i) {
    RandomDraft c = DrawRandomDraft(random);
    const size_t k = c.drafts.size();
    if (k < 2) continue;
    c.drafts[k / 2] = random() % 2 == 0 ? kNoToken : kNotANumber;
    VerifiedTokens shorter = VerifyDrafts(
        {.mode = c.mode,
         .drafts = std::span(c.drafts).first(k / 2),
         .target_rows = std::span(c.target_rows).first(k / 2 + 1),
         .draft_rows =
             std::span(c.draft_rows).first(c.draft_rows.empty() ? 0 : k / 2)});
    shorter.tokens.resize(k + 1, kNoToken);
    shorter.log_probs.resize(k + 1);
    EXPECT_EQ(VerifyDrafts(c.inputs()), shorter);
  }
}

TEST_P(VerifyTest, RowsBehindARejectionAreNotRead) {
  std::mt19937 random(13);
  for (int i = 0; i < 300; ++i) {
    RandomDraft c = DrawRandomDraft(random);
    const VerifiedTokens before = VerifyDrafts(c.inputs());
    for (size_t row = before.length; row < c.target_rows.size(); ++row) {
      c.logits[row].assign(c.vocab_size, kNan);
    }
    EXPECT_EQ(VerifyDrafts(c.inputs()), before);
  }
}

TEST_P(VerifyTest, ARowThatIsReachedTellsWhatIsWrongWithIt) {
  const std::vector<float> good = {0, 1, 2};
  for (const float bad : {kNan, -kInf}) {
    std::vector<float> logits = good;
    logits[1] = bad;
    if (bad == -kInf) logits.assign(3, -kInf);
    const VerifyRow targets[] = {RowAt(good, 0, {.temperature = 0}),
                                 RowAt(logits, 1), RowAt(good, 2)};
    const TokenId drafts[] = {2, 0};
    for (const VerifyMode mode :
         {VerifyMode::kRejection, VerifyMode::kCoupled}) {
      const VerifiedTokens verified = VerifyDrafts(
          {.mode = mode, .drafts = drafts, .target_rows = targets});
      EXPECT_THAT(verified.tokens,
                  ElementsAre(2, bad == -kInf ? kNoToken : kNotANumber, -1));
      EXPECT_EQ(verified.length, 2);
    }
  }
}

// A text has the same tokens with and without drafts.
TEST_P(VerifyTest, CoupledTokensAreThoseOfPlainSampling) {
  std::mt19937 random(14);
  for (int i = 0; i < 500; ++i) {
    RandomDraft c = DrawRandomDraft(random);
    c.mode = VerifyMode::kCoupled;
    const VerifiedTokens verified = VerifyDrafts(c.inputs());
    for (int row = 0; row < verified.length; ++row) {
      const VerifyRow& target = c.target_rows[row];
      const Draw draw = DrawRow(target.logits, target.options);
      EXPECT_EQ(verified.tokens[row], draw.token);
      EXPECT_EQ(verified.log_probs[row], draw.log_prob);
    }
  }
}

TEST_P(VerifyTest, WhereTheRowsLieAndWhatCameBeforeDoNotMatter) {
  std::mt19937 random(15);
  for (int i = 0; i < 200; ++i) {
    const RandomDraft c = DrawRandomDraft(random);
    const VerifiedTokens expected = VerifyDrafts(c.inputs());
    VerifyDrafts(DrawRandomDraft(random).inputs());
    std::vector<VerifyRow> targets = c.target_rows;
    std::vector<std::vector<float>> moved;
    for (VerifyRow& row : targets) {
      moved.emplace_back(1 + i % 17, 99.0f);
      moved.back().insert(moved.back().end(), row.logits.begin(),
                          row.logits.end());
      row.logits = std::span<const float>(moved.back()).subspan(1 + i % 17);
    }
    VerifyInputs inputs = c.inputs();
    inputs.target_rows = targets;
    EXPECT_EQ(VerifyDrafts(inputs), expected);
  }
}

// No draft leads here, because q(d) > p(d) at one token means q < p at another:
// both distributions are equal except for rounding.
TEST(RecoverTest, WithoutARestTheTokenIsThatOfTheTarget) {
  const std::vector<float> p = {0.25f, 0, 1, 0.75f};
  const auto draw = [&](const TokenWeights& q, double uniform) {
    return DrawRecovered({.weights = p, .total = 2}, q, uniform);
  };
  const TokenWeights same = {.weights = p, .total = 2};
  const TokenWeights above = {.weights = p, .total = 1.9999999};
  for (const TokenWeights& q : {same, above}) {
    EXPECT_EQ(draw(q, 0.1), 0);
    EXPECT_EQ(draw(q, 0.13), 2);
    EXPECT_EQ(draw(q, 0.62), 2);
    EXPECT_EQ(draw(q, 0.63), 3);
    EXPECT_EQ(draw(q, 1 - 0x1p-53), 3);
  }
}

TEST(RecoverTest, TokensAreThoseOfTheRestInTheirOrder) {
  // p - q is 0.1, -0.3, 0, 0.2.
  const std::vector<float> p = {4, 1, 2, 3}, q = {6, 8, 4, 2};
  const auto draw = [&](double uniform) {
    return DrawRecovered({.weights = p, .total = 10},
                         {.weights = q, .total = 20}, uniform);
  };
  EXPECT_EQ(draw(0x1p-53), 0);
  EXPECT_EQ(draw(0.333), 0);
  EXPECT_EQ(draw(0.334), 3);
  EXPECT_EQ(draw(1 - 0x1p-53), 3);
}

TEST(RecoverTest, EveryTokenOfLongRowsHasItsShare) {
  for (const int size : {1, 7, 1023, 1024, 1025, 5000}) {
    const std::vector<float> p(size, 1.0f);
    std::vector<float> q(size, 1.0f);
    q[size / 2] = 0;
    const TokenWeights target = {.weights = p, .total = 1.0 * size};
    const TokenWeights draft = {.weights = q, .total = size - 1.0};
    for (const double uniform : {0x1p-53, 0.5, 1 - 0x1p-53}) {
      EXPECT_EQ(DrawRecovered(target, draft, uniform), size / 2);
    }
    for (int t = 0; t < size; ++t) {
      EXPECT_EQ(
          DrawRecovered(target, {.weights = q, .total = 0}, (t + 0.5) / size),
          t);
    }
  }
}

// With a draft sampled from q, the emitted token has exactly distribution p.
TEST(VerifyReferenceTest, AcceptanceAndRecoveryAddUpToTheTarget) {
  std::mt19937 random(16);
  for (int i = 0; i < 300; ++i) {
    const RandomDraft c = DrawRandomDraft(random);
    if (c.draft_rows.empty() ||
        c.target_rows[0].logits[0] != c.target_rows[0].logits[0])
      continue;
    if (reference::DrawRow(c.target_rows[0].logits, c.target_rows[0].options)
            .token < 0)
      continue;
    const reference::VerifyPosition position =
        reference::VerifyPositionOf(c.target_rows[0], &c.draft_rows[0], 0);
    const std::vector<double> recovery = position.Recovery();
    double rejected = 0, drafted = 0;
    std::vector<double> emitted(c.vocab_size);
    for (TokenId t = 0; t < c.vocab_size; ++t) {
      const double accepted = position.q[t] * position.Acceptance(t);
      emitted[t] += accepted;
      rejected += position.q[t] - accepted;
      drafted += position.q[t];
    }
    if (drafted == 0) continue;
    for (TokenId t = 0; t < c.vocab_size; ++t) {
      EXPECT_NEAR(emitted[t] + rejected * recovery[t], position.p[t], 1e-9);
    }
  }
}

}  // namespace
}  // namespace espalier
