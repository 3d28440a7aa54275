// Constraints of tokens, against their definition.
#include "constrain/text_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

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

using State = Constraint::State;

constexpr int kAnyRoom = 1'000'000;
constexpr int kNever = 1'000'000'000;

absl::StatusOr<std::shared_ptr<const TextConstraint>> MakeTextConstraint(
    std::string_view pattern, std::vector<std::string> vocabulary,
    std::vector<TokenId> end_ids) {
  ASSIGN_OR_RETURN(ByteAutomaton automaton, CompileRegex(pattern));
  ASSIGN_OR_RETURN(
      TokenConstraint texts,
      TokenConstraint::Make(
          std::make_shared<const ByteAutomaton>(std::move(automaton)),
          std::make_shared<const TokenVocabulary>(std::move(vocabulary))));
  return TextConstraint::Make(std::move(texts), std::move(end_ids));
}

// The tokens that may follow texts of a language, by their definition.
class Definition {
 public:
  Definition(const ByteAutomaton& automaton,
             const std::vector<std::string>& vocabulary,
             const std::vector<TokenId>& end_ids)
      : automaton_(automaton), vocabulary_(vocabulary), end_ids_(end_ids) {
    live_.assign(automaton.num_states(), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (State s = 0; s < automaton.num_states(); ++s) {
        const bool is_live = automaton.accepts(s) || !TextTokens(s).empty();
        changed |= is_live && !live_[s];
        live_[s] = live_[s] || is_live;
      }
    }
    // Texts that can be completed by more and more tokens.
    min_tokens_.assign(automaton.num_states(), kNever);
    for (int length = 0; length < automaton.num_states(); ++length) {
      for (State s = 0; s < automaton.num_states(); ++s) {
        if (min_tokens_[s] != kNever) continue;
        if (automaton.accepts(s)) min_tokens_[s] = 0;
        for (const TokenId token : TextTokens(s)) {
          const int after = min_tokens_[automaton.Next(s, vocabulary[token])];
          if (after < length) min_tokens_[s] = length;
        }
      }
    }
  }

  // Tokens after which the text can be completed.
  std::vector<TokenId> TextTokens(State state) const {
    std::vector<TokenId> tokens;
    for (TokenId t = 0; t < std::ssize(vocabulary_); ++t) {
      if (vocabulary_[t].empty()) continue;
      const State next = automaton_.Next(state, vocabulary_[t]);
      if (next != ByteAutomaton::kNone && live_[next]) tokens.push_back(t);
    }
    return tokens;
  }
  // Tokens after which `room` - 1 tokens can complete the text.
  std::vector<TokenId> TextTokens(State state, int room) const {
    std::vector<TokenId> tokens = TextTokens(state);
    std::erase_if(tokens, [&](TokenId token) {
      return min_tokens_[automaton_.Next(state, vocabulary_[token])] >= room;
    });
    return tokens;
  }
  bool MustEnd(State state, int room) const {
    return automaton_.accepts(state) && TextTokens(state, room).empty();
  }
  std::vector<TokenId> Legal(State state, int room) const {
    std::vector<TokenId> tokens = TextTokens(state, room);
    if (!automaton_.accepts(state)) return tokens;
    tokens.insert(tokens.end(), end_ids_.begin(), end_ids_.end());
    std::ranges::sort(tokens);
    return tokens;
  }
  int NumLast(State state, int room) const {
    int count =
        automaton_.accepts(state) ? static_cast<int>(end_ids_.size()) : 0;
    for (const TokenId token : TextTokens(state, room)) {
      count += MustEnd(automaton_.Next(state, vocabulary_[token]), room - 1);
    }
    return count;
  }
  int min_tokens(State state) const { return min_tokens_[state]; }

 private:
  const ByteAutomaton& automaton_;
  const std::vector<std::string>& vocabulary_;
  const std::vector<TokenId>& end_ids_;
  std::vector<bool> live_;
  std::vector<int> min_tokens_;
};

// Tokens 0 and 1 add no text.
std::vector<std::string> RandomTokens(std::mt19937_64& random) {
  std::vector<std::string> vocabulary = {"", "", "a", "c"};
  if (random() % 2 == 0) {
    for (int byte = 0; byte < 256; ++byte) {
      vocabulary.emplace_back(1, static_cast<char>(byte));
    }
  }
  const std::vector<std::string> texts = AllTexts("abc", 3);
  for (int i = 0; i < 12; ++i) {
    vocabulary.push_back(texts[random() % texts.size()]);
  }
  return vocabulary;
}

