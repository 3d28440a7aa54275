#include "constrain/choice_language.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;

TEST(ChoiceLanguageTest, TextsMayHaveAnyBytesAndBeginOthers) {
  const std::vector<std::string> texts = {
      "", "é", "\xFF", "ab", "a", std::string("\0x", 2), "ab"};
  ASSERT_OK_AND_ASSIGN(const ByteAutomaton automaton, CompileChoice(texts));
  for (const std::string& text : texts) {
    EXPECT_TRUE(automaton.Match(text).in_language);
  }
  EXPECT_FALSE(automaton.Match("b").in_language);
  EXPECT_FALSE(automaton.Match("\xC3").in_language);
  EXPECT_FALSE(automaton.ends(ByteAutomaton::kStart));
}

TEST(ChoiceLanguageTest, ManyTextsWithEqualEndingsHaveFewStates) {
  std::vector<std::string> texts;
  for (int i = 0; i < 200'000; ++i) texts.push_back(std::to_string(i) + "/end");
  ASSERT_OK_AND_ASSIGN(const ByteAutomaton automaton, CompileChoice(texts));
  EXPECT_LT(automaton.num_states(), 40);
}

TEST(ChoiceLanguageTest, LimitsAreExact) {
  EXPECT_THAT(CompileChoice({}),
              StatusIs(kInvalid, "there must be a text, got none"));
  const std::vector<std::string> texts = {"abcdefghi"};
  EXPECT_OK(CompileChoice(texts, {.max_states = 10}));
  EXPECT_THAT(CompileChoice(texts, {.max_states = 9}),
              StatusIs(kInvalid, "it needs more than 9 states, the limit"));
  EXPECT_THAT(
      CompileChoice(texts, {.max_steps = 5}),
      StatusIs(kInvalid, "it needs more than 5 steps to compile, the limit"));
  EXPECT_THAT(
      CompileChoice(texts, {.max_table_bytes = 399}),
      StatusIs(kInvalid, "it needs a table of 400 bytes, the limit is 399"));
}

}  // namespace
}  // namespace espalier
