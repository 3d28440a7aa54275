#include "constrain/token_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "constrain/choice_language.h"
#include "constrain/regex_language.h"
#include "tests/constrain/random_patterns.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::AllTexts;
using ::espalier::testing::Cases;
using ::espalier::testing::RandomPattern;
using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using State = TokenConstraint::State;

std::shared_ptr<const ByteAutomaton> Compile(std::string_view pattern) {
  auto automaton = CompileRegex(pattern);
  EXPECT_OK(automaton.status()) << pattern;
  return std::make_shared<const ByteAutomaton>(*std::move(automaton));
}

// All bytes, and random tokens of several, some of them equal or empty.
std::vector<std::string> RandomVocabulary(std::mt19937_64& random) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  const std::vector<std::string> texts = AllTexts("abc", 4);
  for (int i = 0; i < 60; ++i) tokens.push_back(texts[random() % texts.size()]);
  return tokens;
}

TEST(TokenTrieTest, BytesAreThoseOfTheArrays) {
  // Four bytes a token for its place and for its id, and the bytes of nodes.
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  constexpr int64_t kBytesOfNode = 12;
  constexpr int64_t kBytesOfRoot = 12;
  EXPECT_GE(TokenTrie(tokens).num_bytes(),
            256 * (1 + 4 + 4 + kBytesOfNode + kBytesOfRoot));
  // Lengths that no plain token has take no bitmap.
  constexpr int kNumTokens = 1 << 16;
  const std::vector<std::string> same(kNumTokens, "a");
  constexpr int64_t kBitmap = kNumTokens / 8;
  const int64_t num_bytes = TokenTrie(same).num_bytes();
  EXPECT_GE(num_bytes, kNumTokens * (1 + 4 + 4 + 1) + 2 * kBitmap);
  EXPECT_LT(num_bytes, kNumTokens * (1 + 4 + 4 + 1) + 3 * kBitmap);
}

TEST(TokenConstraintTest, LegalTokensAreThoseWhoseBytesMayFollow) {
  std::mt19937_64 random(7);
  for (int i = 0; i < Cases(60, 10); ++i) {
    const auto automaton = Compile(RandomPattern(6, random));
    const std::vector<std::string> inside = RandomVocabulary(random);
    const std::vector<std::string> first = RandomVocabulary(random);
    const bool has_first = i % 2 == 1;
    const bool drops_all = i % 4 == 1;
    const auto vocabulary =
        has_first
            ? std::make_shared<const TokenVocabulary>(inside, first, drops_all)
            : std::make_shared<const TokenVocabulary>(inside);
    ASSERT_OK_AND_ASSIGN(const TokenConstraint constraint,
                         TokenConstraint::Make(automaton, vocabulary));
    std::vector<TokenId> tokens;
    const State after_space = constraint.start() + 1;
    for (State s = 0; s < constraint.num_states(); ++s) {
      const bool at_start = s == constraint.start();
      const bool is_first =
          has_first && (at_start || (drops_all && s == after_space));
      std::vector<TokenId> expected;
      for (TokenId t = 0; t < constraint.vocab_size(); ++t) {
        const std::string& bytes = is_first ? first[t] : inside[t];
        State next = TokenConstraint::kNone;
        if (!bytes.empty()) {
          next = automaton->Next(s < constraint.start() ? s : 0, bytes);
        } else if (has_first && at_start && !inside[t].empty()) {
          next = after_space;  // a dropped space
        }
        EXPECT_EQ(constraint.Advance(s, t), next);
        if (next != TokenConstraint::kNone) expected.push_back(t);
      }
      constraint.LegalTokens(s, &tokens);
      EXPECT_EQ(tokens, expected);
    }
  }
}

// Texts of at most `max_tokens` tokens.
void AddTexts(const std::vector<std::string>& vocabulary, int max_tokens,
              const std::string& text, std::set<std::string>* texts) {
  texts->insert(text);
  if (max_tokens == 0) return;
  for (const std::string& token : vocabulary) {
    if (token.empty()) continue;
    AddTexts(vocabulary, max_tokens - 1, text + token, texts);
  }
}