// Each state that is reached, with room for few tokens and for many.
TEST(TextConstraintTest, StatesAreAsTheyAreDefined) {
  std::mt19937_64 random(3);
  int num_states = 0;
  int num_last = 0;
  int num_near = 0;
  for (int i = 0; i < Cases(200, 40); ++i) {
    const std::string pattern = RandomPattern(6, random);
    const std::vector<std::string> vocabulary = RandomTokens(random);
    std::vector<TokenId> end_ids;
    if (random() % 4 != 0) end_ids.push_back(0);
    if (random() % 2 == 0) end_ids.push_back(1);
    const auto made = MakeTextConstraint(pattern, vocabulary, end_ids);
    if (!made.ok()) continue;
    const TextConstraint& constraint = **made;
    const ByteAutomaton& automaton = constraint.texts().automaton();
    const Definition definition(automaton, vocabulary, end_ids);
    // Pairs of a state, and the automaton's there.
    std::vector<std::pair<State, State>> queue = {{constraint.start(), 0}};
    std::vector<bool> is_met(constraint.texts().num_states(), false);
    for (size_t q = 0; q < queue.size(); ++q) {
      const auto [state, text] = queue[q];
      std::vector<TokenId> before;  // with less room
      for (const int room : {1, 2, 3, 4, 5, 6, 8, 12, kAnyRoom}) {
        const Constraint::Legal legal = constraint.LegalTokens(state, room);
        const std::vector<TokenId> expected = definition.Legal(text, room);
        EXPECT_TRUE(std::ranges::equal(legal.tokens, expected)) << pattern;
        EXPECT_EQ(legal.num_last, definition.NumLast(text, room)) << pattern;
        if (legal.num_last < std::ssize(legal.tokens)) {
          EXPECT_LE(legal.num_last, constraint.MaxLast(1)) << pattern;
        }
        EXPECT_LE(std::ssize(legal.tokens), constraint.MaxLegal(1));
        EXPECT_TRUE(std::ranges::includes(expected, before));
        num_near += before.empty() || before == expected ? 0 : 1;
        before = expected;
      }
      const std::vector<TokenId> expected = definition.Legal(text, kAnyRoom);
      num_last += definition.NumLast(text, kAnyRoom);
      for (TokenId t = 0; t < std::ssize(vocabulary); ++t) {
        const State next = constraint.Advance(state, t);
        if (!std::ranges::binary_search(expected, t)) {
          EXPECT_EQ(next, Constraint::kNone);
          continue;
        }
        ASSERT_NE(next, Constraint::kNone);
        if (std::ranges::binary_search(end_ids, t)) {
          EXPECT_TRUE(constraint.accepts(next, 3) && constraint.ends(next, 3));
          EXPECT_THAT(constraint.LegalTokens(next, 3).tokens, IsEmpty());
          continue;
        }
        const State next_text = automaton.Next(text, vocabulary[t]);
        for (const int room : {0, 1, 2, 3, 5, kAnyRoom}) {
          if (definition.min_tokens(next_text) > room) continue;
          const bool must_end = definition.MustEnd(next_text, room);
          EXPECT_EQ(constraint.ends(next, room), must_end) << pattern;
          EXPECT_EQ(constraint.accepts(next, room), must_end) << pattern;
        }
        if (!is_met[next]) queue.emplace_back(next, next_text);
        is_met[next] = true;
      }
    }
    // The least room is the one with which there are tokens.
    for (const bool is_empty_legal : {true, false}) {
      const int32_t least = constraint.MinRoom(is_empty_legal);
      for (const int room : {1, 2, 3, 4, 5}) {
        const std::vector<TokenId> tokens =
            is_empty_legal ? definition.Legal(0, room)
                           : definition.TextTokens(0, room);
        EXPECT_EQ(tokens.empty(), room < least) << pattern;
      }
    }
    num_states += static_cast<int>(queue.size());
  }
  EXPECT_GT(num_states, Cases(500, 100));
  EXPECT_GT(num_last, Cases(100, 20));
  EXPECT_GT(num_near, Cases(300, 60));
}

