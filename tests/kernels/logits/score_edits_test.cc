#include "kernels/logits/score_edits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "tests/kernels/logits/obvious_edits.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::ObviousEdits;
using Tokens = std::vector<TokenId>;

// Any processors, over a vocabulary so small that all of them meet.
class AnyEdits {
 public:
  explicit AnyEdits(int seed) : random_(seed) {}

  int Below(int end) { return static_cast<int>(random_() % end); }
  bool Sometimes() { return Below(3) == 0; }

  // Some are outside the vocabulary.
  Tokens SomeTokens(int max_size, int end) {
    Tokens tokens(Below(max_size + 1));
    for (TokenId& token : tokens) token = Below(end);
    return tokens;
  }
  Tokens Ascending(Tokens tokens) {
    std::ranges::sort(tokens);
    const auto rest = std::ranges::unique(tokens);
    tokens.erase(rest.begin(), rest.end());
    return tokens;
  }

  ScoreProcessors Processors(int end) {
    ScoreProcessors p;
    if (Sometimes()) {
      for (const TokenId token : Ascending(SomeTokens(5, end))) {
        p.logit_bias.push_back({token, 0.25f * Below(9) - 1});
      }
    }
    if (Sometimes()) p.repetition_penalty = 1.5f;
    if (Sometimes()) p.frequency_penalty = 0.25f * Below(9) - 1;
    if (Sometimes()) p.presence_penalty = 0.5f;
    if (Sometimes()) p.no_repeat_ngram_size = 1 + Below(5);
    for (int words = Sometimes() ? Below(30) : 0; words > 0; --words) {
      Tokens word = SomeTokens(3, end);
      word.push_back(Below(end));
      p.bad_words.push_back(std::move(word));
    }
    for (int count = Sometimes() ? Below(20) : 0; count > 0; --count) {
      Tokens tokens = SomeTokens(2, end);
      tokens.push_back(Below(end));
      p.sequence_bias.push_back({std::move(tokens), 0.25f * Below(9) - 1});
    }
    if (Sometimes()) p.suppress_tokens = SomeTokens(6, end);
    if (Sometimes()) p.begin_suppress_tokens = SomeTokens(6, end);
    p.begin_index = Below(2);
    if (Sometimes()) {
      p.eos_decay = {.tokens = SomeTokens(3, end),
                     .start_index = Below(6),
                     .factor = 0.5 + 0.25 * Below(5)};
    }
    p.eos_token_ids = SomeTokens(3, end);
    if (Sometimes()) p.min_new_tokens = Below(9);
    if (Sometimes()) {
      p.allowed_tokens = Ascending(SomeTokens(6, end));
      if (p.allowed_tokens->empty()) p.allowed_tokens->push_back(Below(end));
    }
    if (Sometimes()) p.forced_first_tokens = Ascending(SomeTokens(2, end));
    if (Sometimes()) p.forced_last_tokens = Ascending(SomeTokens(3, end));
    p.max_new_tokens = 1 + Below(9);
    return p;
  }

 private:
  std::mt19937 random_;
};