// The oracle spells all texts: a token is legal if some text of the language
// continues it.
TEST(TokenConstraintTest, WithoutAllBytesATokenIsLegalIfTokensComplete) {
  std::mt19937_64 random(8);
  int num_refused = 0;
  for (int i = 0; i < Cases(200, 40); ++i) {
    const std::vector<std::string> pieces = AllTexts("abc", 3);
    std::vector<std::string> vocabulary;
    for (int t = 0; t < 4; ++t) {
      vocabulary.push_back(pieces[random() % pieces.size()]);
    }
    // Finite, and no longer than 6 bytes: 6 tokens spell each text.
    std::vector<std::string> language;
    const std::vector<std::string> all = AllTexts("abc", 6);
    for (int t = 0; t < 40; ++t) language.push_back(all[random() % all.size()]);
    std::set<std::string> spelt;
    AddTexts(vocabulary, 6, "", &spelt);
    std::set<std::string> possible;  // beginnings of texts that can be spelt
    for (const std::string& text : language) {
      if (spelt.count(text) == 0) continue;
      for (size_t n = 0; n <= text.size(); ++n)
        possible.insert(text.substr(0, n));
    }
    auto choice = CompileChoice(language);
    ASSERT_OK(choice);
    const auto automaton =
        std::make_shared<const ByteAutomaton>(*std::move(choice));
    const auto constraint = TokenConstraint::Make(
        automaton, std::make_shared<const TokenVocabulary>(vocabulary));
    if (possible.empty()) {
      EXPECT_THAT(constraint,
                  StatusIs(kInvalid,
                           "the vocabulary can spell no text of the language"));
      ++num_refused;
      continue;
    }
    ASSERT_OK(constraint);
    // Every text that legal tokens lead to can be completed, and every text
    // that can be spelt is reached.
    std::vector<std::pair<std::string, State>> queue = {
        {"", constraint->start()}};
    std::set<std::string> ended;
    for (size_t q = 0; q < queue.size(); ++q) {
      const auto [text, state] = queue[q];
      if (constraint->accepts(state)) ended.insert(text);
      std::vector<TokenId> legal;
      constraint->LegalTokens(state, &legal);
      for (TokenId t = 0; t < 4; ++t) {
        const State next = constraint->Advance(state, t);
        const bool is_legal =
            std::find(legal.begin(), legal.end(), t) != legal.end();
        ASSERT_EQ(is_legal, next != TokenConstraint::kNone);
        if (is_legal) queue.emplace_back(text + vocabulary[t], next);
      }
      EXPECT_TRUE(!legal.empty() || constraint->accepts(state));
    }
    for (const std::string& text : language) {
      EXPECT_EQ(ended.count(text), spelt.count(text)) << text;
    }
  }
  EXPECT_GT(num_refused, 0);
}

TEST(TokenConstraintTest, TokensWithoutBytesAreIllegal) {
  const auto vocabulary = std::make_shared<const TokenVocabulary>(
      std::vector<std::string>{"", "a", "aa", "", "a"});
  ASSERT_OK_AND_ASSIGN(const TokenConstraint constraint,
                       TokenConstraint::Make(Compile("a{2}"), vocabulary));
  std::vector<TokenId> tokens;
  constraint.LegalTokens(constraint.start(), &tokens);
  EXPECT_THAT(tokens, ElementsAre(1, 2, 4));
  const State state = constraint.Advance(constraint.start(), 2);
  EXPECT_TRUE(constraint.accepts(state));
  constraint.LegalTokens(state, &tokens);
  EXPECT_THAT(tokens, IsEmpty());
  EXPECT_EQ(constraint.Advance(constraint.start(), 0), TokenConstraint::kNone);
}

// The first token of a text has other bytes, as where its space is dropped.
TEST(TokenConstraintTest, TheStartIsAStateOfItsOwn) {
  const auto vocabulary = std::make_shared<const TokenVocabulary>(
      std::vector<std::string>{" a", "b"}, std::vector<std::string>{"a", "b"},
      /*drops_all=*/false);
  ASSERT_OK_AND_ASSIGN(const TokenConstraint constraint,
                       TokenConstraint::Make(Compile("(a| a)*"), vocabulary));
  std::vector<TokenId> tokens;
  State state = constraint.Advance(constraint.start(), 0);  // "a"
  ASSERT_NE(state, TokenConstraint::kNone);
  EXPECT_TRUE(constraint.accepts(state));
  state = constraint.Advance(state, 0);  // "a a"
  ASSERT_NE(state, TokenConstraint::kNone);
  ASSERT_OK_AND_ASSIGN(const TokenConstraint whole,
                       TokenConstraint::Make(Compile("a a"), vocabulary));
  state = whole.Advance(whole.Advance(whole.start(), 0), 0);
  ASSERT_NE(state, TokenConstraint::kNone);
  EXPECT_TRUE(whole.accepts(state));
  EXPECT_THAT(
      TokenConstraint::Make(Compile(" a"), vocabulary),
      StatusIs(kInvalid, "the vocabulary can spell no text of the language"));
}

// A token that is a dropped space alone is legal once, at the start.
TEST(TokenConstraintTest, ADroppedSpaceMayComeFirst) {
  for (const bool drops_all : {false, true}) {
    const auto vocabulary = std::make_shared<const TokenVocabulary>(
        std::vector<std::string>{" ", "a", " a", ""},
        std::vector<std::string>{"", "a", "a", ""}, drops_all);
    ASSERT_OK_AND_ASSIGN(const TokenConstraint constraint,
                         TokenConstraint::Make(Compile("a"), vocabulary));
    std::vector<TokenId> tokens;
    constraint.LegalTokens(constraint.start(), &tokens);
    EXPECT_THAT(tokens, ElementsAre(0, 1, 2));
    const State state = constraint.Advance(constraint.start(), 0);
    ASSERT_NE(state, TokenConstraint::kNone);
    EXPECT_FALSE(constraint.accepts(state));
    constraint.LegalTokens(state, &tokens);
    // " a" adds its space if only the first one is dropped.
    EXPECT_EQ(tokens, drops_all ? std::vector<TokenId>({1, 2})
                                : std::vector<TokenId>({1}));
  }
}

}  // namespace
}  // namespace espalier
