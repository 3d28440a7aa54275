#include "kernels/logits/timestamp_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "kernels/float_limits.h"
#include "kernels/logits/edited_logits.h"
#include "tests/few_cases.h"
#include "tests/kernels/logits/timestamp_oracle.h"

namespace espalier {
namespace {

using testing::MaskByRule;
using testing::MaskedByRule;

// A vocabulary, and the rule over it.
struct Scene {
  int vocab_size = 0;
  TimestampRule rule;
};

Scene AnyScene(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  Scene scene;
  scene.vocab_size = below(4) == 0 ? 1000 + below(3000) : 8 + below(60);
  scene.rule.first_time = 3 + below(scene.vocab_size - 4);
  scene.rule.end = below(scene.rule.first_time - 1);
  scene.rule.no_timestamps = below(scene.rule.first_time);
  scene.rule.last_first_time = scene.rule.first_time + below(8);
  if (below(3) == 0) {
    scene.rule.last_first_time = std::numeric_limits<TokenId>::max();
  }
  scene.rule.after_prefix = below(4) == 0 ? 1 : 0;
  return scene;
}

std::vector<TokenId> AnyText(const Scene& scene, std::mt19937& random) {
  std::vector<TokenId> text(random() % 7);
  for (TokenId& token : text) {
    const int num_times = scene.vocab_size - scene.rule.first_time;
    token = random() % 2 == 0
                ? static_cast<TokenId>(random() % scene.rule.first_time)
                : static_cast<TokenId>(scene.rule.first_time +
                                       random() % num_times);
  }
  return text;
}

// Spread wide or narrowly, at times in whole numbers, which tie, and at times
// with what is no number.
std::vector<float> AnyLogits(const Scene& scene, std::mt19937& random) {
  std::normal_distribution<float> normal(0, random() % 2 == 0 ? 0.3f : 4.0f);
  const bool is_whole = random() % 3 == 0;
  const int out_of = random() % 3 == 0 ? 2 : 1000;
  const float lift = static_cast<float>(random() % 7) - 3;
  std::vector<float> logits(scene.vocab_size);
  for (TokenId t = 0; t < scene.vocab_size; ++t) {
    float& logit = logits[t];
    logit = normal(random);
    if (is_whole) logit = std::round(logit);
    if (t >= scene.rule.first_time) logit += lift;
    if (static_cast<int>(random() % out_of) == 1) {
      logit = random() % 20 == 0 ? std::nanf("") : -kInf;
    }
  }
  return logits;
}

bool IsBanned(float x) { return x == -kInf; }

TEST(TimestampRuleTest, MasksAsTheRuleWrittenOutOverTheWholeText) {
  int num_outweighed = 0, num_empty = 0;
  for (uint32_t seed = 0; seed < testing::Cases(40000, 3000); ++seed) {
    std::mt19937 random(seed);
    const Scene scene = AnyScene(random);
    const std::vector<TokenId> text = AnyText(scene, random);
    const std::vector<float> logits = AnyLogits(scene, random);
    const MaskedByRule wanted =
        MaskByRule({logits.begin(), logits.end()}, text, scene.rule);
    if (std::abs(wanted.margin) < 1e-6 && wanted.margin != 0) continue;
    std::vector<float> masked = logits;
    ApplyTimestampRule(scene.rule, TimestampStateOf(scene.rule, text), masked);
    num_outweighed += wanted.margin > 0 && std::isfinite(wanted.margin);
    num_empty += std::ranges::all_of(masked, IsBanned);
    for (TokenId t = 0; t < scene.vocab_size; ++t) {
      ASSERT_EQ(IsBanned(masked[t]), std::isinf(wanted.logits[t]))
          << "token " << t << " of seed " << seed;
      if (IsBanned(masked[t]) || std::isnan(logits[t])) continue;
      ASSERT_EQ(masked[t], logits[t]);
    }
  }
  EXPECT_GT(num_outweighed, testing::Cases(3000, 200));
  EXPECT_GT(num_empty, 10);
}

// One time as likely as the likeliest other token does not outweigh it; two do.
TEST(TimestampRuleTest, EqualMassLeavesTheOtherTokens) {
  const TimestampRule rule = {
      .first_time = 4, .end = 2, .no_timestamps = 3, .last_first_time = 4};
  const TimestampState state = {.last = TimestampState::kText, .last_time = -1};
  std::vector<float> scores = {0.5f, 1.25f, -2, 9, 1.25f, -kInf, -kInf};
  std::vector<float> masked = scores;
  ApplyTimestampRule(rule, state, masked);
  EXPECT_EQ(masked,
            (std::vector<float>{0.5f, 1.25f, -2, -kInf, 1.25f, -kInf, -kInf}));
  scores[6] = 0;
  masked = scores;
  ApplyTimestampRule(rule, state, masked);
  EXPECT_EQ(masked,
            (std::vector<float>{-kInf, -kInf, -kInf, -kInf, 1.25f, -kInf, 0}));
}

TEST(TimestampRuleTest, AStateGrowsTokenByToken) {
  const TimestampRule rule = {.first_time = 10};
  const std::vector<TokenId> text = {12, 3, 14, 14, 4, 5, 19, 6};
  const TimestampState wanted[] = {
      {TimestampState::kNone, -1},      {TimestampState::kBeginTime, 12},
      {TimestampState::kText, 12},      {TimestampState::kEndTime, 14},
      {TimestampState::kBeginTime, 14}, {TimestampState::kText, 14},
      {TimestampState::kText, 14},      {TimestampState::kEndTime, 19},
      {TimestampState::kText, 19}};
  for (size_t i = 0; i <= text.size(); ++i) {
    EXPECT_EQ(TimestampStateOf(rule, std::span(text).first(i)), wanted[i]) << i;
  }
}

TEST(EditedLogitsTest, TheRuleSeesWhatEditsLeave) {
  const TimestampRule rule = {
      .first_time = 4, .end = 2, .no_timestamps = 3, .last_first_time = 4};
  const std::vector<float> logits = {3, 1, 1, 1, 2, 0};
  const TokenEdit bias = {.token = 1, .bias = 4};
  const TokenEdit ban = {.token = 0, .banned = true};
  const auto edited = [&](std::vector<TokenEdit> edits) {
    std::vector<float> out(logits.size());
    WriteEditedLogits(logits,
                      {.edits = edits,
                       .rule = &rule,
                       .state = {.last = TimestampState::kText}},
                      out);
    return out;
  };
  EXPECT_EQ(edited({}), (std::vector<float>{3, 1, 1, -kInf, 2, 0}));
  EXPECT_EQ(edited({ban}),
            (std::vector<float>{-kInf, -kInf, -kInf, -kInf, 2, 0}));
  EXPECT_EQ(edited({ban, bias}),
            (std::vector<float>{-kInf, 5, 1, -kInf, 2, 0}));
}

TEST(EditedLogitsTest, AnAllowListLeavesItsTokensAlone) {
  const std::vector<float> logits = {3, -1, 1, 1};
  std::vector<float> out(4);
  const TokenEdit edits[] = {{.token = 1, .repeated = true}, {.token = 2}};
  WriteEditedLogits(
      logits, {.repetition_penalty = 2, .edits = edits, .is_allow_list = true},
      out);
  EXPECT_EQ(out, (std::vector<float>{-kInf, -2, 1, -kInf}));
}

}  // namespace
}  // namespace espalier