TEST(ScoreEditsTest, AnyRowOfAnyRequestHasTheObviousEdits) {
  constexpr int kVocabSize = 7, kEnd = 9;
  for (int seed = 0; seed < 20000; ++seed) {
    AnyEdits any(seed);
    const ScoreProcessors processors = any.Processors(kEnd);
    const Tokens prompt = any.SomeTokens(12, kEnd);
    const ScoreEdits edits(processors, prompt);
    std::vector<TokenEdit> storage;  // all rows, one after the other
    for (int row = 0; row < 3; ++row) {
      const Tokens tail = any.SomeTokens(12, kEnd);
      const int num_generated = any.Below(static_cast<int>(tail.size()) + 1);
      const Tokens next = any.Ascending(any.SomeTokens(5, kEnd));
      const std::span<const TokenId> allowed = next;
      const bool restricts = any.Sometimes();
      Tokens text = prompt;
      text.insert(text.end(), tail.begin(), tail.end());
      const RowEdits expected =
          ObviousEdits(processors, text, num_generated, kVocabSize,
                       restricts ? &allowed : nullptr);
      const ScoreEdits::View view =
          edits.OfRow({.tail = tail,
                       .num_generated = num_generated,
                       .vocab_size = kVocabSize,
                       .allowed = restricts ? &allowed : nullptr},
                      &storage);
      ASSERT_TRUE(std::ranges::equal(view.edits, expected.edits)) << seed;
      ASSERT_EQ(view.is_allow_list, expected.is_allow_list) << seed;
    }
    const int num_generated = any.Below(9);
    const RowEdits common =
        ObviousEdits(processors, {}, num_generated, kVocabSize, nullptr);
    ASSERT_TRUE(std::ranges::equal(
        edits.WithoutText(num_generated, kVocabSize, &storage).edits,
        common.edits))
        << seed;
  }
}

// 1.5^2 - 1 = 1.25 of a score's size.
TEST(ScoreEditsTest, AnEosGrowsLikelierBeyondTheStartOfItsDecay) {
  ScoreProcessors processors;
  processors.eos_decay = {.tokens = {4}, .start_index = 3, .factor = 1.5};
  const auto edit_at = [&](int num_generated) {
    const RowEdits row = CollectEdits(processors, {}, num_generated, 10);
    return row.edits.empty() ? TokenEdit() : row.edits[0];
  };
  EXPECT_EQ(edit_at(3), TokenEdit());
  EXPECT_EQ(EditedScore(-8, edit_at(4), 1), -4);
  EXPECT_EQ(EditedScore(-8, edit_at(5), 1), 2);
  EXPECT_EQ(EditedScore(8, edit_at(5), 1), 18);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(EditedScore(-kInf, edit_at(5), 1), -kInf);
  processors.eos_decay.factor = 0.5;
  EXPECT_EQ(EditedScore(-8, edit_at(4), 1), -12);
  EXPECT_EQ(EditedScore(kInf, edit_at(4), 1), kInf);
}

// Edits that are equal for all rows are made once.
TEST(ScoreEditsTest, RowsWithoutEditsOfTheirOwnShareOneList) {
  ScoreProcessors processors;
  processors.suppress_tokens = {5, 5, 3};
  processors.bad_words = {{4}, {1, 2, 6}};
  processors.repetition_penalty = 2;
  const ScoreEdits edits(processors, Tokens{8, 9, 8});
  std::vector<TokenEdit> storage;
  const auto view =
      edits.OfRow({.num_generated = 0, .vocab_size = 10}, &storage);
  EXPECT_THAT(storage, IsEmpty());
  Tokens tokens;
  for (const TokenEdit& edit : view.edits) tokens.push_back(edit.token);
  EXPECT_THAT(tokens, ElementsAre(3, 4, 5, 8, 9));
  EXPECT_EQ(edits.OfRow({.num_generated = 0, .vocab_size = 10}, &storage)
                .edits.data(),
            view.edits.data());
}

// One look at each token: n-grams of half the text, all of which match but for
// the last token, took the product of both.
TEST(ScoreEditsTest, NgramsOfHalfALongTextOfOneTokenAreFound) {
  ScoreProcessors processors;
  processors.no_repeat_ngram_size = 1 << 19;
  Tokens prompt(1 << 20, 7);
  prompt[1 << 10] = 3;
  const ScoreEdits edits(processors, prompt);
  std::vector<TokenEdit> storage;
  for (int row = 0; row < 20; ++row) {
    const Tokens tail(10, 7);
    const auto view = edits.OfRow(
        {.tail = tail, .num_generated = 10, .vocab_size = 10}, &storage);
    ASSERT_EQ(view.edits.size(), 1);
    ASSERT_EQ(view.edits[0].token, 7);
  }
}

}  // namespace
}  // namespace espalier
