#include "constrain/contained_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "constrain/regex_language.h"
#include "tests/constrain/grammar_oracle.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::AllTexts;
using ::espalier::testing::Cases;
using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

absl::StatusOr<ByteAutomaton> Contain(std::vector<std::string> words,
                                      const char* pattern = nullptr) {
  CompileBudget budget;
  std::optional<ByteAutomaton> language;
  if (pattern != nullptr) {
    ASSIGN_OR_RETURN(language,
                     CompileRegex(pattern, RegexMatching::kWhole, &budget));
  }
  return ContainWords(language, words, &budget);
}

bool Contains(const std::string& text, const std::vector<std::string>& words) {
  return std::ranges::all_of(words, [&](const std::string& word) {
    return text.find(word) != text.npos;
  });
}

TEST(ContainedWordsTest, TextsAreThoseThatContainAllWords) {
  std::mt19937 random(3);
  const std::vector<std::string> all = AllTexts("ab", 8);
  CompileBudget budget;
  ASSERT_OK_AND_ASSIGN(
      const ByteAutomaton ending,
      CompileRegex("[ab]*ab?", RegexMatching::kWhole, &budget));
  for (int i = 0; i < Cases(60, 10); ++i) {
    std::vector<std::string> words(1 + random() % 3);
    for (std::string& word : words) {
      word.resize(1 + random() % 4);
      for (char& c : word) c = random() % 2 == 0 ? 'a' : 'b';
    }
    SCOPED_TRACE(::testing::PrintToString(words));
    ASSERT_OK_AND_ASSIGN(const ByteAutomaton any, Contain(words));
    ASSERT_OK_AND_ASSIGN(const ByteAutomaton some, Contain(words, "[ab]*ab?"));
    for (const std::string& text : all) {
      const bool contains = Contains(text, words);
      ASSERT_EQ(any.Match(text).in_language, contains) << text;
      ASSERT_EQ(some.Match(text).in_language,
                contains && ending.Match(text).in_language)
          << text;
    }
  }
}

TEST(ContainedWordsTest, WordsMayHaveAnyCharacters) {
  std::string ascii;
  for (char c = 1; c < 127; ++c) ascii += c;
  const std::vector<std::string> words = {ascii, "ä\u00e9\U0001F600", "a\nb",
                                          "(x|y)*"};
  ASSERT_OK_AND_ASSIGN(const ByteAutomaton automaton, Contain(words));
  std::string text = "\u4e2d";
  for (const std::string& word : words) {
    EXPECT_FALSE(automaton.Match(text).in_language);
    text += word + "-";
  }
  EXPECT_TRUE(automaton.Match(text).in_language);
  EXPECT_EQ(automaton.Match("\xF8").num_matched, 0);
  EXPECT_EQ(automaton.Match("\xC3(").num_matched, 1);
}

TEST(ContainedWordsTest, ErrorsSayWhatIsWrong) {
  EXPECT_THAT(Contain({"b"}, "a*"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "no text of the language contains all words"));
  std::vector<std::string> long_words;
  for (char c = 'a'; c < 'i'; ++c) long_words.emplace_back(300, c);
  EXPECT_THAT(Contain(long_words), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("the limit")));
}

}  // namespace
}  // namespace espalier
