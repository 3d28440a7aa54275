#include "speculate/ngram_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "tests/speculate/drafter_properties.h"

namespace espalier {
namespace {

using ::espalier::testing::CheckAgainstTwin;
using ::espalier::testing::DraftOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// By looking everywhere.
std::vector<TokenId> NgramTwin(const NgramOptions& options,
                               std::vector<TokenId> text, int max_tokens) {
  const int length = static_cast<int>(text.size());
  for (int n = options.max_ngram; n >= options.min_ngram; --n) {
    for (int end = length - 1; end >= n; --end) {
      if (!std::equal(text.begin() + end - n, text.begin() + end,
                      text.end() - n)) {
        continue;
      }
      for (int i = 0; i < max_tokens; ++i) text.push_back(text[end + i]);
      return {text.begin() + length, text.end()};
    }
  }
  return {};
}

std::vector<TokenId> NgramDraft(const std::vector<TokenId>& text,
                                int max_tokens,
                                const NgramOptions& options = {}) {
  NgramDrafter drafter(options);
  drafter.Append(text);
  return DraftOf(drafter, max_tokens);
}

TEST(NgramDrafterTest, TheLongestMatchIsTakenAndOfThoseTheLast) {
  // 2 is followed by 3, 5 and 6; 1 2 by 3 and 5.
  const std::vector<TokenId> text = {1, 2, 3, 4, 1, 2, 5, 2, 6, 1, 2};
  EXPECT_THAT(NgramDraft(text, 2), ElementsAre(5, 2));
  EXPECT_THAT(NgramDraft(text, 2, {.max_ngram = 1}), ElementsAre(6, 1));
  EXPECT_THAT(NgramDraft(text, 0), IsEmpty());
}

TEST(NgramDrafterTest, WithoutAnEarlierOccurrenceThereIsNoDraft) {
  EXPECT_THAT(NgramDraft({}, 5), IsEmpty());
  EXPECT_THAT(NgramDraft({7}, 5), IsEmpty());
  EXPECT_THAT(NgramDraft({1, 2, 3}, 5), IsEmpty());
  EXPECT_THAT(NgramDraft({1, 2, 1}, 2, {.min_ngram = 2}), IsEmpty());
}

TEST(NgramDrafterTest, ALoopIsDraftedAtFullLength) {
  EXPECT_THAT(NgramDraft({9, 9}, 3), ElementsAre(9, 9, 9));
  EXPECT_THAT(NgramDraft({1, 2, 3, 1, 2}, 5), ElementsAre(3, 1, 2, 3, 1));
}

// Tables grow many times, and chunks are many.
TEST(NgramDrafterTest, LongTextsAreExactToo) {
  std::mt19937 random(1);
  NgramDrafter drafter;
  std::vector<TokenId> text;
  for (int i = 0; i < 5000; ++i) {
    text.push_back(static_cast<TokenId>(random() % 300));
    drafter.Append({&text.back(), 1});
    if (i % 97 != 0) continue;
    ASSERT_EQ(DraftOf(drafter, 6), NgramTwin({}, text, 6)) << i;
  }
}

RC_GTEST_PROP(NgramDrafterProperty, DraftsAreThoseOfLookingEverywhere, ()) {
  NgramOptions options;
  options.max_ngram = *rc::gen::inRange(1, 6);
  options.min_ngram = *rc::gen::inRange(1, options.max_ngram + 1);
  CheckAgainstTwin(std::make_unique<NgramDrafter>(options),
                   [&](const std::vector<TokenId>& text, int max_tokens) {
                     return NgramTwin(options, text, max_tokens);
                   });
}

// Returns tokens whose 2-grams have zero low bits in an unkeyed hash that
// multiplies each token and folds the product.
std::vector<TokenId> TokensOfOneSlot(int count, int num_bits) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;
  const auto mix = [](uint64_t hash, TokenId token) {
    hash = (hash ^ static_cast<uint32_t>(token)) * kMultiplier;
    return hash ^ hash >> 32;
  };
  const uint64_t mask = (uint64_t{1} << num_bits) - 1;
  std::vector<TokenId> tokens = {1};
  for (TokenId token = 1; std::ssize(tokens) < count; ++token) {
    const uint64_t first = mix(0, tokens.back());
    while ((mix(first, token) & mask) != 0) ++token;
    tokens.push_back(token);
  }
  return tokens;
}

// With that hash the last would be compared with all others.
TEST(NgramDrafterTest, TokensCannotBeChosenToShareASlot) {
  NgramDrafter drafter({.max_ngram = 2, .min_ngram = 2});
  drafter.Append(TokensOfOneSlot(2'000, 12));
  EXPECT_LT(drafter.MaxProbes(), 500);
}

}  // namespace
}  // namespace espalier
