#include "constrain/tokens_to_end.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/json_schema.h"
#include "constrain/regex_language.h"
#include "tests/constrain/random_patterns.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::AllTexts;
using ::espalier::testing::Cases;
using ::espalier::testing::RandomPattern;

using State = ByteAutomaton::State;

constexpr int64_t kMaxSteps = 1'000'000'000;

// The definition: one token, and the fewest after it, until nothing changes.
std::vector<int32_t> MoreTokens(const ByteAutomaton& automaton,
                                const std::vector<std::string>& vocabulary) {
  std::vector<std::vector<State>> next(automaton.num_states());
  for (State s = 0; s < automaton.num_states(); ++s) {
    for (const std::string& token : vocabulary) {
      if (token.empty()) continue;
      const State to = automaton.Next(s, token);
      if (to != ByteAutomaton::kNone) next[s].push_back(to);
    }
    std::ranges::sort(next[s]);
    const auto [begin, end] = std::ranges::unique(next[s]);
    next[s].erase(begin, end);
  }
  std::vector<int32_t> more(automaton.num_states(), TokensToEnd::kNever);
  for (bool changed = true; changed;) {
    changed = false;
    for (State s = 0; s < automaton.num_states(); ++s) {
      for (const State to : next[s]) {
        const int32_t after = automaton.accepts(to) ? 0 : more[to];
        if (after == TokensToEnd::kNever || after + 1 >= more[s]) continue;
        more[s] = after + 1;
        changed = true;
      }
    }
  }
  return more;
}

std::vector<std::string> AllBytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  return tokens;
}

// Words and pieces of syntax, alone and joined.
std::vector<std::string> RandomJoined(std::mt19937_64& random, int num_tokens) {
  const std::vector<std::string> parts = {
      "a",  "b",   "e",   "n",   "ed",  "00e9", " ", "  ", "\"",   "\\",
      "\"", "\\u", "\\n", "{",   "}",   "[",    "]", ":",  ",",    "1",
      "23", "-",   ".",   "tru", "nul", "\n",   "é", "日", "\xe6", "\x97\xa5"};
  std::vector<std::string> tokens;
  for (int i = 0; i < num_tokens; ++i) {
    std::string& token = tokens.emplace_back();
    const int count = 1 + static_cast<int>(random() % 4);
    for (int j = 0; j < count; ++j) token += parts[random() % parts.size()];
  }
  return tokens;
}

TEST(TokensToEndTest, NumbersAreTheFewest) {
  std::mt19937_64 random(21);
  int64_t sum = 0;
  for (int i = 0; i < Cases(400, 60); ++i) {
    const std::string pattern = RandomPattern(8, random);
    const auto automaton = CompileRegex(pattern);
    ASSERT_OK(automaton.status()) << pattern;
    std::vector<std::string> vocabulary;
    if (i % 2 == 0) vocabulary = AllBytes();
    const std::vector<std::string> texts = AllTexts("abc", 4);
    for (int t = 0; t < 20; ++t) {
      vocabulary.push_back(texts[random() % texts.size()]);
    }
    vocabulary.emplace_back();
    const TokensToEnd counts =
        CountTokensToEnd(*automaton, TokenSuffixes(vocabulary), kMaxSteps);
    EXPECT_TRUE(counts.is_exact);
    EXPECT_EQ(counts.more, MoreTokens(*automaton, vocabulary)) << pattern;
    for (const int32_t more : counts.more) {
      if (more != TokensToEnd::kNever) sum += more;
    }
  }
  EXPECT_GT(sum, Cases(2000, 300));
}

const std::vector<std::string>& Schemas() {
  static const auto* const kSchemas = new std::vector<std::string>{
      "{}",
      R"({"type": "string"})",
      R"({"type": "string", "maxLength": 30})",
      R"({"type": "object", "required": ["ab", "ben"],
          "properties": {"ab": {"type": "string"}, "ben": {"type": "number"}},
          "additionalProperties": false})",
      R"({"type": "array", "items": {"enum": ["a", "bed", true, null]},
          "minItems": 3})",
      R"({"type": "object", "minProperties": 2})"};
  return *kSchemas;
}

