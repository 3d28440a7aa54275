// Legal tokens where the vocabulary is so large that tokens of plain characters
// are taken together (constrain/plain_text_loops.h).
#include "constrain/plain_text_loops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "constrain/gbnf_language.h"
#include "constrain/json_schema.h"
#include "constrain/pushdown_constraint.h"
#include "constrain/regex_language.h"
#include "constrain/text_constraint.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;

// All bytes, words, punctuation, characters of two to four bytes, some of them
// not whole, and long tokens.
std::vector<std::string> MixedVocabulary(int size, std::mt19937_64& random) {
  const std::vector<std::string> parts = {
      "a",  "e",      "f",          "q",          "A",    "Q",  "0",
      "7",  " ",      "-",          "_",          ".",    "@",  "{",
      "\"", "\\",     "\n",         "\x7F",       "\xC3", "é",  "ß",
      "中", "\u07FF", "\U0001F600", "\xE4\xB8",   "\xF0", "id", "name",
      ":",  ",",      "}",          "          ", "[",    "]",  "\xBF",
  };
  std::vector<std::string> tokens = {""};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  while (std::ssize(tokens) < size) {
    std::string token;
    // Most are of letters, and most are short.
    const size_t kinds = random() % 4 != 0 ? 14 : parts.size();
    const size_t length = random() % 20 == 0 ? 30 : 1 + random() % 5;
    for (size_t i = 0; i < length; ++i) token += parts[random() % kinds];
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::shared_ptr<const LanguageConstraint> Constrain(
    GrammarLanguage language,
    const std::shared_ptr<const TokenVocabulary>& vocabulary) {
  if (auto* const calls = std::get_if<PushdownAutomaton>(&language)) {
    auto made = PushdownConstraint::Make(
        std::make_shared<const PushdownAutomaton>(std::move(*calls)),
        vocabulary, {.end_ids = {0}});
    EXPECT_OK(made.status());
    return *made;
  }
  auto texts =
      TokenConstraint::Make(std::make_shared<const ByteAutomaton>(
                                std::get<ByteAutomaton>(std::move(language))),
                            vocabulary);
  EXPECT_OK(texts.status());
  auto made = TextConstraint::Make(*std::move(texts), {0});
  EXPECT_OK(made.status());
  return *made;
}

// Compares the states of a list with those within and after tokens: all of
// those after legal tokens, and no others. Token 1 + b is byte b.
void ExpectStatesOfTokens(const Constraint& constraint, Constraint::State state,
                          const Constraint::Legal& legal, int vocab_size) {
  const auto* const pushdown =
      dynamic_cast<const PushdownConstraint*>(&constraint);
  // With counters, a list may belong to a similar state.
  if (pushdown == nullptr ||
      pushdown->configurations().automaton().has_counters()) {
    return;
  }
  const std::set<Constraint::State> states(legal.states.begin(),
                                           legal.states.end());
  EXPECT_EQ(states.size(), legal.states.size());
  std::set<Constraint::State> within;
  for (TokenId token = 0; token < vocab_size; ++token) {
    Constraint::State next = state;
    for (const char byte : constraint.BytesOf(state, token)) {
      next = constraint.Advance(next, 1 + static_cast<uint8_t>(byte));
      if (next == Constraint::kNone) break;
      within.insert(next);
    }
  }
  EXPECT_TRUE(std::ranges::includes(within, states)) << state;
  std::set<Constraint::State> after;
  for (const TokenId token : legal.tokens) {
    if (token != 0) after.insert(constraint.Advance(state, token));
  }
  EXPECT_TRUE(std::ranges::includes(states, after)) << state;
}

// Compares the tokens of a state with those that Advance allows one by one.
void ExpectExactList(const Constraint& constraint, Constraint::State state,
                     int32_t room, int vocab_size) {
  std::vector<TokenId> expected;
  int num_last = 0;
  for (TokenId token = 0; token < vocab_size; ++token) {
    const Constraint::State next = constraint.Advance(state, token);
    if (next == Constraint::kNone) continue;
    const bool ends = constraint.ends(next, room - 1);
    if (ends && !constraint.accepts(next, room - 1)) continue;
    num_last += ends;
    expected.push_back(token);
  }
  const Constraint::Legal legal = constraint.LegalTokens(state, room);
  ASSERT_EQ(legal.error, nullptr);
  ExpectStatesOfTokens(constraint, state, legal, vocab_size);
  ASSERT_EQ(std::vector<TokenId>(legal.tokens.begin(), legal.tokens.end()),
            expected)
      << "state " << state << ", room " << room;
  EXPECT_EQ(legal.num_last, num_last);
}

void ExpectExactLists(const LanguageConstraint& constraint, int vocab_size,
                      std::mt19937_64& random) {
  std::set<std::pair<Constraint::State, int32_t>> compared;
  for (int text = 0; text < 3; ++text) {
    Constraint::State state = constraint.start();
    // Short texts meet the end of their room.
    int32_t room =
        constraint.MinRoom(false) + static_cast<int32_t>(random() % 20);
    for (; room > 0; --room) {
      if (compared.size() > 60) return;
      if (compared.insert({state, room}).second) {
        ExpectExactList(constraint, state, room, vocab_size);
        ExpectExactList(constraint, state, 10'000, vocab_size);
      }
      const Constraint::Legal legal = constraint.LegalTokens(state, room);
      ASSERT_FALSE(legal.tokens.empty());
      state = constraint.Advance(state,
                                 legal.tokens[random() % legal.tokens.size()]);
      if (constraint.ends(state, room - 1)) break;
    }
  }
}

TEST(PlainTextLoopsTest, LegalTokensAreThoseThatAdvance) {
  const char* const schemas[] = {
      R"({"type": "string"})",
      R"({"type": "string", "maxLength": 5})",
      R"({"type": "string", "minLength": 3, "maxLength": 30})",
      R"({"type": "string", "maxLength": 40000})",
      R"({"type": "string", "pattern": "^[a-z]{2,9}$"})",
      R"({"type": "string", "pattern": "^[^@]+@[A-Za-z.]+$"})",
      R"({"type": "string", "pattern": "e.*0"})",
      R"({"type": "string", "pattern": "^[a-f0-9]*$"})",
      R"({"type": "object", "properties": {"a": {"type": "string"},
          "name": {"type": "integer"}, "éa": {}}})",
      R"({"type": "object", "properties": {"q": {"maxLength": 3}},
          "additionalProperties": {"type": "string", "minLength": 2}})",
      R"({"type": "array", "items": {"$ref": "#"}})",
      "true",
  };
  std::mt19937_64 random(3);
  for (int i = 0; i < Cases(4, 1); ++i) {
    const std::vector<std::string> tokens =
        MixedVocabulary(2000 + 700 * i, random);
    const auto vocabulary = std::make_shared<const TokenVocabulary>(tokens);
    for (const char* const schema : schemas) {
      SCOPED_TRACE(schema);
      auto language = CompileJsonSchemaWithCalls(schema);
      ASSERT_OK(language.status());
      ExpectExactLists(*Constrain(*std::move(language), vocabulary),
                       static_cast<int>(tokens.size()), random);
    }
    for (const char* const pattern :
         {".*", "[^a]*", "(\\p{L}|[0-9])*", "[a-zA-Z]*x?", ".{2,7}e"}) {
      SCOPED_TRACE(pattern);
      auto language = CompileRegex(pattern);
      ASSERT_OK(language.status());
      ExpectExactLists(*Constrain(*std::move(language), vocabulary),
                       static_cast<int>(tokens.size()), random);
    }
  }
}

