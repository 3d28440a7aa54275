// Constraints of recursive grammars, against the definition of the grammar, and
// against finite automata where these have the same texts.
#include "constrain/pushdown_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "constrain/gbnf_language.h"
#include "constrain/text_constraint.h"
#include "tests/constrain/grammar_oracle.h"
#include "tests/constrain/random_grammars.h"
#include "tests/constrain/random_patterns.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::AllTexts;
using ::espalier::testing::Cases;
using ::espalier::testing::GrammarOracle;
using ::espalier::testing::RandomGrammar;
using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

using State = Constraint::State;
using Made = absl::StatusOr<std::shared_ptr<const PushdownConstraint>>;

constexpr int kLarge = 1'000'000;
constexpr char kPairs[] = "root ::= \"(\" root \")\" root | \"x\"?";
constexpr char kList[] = "root ::= \"[\" (root (\",\" root)*)? \"]\" | [ab]+";
constexpr char kSums[] =
    "root ::= root \"+\" t | t\nt ::= \"(\" root \")\" | \"a\" \"b\"?";
constexpr char kAmbiguous[] = "root ::= \"a\" root \"a\" | \"a\" | root \"b\"";

Made MakeConstraint(std::string_view grammar,
                    std::vector<std::string> vocabulary,
                    PushdownConstraint::Options options, int max_depth = 64) {
  ASSIGN_OR_RETURN(GrammarLanguage language,
                   CompileGbnf(grammar, {.max_depth = max_depth}));
  return PushdownConstraint::Make(
      std::make_shared<const PushdownAutomaton>(
          std::get<PushdownAutomaton>(std::move(language))),
      std::make_shared<const TokenVocabulary>(std::move(vocabulary)),
      std::move(options));
}

// Token 0 adds no text, and ends it.
std::vector<std::string> Tokens(std::string_view alphabet) {
  std::vector<std::string> tokens = {""};
  for (const char c : alphabet) tokens.emplace_back(1, c);
  for (const char a : alphabet) {
    for (const char b : alphabet) tokens.push_back({a, b});
  }
  for (const char* const more : {"()(", "))))", "[[[", "]],", "a+(", "aaa"}) {
    tokens.emplace_back(more);
  }
  return tokens;
}

bool Begins(const std::set<std::string>& texts, const std::string& begin) {
  const auto it = texts.lower_bound(begin);
  return it != texts.end() && it->starts_with(begin);
}

TEST(PushdownConstraintTest, TokensAreThoseOfTheDefinition) {
  for (const auto& [grammar, alphabet, length] :
       std::vector<std::tuple<const char*, const char*, int>>{
           {kPairs, "()x", 7},
           {kList, "[],a", 6},
           {kSums, "(+)a", 7},
           {kAmbiguous, "ab", 9}}) {
    const std::vector<std::string> vocabulary = Tokens(alphabet);
    const std::set<std::string> texts =
        GrammarOracle(grammar).Texts(AllTexts(alphabet, length));
    ASSERT_OK_AND_ASSIGN(const auto constraint,
                         MakeConstraint(grammar, vocabulary, {.end_ids = {0}}));
    // Texts of tokens whose beginnings can be told by those of the language.
    std::map<std::string, State> reached = {{"", constraint->start()}};
    for (auto it = reached.begin(); it != reached.end(); ++it) {
      const auto& [text, state] = *it;
      std::vector<TokenId> expected;
      if (texts.contains(text)) expected.push_back(0);
      for (TokenId t = 1; t < std::ssize(vocabulary); ++t) {
        const std::string longer = text + vocabulary[t];
        const State next = constraint->Advance(state, t);
        if (std::ssize(longer) > length / 2) {
          // The shortest text that it begins may be too long to be known.
          if (next != Constraint::kNone) expected.push_back(t);
          continue;
        }
        EXPECT_EQ(next != Constraint::kNone, Begins(texts, longer)) << longer;
        if (!Begins(texts, longer)) continue;
        expected.push_back(t);
        // A text has one state, whatever its tokens.
        const auto [entry, is_new] = reached.try_emplace(longer, next);
        EXPECT_EQ(entry->second, next) << longer;
      }
      const Constraint::Legal legal = constraint->LegalTokens(state, kLarge);
      EXPECT_TRUE(std::ranges::equal(legal.tokens, expected)) << text;
    }
    EXPECT_GT(reached.size(), 8) << grammar;
  }
}

