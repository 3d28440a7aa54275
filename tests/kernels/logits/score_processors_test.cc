#include "kernels/logits/score_processors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <span>
#include <vector>

namespace espalier {

void PrintTo(const TokenEdit& edit, std::ostream* out) {
  *out << "{" << edit.token << (edit.banned ? ", banned}" : "}");
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<TokenId>;

constexpr int kVocabSize = 10;

TokenEdit Banned(TokenId token) { return {.token = token, .banned = true}; }
TokenEdit Penalised(TokenId token) {
  return {.token = token, .repeated = true};
}

std::vector<TokenEdit> Collect(const ScoreProcessors& processors,
                               const Tokens& history, int num_generated = 0) {
  return CollectEdits(processors, history, num_generated, kVocabSize).edits;
}

TEST(ScoreProcessorsTest, NothingAskedIsNothingEdited) {
  EXPECT_THAT(Collect({}, {1, 2, 3}), IsEmpty());
  EXPECT_FALSE(ScoreProcessors{}.needs_history());
}

TEST(ScoreProcessorsTest, EveryTokenOfTheHistoryIsPenalisedOnce) {
  ScoreProcessors processors;
  processors.repetition_penalty = 1.3f;
  EXPECT_THAT(Collect(processors, {7, 2, 7, 2, 4}),
              ElementsAre(Penalised(2), Penalised(4), Penalised(7)));
  EXPECT_TRUE(processors.needs_history());
}

TEST(ScoreProcessorsTest, ThePenaltyAlwaysMakesAScoreWorse) {
  EXPECT_EQ(Penalise(-3.0f, 1.5f), -4.5f);
  EXPECT_EQ(Penalise(3.0f, 1.5f), 2.0f);
  EXPECT_EQ(Penalise(0.0f, 1.5f), 0.0f);
}

TEST(ScoreProcessorsTest, ATokenThatWouldRepeatAnNGramIsBanned) {
  ScoreProcessors processors;
  processors.no_repeat_ngram_size = 3;
  EXPECT_THAT(Collect(processors, {1, 2, 3, 1, 2, 5, 1, 2}),
              ElementsAre(Banned(3), Banned(5)));
  EXPECT_THAT(Collect(processors, {2, 2, 2}), ElementsAre(Banned(2)));
  EXPECT_THAT(Collect(processors, {1, 2, 3, 4}), IsEmpty());
}

TEST(ScoreProcessorsTest, NGramsLongerThanTheHistoryBanNothing) {
  ScoreProcessors processors;
  for (const int n : {2, 3, 4, 2147483647}) {
    processors.no_repeat_ngram_size = n;
    EXPECT_THAT(Collect(processors, {1}), IsEmpty()) << n;
    EXPECT_THAT(Collect(processors, {}), IsEmpty()) << n;
  }
}

TEST(ScoreProcessorsTest, UnigramsBanEverySeenToken) {
  ScoreProcessors processors;
  processors.no_repeat_ngram_size = 1;
  EXPECT_THAT(Collect(processors, {6, 1, 6}),
              ElementsAre(Banned(1), Banned(6)));
}

TEST(ScoreProcessorsTest, ABadWordIsBannedWhereItWouldBeCompleted) {
  ScoreProcessors processors;
  processors.bad_words = {{8}, {1, 2, 3}, {2, 5}};
  EXPECT_THAT(Collect(processors, {}), ElementsAre(Banned(8)));
  EXPECT_THAT(Collect(processors, {4, 1, 2}),
              ElementsAre(Banned(3), Banned(5), Banned(8)));
  EXPECT_THAT(Collect(processors, {1, 2, 4}), ElementsAre(Banned(8)));
  EXPECT_TRUE(processors.needs_history());
  processors.bad_words = {{8}};
  EXPECT_FALSE(processors.needs_history());
}

// The reference compares the prefix of a word with the history since 5.24;
// before, the whole word.
TEST(ScoreProcessorsTest, ABadWordNeedsNoMoreHistoryThanItsPrefix) {
  ScoreProcessors processors;
  processors.bad_words = {{1, 2, 3}};
  EXPECT_THAT(Collect(processors, {2}), IsEmpty());
  EXPECT_THAT(Collect(processors, {1, 2}), ElementsAre(Banned(3)));
}

TEST(ScoreProcessorsTest, ABadWordThatIsAnEosIsIgnored) {
  ScoreProcessors processors;
  processors.eos_token_ids = {2, 3};
  processors.bad_words = {{3}, {4}, {1, 2}};
  EXPECT_THAT(Collect(processors, {1, 1}), ElementsAre(Banned(2), Banned(4)));
}

TEST(ScoreProcessorsTest, EosIsBannedUntilEnoughIsGenerated) {
  ScoreProcessors processors;
  processors.eos_token_ids = {9, 2};
  processors.min_new_tokens = 2;
  EXPECT_THAT(Collect(processors, {}, 1), ElementsAre(Banned(2), Banned(9)));
  EXPECT_THAT(Collect(processors, {}, 2), IsEmpty());
  EXPECT_FALSE(processors.needs_history());
}

TEST(ScoreProcessorsTest, ABanWinsOverThePenalty) {
  ScoreProcessors processors;
  processors.repetition_penalty = 2.0f;
  processors.suppress_tokens = {5, 5, 1};
  EXPECT_THAT(Collect(processors, {6, 5}),
              ElementsAre(Banned(1), Banned(5), Penalised(6)));
}

TEST(ScoreProcessorsTest, TokensOutsideTheVocabularyAreLeftOut) {
  ScoreProcessors processors;
  processors.repetition_penalty = 2.0f;
  processors.suppress_tokens = {-1, kVocabSize, kVocabSize - 1};
  EXPECT_THAT(Collect(processors, {0, kVocabSize + 5}),
              ElementsAre(Penalised(0), Banned(kVocabSize - 1)));
}

TEST(ScoreProcessorsTest, GeneratedTokensArePenalisedForEachTimeAndOnce) {
  ScoreProcessors processors;
  processors.frequency_penalty = 0.5f;
  processors.presence_penalty = 0.25f;
  EXPECT_TRUE(processors.needs_history());
  EXPECT_THAT(Collect(processors, {3, 1, 4, 4, 3}, 3),
              ElementsAre(TokenEdit{.token = 3, .penalty = 0.75f},
                          TokenEdit{.token = 4, .penalty = 1.25f}));
  EXPECT_THAT(Collect(processors, {3, 1}, 0), IsEmpty());
}

TEST(ScoreProcessorsTest, BiasesActFirstAndPenaltiesOfTextLast) {
  ScoreProcessors processors;
  processors.logit_bias = {{.token = 3, .bias = 1.0f},
                           {.token = 6, .bias = -2.0f}};
  EXPECT_FALSE(processors.needs_history());
  processors.repetition_penalty = 1.5f;
  processors.frequency_penalty = 0.5f;
  const std::vector<TokenEdit> edits = Collect(processors, {3}, 1);
  EXPECT_THAT(
      edits,
      ElementsAre(
          TokenEdit{.token = 3, .repeated = true, .bias = 1, .penalty = 0.5f},
          TokenEdit{.token = 6, .bias = -2.0f}));
  EXPECT_EQ(EditedScore(2.0f, edits[0], processors.repetition_penalty), 1.5f);
  EXPECT_EQ(EditedScore(-4.0f, edits[0], processors.repetition_penalty), -5.0f);
  EXPECT_EQ(EditedScore(2.0f, edits[1], processors.repetition_penalty), 0.0f);
}

TEST(ScoreProcessorsTest, WhatIsNotAllowedHasNoEdit) {
  ScoreProcessors processors;
  processors.suppress_tokens = {5, 7};
  const Tokens sequences = {5, 8};
  const std::span<const TokenId> allowed = sequences;
  const RowEdits by_sequences =
      CollectEdits(processors, {}, 0, kVocabSize, &allowed);
  EXPECT_TRUE(by_sequences.is_allow_list);
  EXPECT_THAT(by_sequences.edits, ElementsAre(Banned(5), TokenEdit{8}));
  processors.allowed_tokens = {2, 5, kVocabSize};
  const RowEdits by_tokens = CollectEdits(processors, {}, 0, kVocabSize);
  EXPECT_TRUE(by_tokens.is_allow_list);
  EXPECT_THAT(by_tokens.edits, ElementsAre(TokenEdit{2}, Banned(5)));
  const RowEdits by_both =
      CollectEdits(processors, {}, 0, kVocabSize, &allowed);
  EXPECT_TRUE(by_both.is_allow_list);
  EXPECT_THAT(by_both.edits, ElementsAre(Banned(5)));
}

TEST(ScoreProcessorsTest, MaxEditsCountsWhatIsAsked) {
  EXPECT_EQ(MaxEdits({}, 9, kVocabSize), 0);
  ScoreProcessors processors;
  processors.eos_token_ids = {1, 2};
  processors.suppress_tokens = {3};
  EXPECT_EQ(MaxEdits(processors, 9, kVocabSize), 1);
  processors.min_new_tokens = 1;
  processors.bad_words = {{4, 5}};
  EXPECT_EQ(MaxEdits(processors, 9, kVocabSize), 4);
  processors.no_repeat_ngram_size = 2;
  EXPECT_EQ(MaxEdits(processors, 3, kVocabSize), 7);
  processors.repetition_penalty = 1.5f;
  EXPECT_EQ(MaxEdits(processors, 3, kVocabSize), 7);
  EXPECT_EQ(MaxEdits(processors, 9, kVocabSize), kVocabSize);
}

// The rules again, token by token as the reference defines them: a token is
// banned if the sequence with it appended breaks the rule.
class Oracle {
 public:
  Oracle(const ScoreProcessors& processors, const Tokens& history,
         int num_generated)
      : processors_(processors),
        history_(history),
        num_generated_(num_generated) {}

  std::vector<TokenEdit> Edits() const {
    std::vector<TokenEdit> edits;
    for (TokenId token = 0; token < kVocabSize; ++token) {
      const bool seen = Contains(history_, {token});
      const bool penalised = seen && processors_.repetition_penalty != 1.0f;
      if (IsBanned(token) || penalised) {
        edits.push_back(IsBanned(token) ? Banned(token) : Penalised(token));
      }
    }
    return edits;
  }

 private:
  static bool Contains(const Tokens& text, const Tokens& part) {
    return std::search(text.begin(), text.end(), part.begin(), part.end()) !=
           text.end();
  }

  static bool EndsWith(const Tokens& text, const Tokens& end) {
    return text.size() >= end.size() &&
           std::equal(end.rbegin(), end.rend(), text.rbegin());
  }

  bool RepeatsNGram(const Tokens& next) const {
    const int n = processors_.no_repeat_ngram_size;
    if (n == 0 || std::ssize(next) < n) return false;
    return Contains(history_, Tokens(next.end() - n, next.end()));
  }

  bool CompletesBadWord(const Tokens& next) const {
    for (const Tokens& word : processors_.bad_words) {
      if (word.size() == 1 && Contains(processors_.eos_token_ids, word)) {
        continue;
      }
      if (EndsWith(next, word)) return true;
    }
    return false;
  }

  bool IsBanned(TokenId token) const {
    Tokens next = history_;
    next.push_back(token);
    return RepeatsNGram(next) || CompletesBadWord(next) ||
           Contains(processors_.suppress_tokens, {token}) ||
           (num_generated_ < processors_.min_new_tokens &&
            Contains(processors_.eos_token_ids, {token}));
  }

  const ScoreProcessors& processors_;
  const Tokens& history_;
  int num_generated_;
};

// Tokens from a vocabulary so small that n-grams do repeat.
Tokens SomeTokens(int min_size, int max_size) {
  const int size = *rc::gen::inRange(min_size, max_size + 1);
  return *rc::gen::container<Tokens>(size, rc::gen::inRange(0, 4));
}

RC_GTEST_PROP(ScoreProcessorsTest, EqualsTheRulesAskedTokenByToken, ()) {
  ScoreProcessors processors;
  processors.repetition_penalty = *rc::gen::element(1.0f, 1.2f);
  processors.no_repeat_ngram_size = *rc::gen::inRange(0, 5);
  for (int words = *rc::gen::inRange(0, 4); words > 0; --words) {
    processors.bad_words.push_back(SomeTokens(1, 4));
  }
  processors.suppress_tokens = SomeTokens(0, 1);
  processors.eos_token_ids = SomeTokens(0, 2);
  processors.min_new_tokens = *rc::gen::inRange(0, 3);
  const Tokens history = SomeTokens(0, 24);
  const int num_generated = *rc::gen::inRange(0, 4);
  const std::vector<TokenEdit> edits =
      Collect(processors, history, num_generated);
  RC_ASSERT(edits == Oracle(processors, history, num_generated).Edits());
  RC_ASSERT(processors.needs_history() ||
            edits == Collect(processors, {}, num_generated));
  RC_ASSERT(static_cast<int64_t>(edits.size()) <=
            MaxEdits(processors, history.size(), kVocabSize));
}

}  // namespace
}  // namespace espalier