// Bytes that no token has may be followed to see whether characters matter;
// these configurations are not among those of a list, and count against no
// limit. Below 1,024 plain tokens none are.
TEST(PlainTextLoopsTest, ProbesMakeNoLanguageTooAmbiguous) {
  // From a configuration of each letter "a" leads to many stacks, and "b" to as
  // many others.
  constexpr int kCallees = 100;
  std::string grammar = "root ::= \"(\" root \")\"";
  std::vector<std::string> tokens = {""};
  for (const char letter : std::string_view("ghijklmn")) {
    grammar += Concat(" | \"", letter, "a\" many \"4", letter, "\" | \"",
                      letter, "b\" many \"5", letter, "\"");
    for (char last = 'a'; last <= 'z'; ++last) {
      tokens.push_back({letter, 'a', last});
    }
  }
  for (char byte = ' '; byte < 0x7F; ++byte) tokens.emplace_back(1, byte);
  grammar += "\nmany ::= \"0\"";
  for (int i = 0; i < kCallees; ++i) grammar += Concat(" | s", i, " \"1\"");
  for (int i = 0; i < kCallees; ++i) {
    grammar += Concat("\ns", i, " ::= \"2\" s", i, " \"", i, "\" | \"3\"");
  }
  auto language = CompileGbnf(grammar);
  ASSERT_OK(language.status());
  const auto automaton = std::make_shared<const PushdownAutomaton>(
      std::get<PushdownAutomaton>(*std::move(language)));
  const auto few = std::make_shared<const TokenVocabulary>(tokens);
  tokens.resize(tokens.size() + 1024, "(");
  const auto many = std::make_shared<const TokenVocabulary>(tokens);
  int num_made = 0;
  int num_refused = 0;
  for (int64_t max_bytes = 4'000; max_bytes < 1 << 18;
       max_bytes += max_bytes / 16) {
    const PushdownConstraint::Options options = {.end_ids = {0},
                                                 .max_list_bytes = max_bytes};
    const auto walked = PushdownConstraint::Make(automaton, few, options);
    const auto probed = PushdownConstraint::Make(automaton, many, options);
    EXPECT_EQ(walked.status(), probed.status()) << max_bytes;
    ++(walked.ok() ? num_made : num_refused);
    if (!walked.ok() || !probed.ok()) continue;
    const auto states_of = [](const PushdownConstraint& constraint) {
      return constraint.LegalTokens(constraint.start(), 10'000).states.size();
    };
    EXPECT_EQ(states_of(**walked), states_of(**probed));
    if (max_bytes > 1 << 17) {
      EXPECT_LT((*walked)->configurations().num_configurations(),
                (*probed)->configurations().num_configurations());
    }
  }
  EXPECT_GT(num_made, 10);
  EXPECT_GT(num_refused, 10);
}

// A grammar of bytes may have what is no UTF-8, and continue alike after each
// byte but some of the second ones.
TEST(PlainTextLoopsTest, BytesWithinCharactersCount) {
  std::mt19937_64 random(5);
  const std::vector<std::string> tokens = MixedVocabulary(3000, random);
  const auto vocabulary = std::make_shared<const TokenVocabulary>(tokens);
  for (int banned : {0x80, 0x9F, 0xA9, 0xBF, 0x98}) {
    // One state for all bytes, and one after a byte that begins a character.
    ByteAutomaton::Tables tables;
    for (int byte = 0; byte < 256; ++byte) {
      tables.classes[byte] = byte == banned ? 2 : byte >= 0xC0 ? 1 : 0;
    }
    tables.num_classes = 3;
    tables.next = {0, 1, 0, 0, 1, ByteAutomaton::kNone};
    tables.accepts = {1, 1};
    ExpectExactLists(*Constrain(ByteAutomaton(std::move(tables)), vocabulary),
                     static_cast<int>(tokens.size()), random);
  }
}

}  // namespace
}  // namespace espalier