// Most tokens lead from within a string to within it.
TEST(TokensToEndTest, NumbersOfJsonAreTheFewest) {
  std::mt19937_64 random(22);
  for (const std::string& schema : Schemas()) {
    ASSERT_OK_AND_ASSIGN(const ByteAutomaton automaton,
                         CompileJsonSchema(schema, {}));
    for (const bool has_all_bytes : {true, false}) {
      for (const int num_tokens : {30, Cases(1500, 300)}) {
        std::vector<std::string> vocabulary = RandomJoined(random, num_tokens);
        const std::vector<std::string> bytes = AllBytes();
        if (has_all_bytes) {
          vocabulary.insert(vocabulary.end(), bytes.begin(), bytes.end());
        }
        const TokensToEnd counts =
            CountTokensToEnd(automaton, TokenSuffixes(vocabulary), kMaxSteps);
        EXPECT_TRUE(counts.is_exact);
        EXPECT_TRUE(counts.more == MoreTokens(automaton, vocabulary))
            << schema << " " << has_all_bytes << " " << num_tokens;
      }
    }
  }
}

// With few steps a text can still be completed in the number of tokens.
TEST(TokensToEndTest, WithFewStepsNumbersAreBounds) {
  std::mt19937_64 random(23);
  int num_inexact = 0;
  int num_higher = 0;
  for (const std::string& schema : Schemas()) {
    ASSERT_OK_AND_ASSIGN(const ByteAutomaton automaton,
                         CompileJsonSchema(schema, {}));
    std::vector<std::string> vocabulary = RandomJoined(random, 300);
    const std::vector<std::string> bytes = AllBytes();
    vocabulary.insert(vocabulary.end(), bytes.begin(), bytes.end());
    const std::vector<int32_t> fewest = MoreTokens(automaton, vocabulary);
    for (const int64_t max_steps : {0, 100, 1'000, 10'000, 100'000}) {
      const TokensToEnd counts =
          CountTokensToEnd(automaton, TokenSuffixes(vocabulary), max_steps);
      num_inexact += counts.is_exact ? 0 : 1;
      for (State s = 0; s < automaton.num_states(); ++s) {
        ASSERT_GE(counts.more[s], fewest[s]) << schema;
        ASSERT_EQ(counts.more[s] == TokensToEnd::kNever, automaton.ends(s));
        if (counts.is_exact) {
          ASSERT_EQ(counts.more[s], fewest[s]);
        }
        num_higher += counts.more[s] > fewest[s] ? 1 : 0;
        if (automaton.ends(s)) continue;
        bool has_next = false;
        for (const std::string& token : vocabulary) {
          const State next = automaton.Next(s, token);
          if (next == ByteAutomaton::kNone) continue;
          const int32_t after = automaton.accepts(next) ? 0 : counts.more[next];
          has_next |= after < counts.more[s];
        }
        ASSERT_TRUE(has_next) << schema << " state " << s;
      }
    }
  }
  EXPECT_GT(num_inexact, 10);
  EXPECT_GT(num_higher, 100);
}

TEST(TokensToEndTest, NumbersAndTokensMayBeLarge) {
  ASSERT_OK_AND_ASSIGN(const ByteAutomaton automaton, CompileRegex("a{5000}"));
  std::vector<std::string> vocabulary = {"a", "aaa"};
  EXPECT_EQ(CountTokensToEnd(automaton, TokenSuffixes(vocabulary), kMaxSteps)
                .more[ByteAutomaton::kStart],
            1668);
  vocabulary.emplace_back(60, 'a');
  EXPECT_EQ(CountTokensToEnd(automaton, TokenSuffixes(vocabulary), kMaxSteps)
                .more[ByteAutomaton::kStart],
            83 + 8);  // 83 * 60 + 6 * 3 + 2 * 1
}

// All states near the end are found before the token of 26 bytes is read.
TEST(TokensToEndTest, ALongTokenLeadsPastStatesThatAreFound) {
  ASSERT_OK_AND_ASSIGN(const ByteAutomaton automaton,
                       CompileRegex("b{5}a{20}[cd]"));
  std::vector<std::string> vocabulary = {"b", "d"};
  for (int i = 0; i <= 20; ++i) {
    vocabulary.push_back(std::string(i, 'a') + "c");
  }
  const auto fewest = [&] {
    return CountTokensToEnd(automaton, TokenSuffixes(vocabulary), kMaxSteps)
        .more[ByteAutomaton::kStart];
  };
  EXPECT_EQ(fewest(), 6);
  vocabulary.push_back(std::string(5, 'b') + std::string(20, 'a') + "d");
  EXPECT_EQ(fewest(), 1);
}

}  // namespace
}  // namespace espalier
