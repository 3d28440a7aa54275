#include "constrain/byte_automaton.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
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

using State = ByteAutomaton::State;

// Moore's algorithm: returns the number of states that some text tells apart.
int NumDistinctStates(const ByteAutomaton& automaton) {
  const int n = automaton.num_states();
  std::vector<int> blocks(n);
  for (State s = 0; s < n; ++s) blocks[s] = automaton.accepts(s) ? 1 : 0;
  int num_blocks = 0;
  while (true) {
    std::map<std::vector<int>, int> numbers;
    std::vector<int> next(n);
    for (State s = 0; s < n; ++s) {
      std::vector<int> key = {blocks[s]};
      for (int byte = 0; byte < 256; ++byte) {
        const State to = automaton.Next(s, static_cast<uint8_t>(byte));
        key.push_back(to == ByteAutomaton::kNone ? -1 : blocks[to]);
      }
      next[s] =
          numbers.try_emplace(std::move(key), numbers.size()).first->second;
    }
    blocks = std::move(next);
    if (static_cast<int>(numbers.size()) == num_blocks) return num_blocks;
    num_blocks = static_cast<int>(numbers.size());
  }
}

// True if states are numbered as a breadth-first search meets them.
bool IsNumberedByDistance(const ByteAutomaton& automaton) {
  State last = 0;
  for (State s = 0; s < automaton.num_states(); ++s) {
    for (int byte = 0; byte < 256; ++byte) {
      const State to = automaton.Next(s, static_cast<uint8_t>(byte));
      if (to > last + 1) return false;
      last = std::max(last, to);
    }
  }
  return last == automaton.num_states() - 1;
}

TEST(ByteAutomatonTest, RandomAutomataAreMinimalAndNumberedByDistance) {
  std::mt19937_64 random(4);
  for (int i = 0; i < Cases(300, 30); ++i) {
    const std::string pattern = RandomPattern(2 + i % 12, random);
    SCOPED_TRACE(pattern);
    ASSERT_OK_AND_ASSIGN(const ByteAutomaton automaton, CompileRegex(pattern));
    EXPECT_EQ(NumDistinctStates(automaton), automaton.num_states());
    EXPECT_TRUE(IsNumberedByDistance(automaton));
    for (State s = 0; s < automaton.num_states(); ++s) {
      EXPECT_EQ(automaton.ends(s), automaton.BytesAfter(s).empty());
      EXPECT_EQ(automaton.min_bytes(s) == 0, automaton.accepts(s));
    }
  }
}

TEST(ByteAutomatonTest, EqualLanguagesHaveEqualAutomata) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 100; ++i) {
    const std::string a = RandomPattern(5, random);
    const std::string b = RandomPattern(5, random);
    SCOPED_TRACE(a + "  " + b);
    const auto compile = [](const std::string& pattern) {
      auto automaton = CompileRegex(pattern);
      EXPECT_OK(automaton.status()) << pattern;
      return *std::move(automaton);
    };
    EXPECT_TRUE(compile("(" + a + ")|" + b) ==
                compile("(" + b + ")|(" + a + ")"));
    EXPECT_TRUE(compile("((" + a + ")*)*") == compile("(" + a + ")*"));
    EXPECT_TRUE(compile("(" + a + "){2,3}") ==
                compile("(" + a + ")(" + a + ")(" + a + ")?"));
    EXPECT_TRUE(compile("(" + a + "|" + b + ")*") ==
                compile("((" + a + ")*(" + b + ")*)*"));
  }
}

// Both ways to build it, and a set of the texts.
TEST(ByteAutomatonTest, AFiniteLanguageIsItsTexts) {
  std::mt19937_64 random(6);
  const std::vector<std::string> all = AllTexts("ab", 7);
  for (int i = 0; i < Cases(60, 10); ++i) {
    std::vector<std::string> texts;
    std::string pattern;
    const int num_texts = 1 + static_cast<int>(random() % 20);
    for (int t = 0; t < num_texts; ++t) {
      texts.push_back(all[random() % all.size()]);
      pattern += (t > 0 ? "|" : "") + texts.back();
    }
    ASSERT_OK_AND_ASSIGN(const ByteAutomaton choice, CompileChoice(texts));
    ASSERT_OK_AND_ASSIGN(const ByteAutomaton regex, CompileRegex(pattern));
    EXPECT_TRUE(choice == regex) << pattern;
    for (const std::string& text : all) {
      size_t num_matched = 0;
      for (const std::string& in : texts) {
        const size_t common =
            std::mismatch(text.begin(), text.end(), in.begin(), in.end())
                .first -
            text.begin();
        num_matched = std::max(num_matched, common);
      }
      const auto match = choice.Match(text);
      EXPECT_EQ(match.in_language,
                std::find(texts.begin(), texts.end(), text) != texts.end());
      EXPECT_EQ(match.num_matched, num_matched);
    }
  }
}

}  // namespace
}  // namespace espalier