// A list is short or long by the language alone, made already or not; and those
// that are not too long are made.
TEST(PushdownConstraintTest, AListIsTriedWithinAnEffort) {
  std::mt19937_64 random(9);
  int num_short = 0;
  int num_long = 0;
  const std::vector<std::string> vocabulary = Tokens("ab(");
  for (int i = 0; i < Cases(1500, 400); ++i) {
    const std::string grammar = RandomGrammar(random);
    const absl::StatusOr<GrammarLanguage> language = CompileGbnf(grammar);
    if (!language.ok() || !std::holds_alternative<PushdownAutomaton>(*language))
      continue;
    const Made fresh = MakeConstraint(grammar, vocabulary, {.end_ids = {0}});
    const Made listed = MakeConstraint(grammar, vocabulary, {.end_ids = {0}});
    if (!fresh.ok()) continue;  // the tokens can spell no text
    State state = (*fresh)->start();
    State other = (*listed)->start();
    for (int length = 0; length < 6 && state != Constraint::kNone; ++length) {
      const int room = 1 + static_cast<int>(random() % 8);
      const int64_t effort = random() % 150;
      const auto expected = (*listed)->LegalTokens(other, room).tokens;
      EXPECT_TRUE((*listed)->IsListed(other, room));
      // The start is made with the constraint.
      if (length > 0) {
        const bool was_listed = (*fresh)->IsListed(state, room);
        const bool is_short = (*fresh)->TryList(state, room, effort);
        EXPECT_EQ(is_short, (*listed)->TryList(other, room, effort));
        EXPECT_TRUE((*fresh)->IsListed(state, room) || !is_short);
        (is_short ? num_short : num_long) += !was_listed;
      }
      const auto tokens = (*fresh)->LegalTokens(state, room).tokens;
      EXPECT_TRUE(std::ranges::equal(tokens, expected)) << grammar;
      if (tokens.empty()) break;
      const TokenId token = tokens[random() % tokens.size()];
      state = (*fresh)->Advance(state, token);
      other = (*listed)->Advance(other, token);
    }
  }
  EXPECT_GT(num_short, 10);
  EXPECT_GT(num_long, 10);
}