// A closed text ends; an open one needs one more token.
TEST(TextConstraintTest, ListsDependOnTheRoomOnlyNearItsEnd) {
  const std::vector<std::string> vocabulary = {"", "x", "xx", "[", "]", "{"};
  ASSERT_OK_AND_ASSIGN(const auto constraint,
                       MakeTextConstraint("[[{]x*(\\]|x{5})", vocabulary, {0}));
  const State state = constraint->Advance(constraint->start(), 3);
  const Constraint::Legal all = constraint->LegalTokens(state, kAnyRoom);
  EXPECT_THAT(all.tokens, ElementsAre(1, 2, 4));
  for (const int room : {4, 5, 1000}) {
    EXPECT_EQ(constraint->LegalTokens(state, room).tokens.data(),
              all.tokens.data());
  }
  EXPECT_THAT(constraint->LegalTokens(state, 2).tokens, ElementsAre(1, 2, 4));
  const Constraint::Legal last = constraint->LegalTokens(state, 1);
  EXPECT_THAT(last.tokens, ElementsAre(4));
  EXPECT_EQ(last.num_last, 1);
  const int64_t num_bytes = constraint->num_bytes();
  EXPECT_EQ(constraint->LegalTokens(state, 1).tokens.data(),
            last.tokens.data());
  EXPECT_EQ(constraint->num_bytes(), num_bytes);
}

// Within a long string all states but the last have the same tokens.
TEST(TextConstraintTest, StatesWithEqualTokensShareThem) {
  const std::vector<std::string> vocabulary = {"", "a", "b", "ab", "aaa"};
  ASSERT_OK_AND_ASSIGN(const auto constraint,
                       MakeTextConstraint("[ab]{1,40}", vocabulary, {0}));
  State state = constraint->Advance(constraint->start(), 1);
  const Constraint::Legal first = constraint->LegalTokens(state, kAnyRoom);
  EXPECT_THAT(first.tokens, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(first.num_last, 1);
  const int64_t num_bytes = constraint->num_bytes();
  for (int i = 0; i < 30; ++i) {
    state = constraint->Advance(state, 2);
    EXPECT_EQ(constraint->LegalTokens(state, kAnyRoom).tokens.data(),
              first.tokens.data());
  }
  EXPECT_EQ(constraint->num_bytes(), num_bytes);
}

// Each state bans another letter.
TEST(TextConstraintTest, ItIsFullOnceItsListsTakeMoreThanOneRequestMayNeed) {
  std::vector<std::string> vocabulary;
  for (char c = 'a'; c <= 'z'; ++c) vocabulary.emplace_back(1, c);
  ASSERT_OK_AND_ASSIGN(ByteAutomaton automaton,
                       CompileRegex("[^a][^b][^c][^d][^e][^f]"));
  ASSERT_OK_AND_ASSIGN(
      TokenConstraint texts,
      TokenConstraint::Make(
          std::make_shared<const ByteAutomaton>(std::move(automaton)),
          std::make_shared<const TokenVocabulary>(vocabulary)));
  ASSERT_OK_AND_ASSIGN(const auto constraint,
                       TextConstraint::Make(std::move(texts), {}, 700));
  State state = constraint->start();
  int num_states = 0;
  for (; !constraint->is_full(); ++num_states) {
    state = constraint->Advance(state, 25);
    ASSERT_NE(state, Constraint::kNone);
    EXPECT_FALSE(constraint->LegalTokens(state, kAnyRoom).tokens.empty());
  }
  EXPECT_GE(num_states, 2);
  EXPECT_EQ(constraint->max_list_bytes(), 700);
}

TEST(TextConstraintTest, TheEmptyTextAloneNeedsAnEnd) {
  const std::vector<std::string> vocabulary = {"", "a"};
  EXPECT_THAT(MakeTextConstraint("", vocabulary, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the empty text alone is in the language, and no EOS id "
                       "ends it"));
  ASSERT_OK_AND_ASSIGN(const auto constraint,
                       MakeTextConstraint("", vocabulary, {0}));
  EXPECT_THAT(constraint->LegalTokens(constraint->start(), kAnyRoom).tokens,
              ElementsAre(0));
}

TEST(TextConstraintTest, ThreadsGetTheSameTokens) {
  std::mt19937_64 random(5);
  const std::vector<std::string> vocabulary = RandomTokens(random);
  ASSERT_OK_AND_ASSIGN(
      const auto constraint,
      MakeTextConstraint("(a[bc]{0,30}a|c{1,9}b)*", vocabulary, {0}));
  const int num_states = constraint->texts().num_states();
  std::vector<std::vector<const TokenId*>> found(4);
  std::vector<std::thread> threads;
  for (auto& of_thread : found) {
    threads.emplace_back([&] {
      for (State s = 0; s < num_states; ++s) {
        of_thread.push_back(constraint->LegalTokens(s, kAnyRoom).tokens.data());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& of_thread : found) EXPECT_EQ(of_thread, found[0]);
}

}  // namespace
}  // namespace espalier