// A list that takes too long is not begun again by each who tries.
TEST(PushdownConstraintTest, ALongListIsTriedOnce) {
  std::vector<std::string> vocabulary = {""};
  for (int i = 0; i < 13 * 13 * 13 * 13; ++i) {
    const auto letter = [](char first, int n) -> char {
      return static_cast<char>(first + n % 13);
    };
    vocabulary.push_back({letter('a', i), letter('n', i / 13),
                          letter('a', i / 169), letter('n', i / 2197)});
  }
  vocabulary.push_back("(");
  vocabulary.push_back(")");
  const Made made =
      MakeConstraint(R"g(root ::= "(" root ")" | ([a-m] [n-z])+ "(")g",
                     vocabulary, {.end_ids = {0}});
  ASSERT_OK(made);
  const PushdownConstraint& constraint = **made;
  const State state = constraint.Advance(
      constraint.start(), static_cast<TokenId>(vocabulary.size() - 2));
  constexpr int kRoom = 100;
  constexpr int64_t kEffort = 10'000;
  EXPECT_FALSE(constraint.TryList(state, kRoom, kEffort));
  const int64_t effort = constraint.total_effort();
  EXPECT_GE(effort, kEffort);
  EXPECT_FALSE(constraint.TryList(state, kRoom, kEffort));
  EXPECT_EQ(constraint.total_effort(), effort);
  EXPECT_FALSE(constraint.IsListed(state, kRoom));
  EXPECT_TRUE(constraint.TryList(state, kRoom, 100 * kEffort));
  EXPECT_FALSE(constraint.TryList(state, kRoom, kEffort));
}

// Draws legal tokens until the sequence ends. Returns the text, or a note where
// it breaks a promise.
std::string Walk(const Constraint& constraint,
                 const std::vector<std::string>& vocabulary, int room,
                 std::mt19937_64& random) {
  std::string text;
  State state = constraint.start();
  for (;; --room) {
    const Constraint::Legal legal = constraint.LegalTokens(state, room);
    if (legal.error != nullptr) return "error";
    if (legal.tokens.empty()) return "no token after " + text;
    int num_last = 0;
    for (const TokenId t : legal.tokens) {
      const State next = constraint.Advance(state, t);
      if (next == Constraint::kNone) return "illegal after " + text;
      num_last += constraint.ends(next, room - 1);
    }
    if (num_last != legal.num_last) return "last tokens after " + text;
    const TokenId token = legal.tokens[random() % legal.tokens.size()];
    text += vocabulary[token];
    state = constraint.Advance(state, token);
    if (!constraint.ends(state, room - 1)) continue;
    return constraint.accepts(state, room - 1) ? text : "outside: " + text;
  }
}

TEST(PushdownConstraintTest, RandomWalksEndInTheLanguageWithinTheRoom) {
  std::mt19937_64 random(2);
  for (const auto& [grammar, alphabet] :
       std::vector<std::pair<const char*, const char*>>{{kPairs, "()x"},
                                                        {kList, "[],ab"},
                                                        {kSums, "(+)ab"},
                                                        {kAmbiguous, "ab"}}) {
    const GrammarOracle oracle(grammar);
    const std::vector<std::string> vocabulary = Tokens(alphabet);
    for (const bool has_end : {true, false}) {
      for (const int depth : {2, 64}) {
        PushdownConstraint::Options options;
        if (has_end) options.end_ids = {0};
        ASSERT_OK_AND_ASSIGN(
            const auto constraint,
            MakeConstraint(grammar, vocabulary, options, depth));
        const int least = constraint->MinRoom(true);
        for (int i = 0; i < Cases(60, 15); ++i) {
          const int room = least + static_cast<int>(random() % 14);
          const std::string text = Walk(*constraint, vocabulary, room, random);
          EXPECT_TRUE(oracle.Has(text)) << text << " of " << grammar;
        }
      }
    }
  }
}

// A grammar of a few levels, and the finite automaton of these levels.
TEST(PushdownConstraintTest, TokensAreThoseOfTheUnrolledGrammar) {
  constexpr int kDepth = 3;
  std::string unrolled = "root ::= r0\n";
  for (int i = 0; i < kDepth; ++i) {
    unrolled += Concat("r", i, " ::= \"[\" (r", i + 1, " (\",\" r", i + 1,
                       ")*)? \"]\" | [ab]+\n");
  }
  unrolled += Concat("r", kDepth, " ::= \"[]\" | [ab]+\n");
  ASSERT_OK_AND_ASSIGN(GrammarLanguage plain, CompileGbnf(unrolled));
  const std::vector<std::string> tokens = Tokens("[],ab");
  const auto vocabulary = std::make_shared<const TokenVocabulary>(tokens);
  ASSERT_OK_AND_ASSIGN(
      TokenConstraint texts,
      TokenConstraint::Make(std::make_shared<const ByteAutomaton>(
                                std::get<ByteAutomaton>(std::move(plain))),
                            vocabulary));
  ASSERT_OK_AND_ASSIGN(const auto expected,
                       TextConstraint::Make(std::move(texts), {0}));
  ASSERT_OK_AND_ASSIGN(const auto constraint,
                       MakeConstraint(kList, tokens, {.end_ids = {0}}, kDepth));
  EXPECT_EQ(constraint->MinRoom(true), expected->MinRoom(true));
  std::mt19937_64 random(3);
  for (int i = 0; i < Cases(100, 20); ++i) {
    State state = constraint->start();
    State other = expected->start();
    for (int length = 0; length < 12; ++length) {
      const auto legal = constraint->LegalTokens(state, kLarge);
      const auto wanted = expected->LegalTokens(other, kLarge);
      ASSERT_TRUE(std::ranges::equal(legal.tokens, wanted.tokens));
      EXPECT_EQ(legal.num_last, wanted.num_last);
      // Near the end perhaps fewer, because numbers are upper bounds.
      for (const int room : {1, 2, 3, 4, 5, 6}) {
        const auto near = constraint->LegalTokens(state, room);
        const auto all = expected->LegalTokens(other, room);
        EXPECT_TRUE(std::ranges::includes(all.tokens, near.tokens));
      }
      if (legal.tokens.empty()) break;
      const TokenId token = legal.tokens[random() % legal.tokens.size()];
      state = constraint->Advance(state, token);
      other = expected->Advance(other, token);
      EXPECT_EQ(constraint->ends(state, kLarge), expected->ends(other, kLarge));
    }
  }
}

TEST(PushdownConstraintTest, TheFirstTokenDropsItsSpace) {
  const std::vector<std::string> inside = {"", "(", ")", " (", " ", "x", " x"};
  const std::vector<std::string> first = {"", "(", ")", "(", "", "x", "x"};
  ASSERT_OK_AND_ASSIGN(GrammarLanguage language, CompileGbnf(kPairs));
  const auto automaton = std::make_shared<const PushdownAutomaton>(
      std::get<PushdownAutomaton>(std::move(language)));
  const auto vocabulary =
      std::make_shared<const TokenVocabulary>(inside, first, false);
  ASSERT_OK_AND_ASSIGN(
      const auto opening,
      PushdownConstraint::Make(automaton, vocabulary, {.end_ids = {0}}));
  EXPECT_THAT(opening->LegalTokens(opening->start(), kLarge).tokens,
              ::testing::ElementsAre(0, 1, 3, 4, 5, 6));
  const State after_space = opening->Advance(opening->start(), 4);
  ASSERT_NE(after_space, Constraint::kNone);
  EXPECT_THAT(opening->LegalTokens(after_space, kLarge).tokens,
              ::testing::ElementsAre(0, 1, 5));
  ASSERT_OK_AND_ASSIGN(
      const auto inner,
      PushdownConstraint::Make(automaton, vocabulary,
                               {.end_ids = {0}, .opens_text = false}));
  EXPECT_THAT(inner->LegalTokens(inner->start(), kLarge).tokens,
              ::testing::ElementsAre(0, 1, 5));
}

TEST(PushdownConstraintTest, VocabulariesWithoutSomeBytesSpellTheRest) {
  // Without ")" alone.
  ASSERT_OK_AND_ASSIGN(
      const auto constraint,
      MakeConstraint("root ::= \"(\" root \"))\" | \"x\" | \"y\"",
                     {"", "(", "x", "))"}, {.end_ids = {0}}));
  std::mt19937_64 random(1);
  for (int i = 0; i < 20; ++i) {
    const std::string text =
        Walk(*constraint, {"", "(", "x", "))"}, 3 + 2 * (i % 5), random);
    EXPECT_EQ(std::ranges::count(text, 'x'), 1) << text;
    EXPECT_EQ(2 * std::ranges::count(text, '('), std::ranges::count(text, ')'))
        << text;
  }
  EXPECT_THAT(MakeConstraint("root ::= \"(\" root \")\" | \"x\"",
                             {"", "(", ")"}, {.end_ids = {0}})
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the vocabulary can spell no text of the language"));
}

TEST(PushdownConstraintTest, TooFewStepsAreNoLackOfATextThatCanBeSpelt) {
  // Without the letters alone.
  std::vector<std::string> vocabulary = {"", "(", ")"};
  for (char a = 'a'; a <= 'p'; ++a) {
    for (char b = 'a'; b <= 'p'; ++b) vocabulary.push_back({a, b});
  }
  int num_unfound = 0;
  for (int64_t steps = 64; steps < 1 << 20; steps += steps / 4) {
    const absl::Status status =
        MakeConstraint("root ::= \"(\" root \")\" | [a-p]{8}", vocabulary,
                       {.end_ids = {0}, .limits = {.max_steps = steps}})
            .status();
    if (status.ok()) continue;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("steps")));
    num_unfound += std::string(status.message()).starts_with("finding");
  }
  EXPECT_GT(num_unfound, 0);
}

TEST(PushdownConstraintTest, TooAmbiguousGrammarsEndTheRequestWithAnError) {
  std::string grammar = "root ::= \"b\" root \"c\" | \"y\"";
  for (int i = 0; i < 300; ++i) grammar += Concat(" | r", i);
  for (int i = 0; i < 300; ++i) {
    grammar += Concat("\nr", i, " ::= \"a\" r", i, " \"", i, "\" | \"x\"");
  }
  ASSERT_OK_AND_ASSIGN(const auto constraint,
                       MakeConstraint(grammar, {"b", "c", "y", "xx"}, {}));
  EXPECT_EQ(constraint->LegalTokens(constraint->start(), kLarge).error,
            nullptr);
  // With "a" among the tokens the masks cannot be known.
  EXPECT_THAT(
      MakeConstraint(grammar, {"a", "b", "c", "y"}, {}).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("a text may be read in more than 256 ways at once")));
}

// The limit of ways holds where a text begins, too.
TEST(PushdownConstraintTest, AGrammarMayBeTooAmbiguousAtItsStart) {
  for (const int count : {255, 300, 2'000}) {
    std::string grammar = "root ::= s\ns ::= \"c\"";
    for (int i = 0; i < count; ++i) grammar += Concat(" | s", i, " \"q\"");
    for (int i = 0; i < count; ++i) {
      grammar += Concat("\ns", i, " ::= \"a\" s \"", i, "\" | \"b\"");
    }
    const absl::Status status =
        MakeConstraint(grammar, {"", "b", "c", "q"}, {.end_ids = {0}}).status();
    if (count == 255) {
      EXPECT_OK(status);
      continue;
    }
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("must not be so ambiguous: a text "
                                           "may be read in more than 256 ways "
                                           "at once")));
  }
}

// After each letter there are as many stacks as callees.
TEST(PushdownConstraintTest, AListIsMadeInBoundedTimeAndMemory) {
  constexpr int kCallees = 300;
  std::string grammar = "root ::= \"=\" s | \"!\"\ns ::= \"_\"";
  std::vector<std::string> vocabulary = {"", "=", "!", "_"};
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    for (int i = 0; i < kCallees; ++i) {
      grammar += Concat(" | \"", std::string(1, letter), "\" s", i, " \"",
                        std::string(1, letter), i, ";\"");
    }
    for (char second = 'a'; second <= 'z'; ++second) {
      for (char third = 'a'; third <= 'z'; ++third) {
        vocabulary.push_back({letter, second, third});
      }
    }
  }
  for (int i = 0; i < kCallees; ++i) grammar += Concat("\ns", i, " ::= s");
  ASSERT_OK_AND_ASSIGN(const auto constraint,
                       MakeConstraint(grammar, vocabulary, {.end_ids = {0}}));
  const State state = constraint->Advance(constraint->start(), 1);
  ASSERT_NE(state, Constraint::kNone);
  const Constraint::Legal legal = constraint->LegalTokens(state, kLarge);
  ASSERT_NE(legal.error, nullptr);
  EXPECT_THAT(*legal.error, StatusIs(absl::StatusCode::kResourceExhausted,
                                     HasSubstr("constraint.grammar")));
  const PushdownConfigurations& configurations = constraint->configurations();
  EXPECT_LT(configurations.num_configurations(), 4'000);
  EXPECT_LT(configurations.num_bytes(), 128 << 20);
  // The states have the bytes of their stacks.
  int64_t num_bytes = 0;
  for (int i = 0; i < configurations.num_configurations(); ++i) {
    num_bytes += configurations.num_bytes_of(i);
  }
  EXPECT_GT(num_bytes, configurations.num_bytes() / 2);
}

TEST(PushdownConstraintTest, StatesAndListsCountUpToTheLimit) {
  const std::vector<std::string> vocabulary = Tokens("[]()a");
  ASSERT_OK_AND_ASSIGN(
      const auto constraint,
      MakeConstraint("root ::= \"[\" root \"]\" | \"(\" root \")\" | \"a\"",
                     vocabulary, {.end_ids = {0}, .max_list_bytes = 200'000}));
  EXPECT_EQ(constraint->max_list_bytes(), 200'000);
  std::mt19937_64 random(4);
  int64_t num_bytes = 0;
  for (int i = 0; i < 1'000 && !constraint->is_full(); ++i) {
    Walk(*constraint, vocabulary, 30, random);
    EXPECT_GE(constraint->num_bytes(), num_bytes);
    num_bytes = constraint->num_bytes();
  }
  EXPECT_TRUE(constraint->is_full());
  const State state = constraint->Advance(constraint->start(), 1);
  const Constraint::Legal legal = constraint->LegalTokens(state, kLarge);
  ASSERT_FALSE(legal.states.empty());
  EXPECT_GT(constraint->StateBytes(legal.states[0]), 0);
}

TEST(PushdownConstraintTest, ThreadsGetTheSameTokens) {
  const std::vector<std::string> vocabulary = Tokens("[],ab");
  ASSERT_OK_AND_ASSIGN(const auto constraint,
                       MakeConstraint(kList, vocabulary, {.end_ids = {0}}));
  std::vector<std::vector<std::string>> found(4);
  std::vector<std::thread> threads;
  for (auto& of_thread : found) {
    threads.emplace_back([&] {
      std::mt19937_64 random(5);
      for (int i = 0; i < 30; ++i) {
        of_thread.push_back(Walk(*constraint, vocabulary, 20, random));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& of_thread : found) EXPECT_EQ(of_thread, found[0]);
}

}  // namespace
}  // namespace espalier
