#include "constrain/regex_language.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdint>
#include <random>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/code_point_set.h"
#include "constrain/sample_text.h"
#include "tests/constrain/random_patterns.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::AllTexts;
using ::espalier::testing::FewCases;
using ::espalier::testing::RandomPattern;
using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

bool Matches(std::string_view pattern, std::string_view text,
             RegexMatching matching = RegexMatching::kWhole) {
  const auto automaton = CompileRegex(pattern, matching);
  EXPECT_OK(automaton.status()) << pattern;
  return automaton.ok() && automaton->Match(text).in_language;
}

// The oracle is the standard library's matcher.
TEST(RegexLanguageTest, RandomPatternsMatchTheTextsOfStdRegex) {
  std::mt19937_64 random(1);
  const std::vector<std::string> texts = AllTexts("abc\n", 4);
  const int num_patterns = FewCases() ? 40 : 400;
  int num_matches = 0;
  for (int i = 0; i < num_patterns; ++i) {
    const std::string pattern = RandomPattern(1 + i % 7, random);
    SCOPED_TRACE(pattern);
    const std::regex oracle(pattern);
    ASSERT_OK_AND_ASSIGN(const ByteAutomaton whole, CompileRegex(pattern));
    ASSERT_OK_AND_ASSIGN(const ByteAutomaton part,
                         CompileRegex(pattern, RegexMatching::kSearch));
    for (const std::string& text : texts) {
      const bool matches = std::regex_match(text, oracle);
      num_matches += matches ? 1 : 0;
      ASSERT_EQ(whole.Match(text).in_language, matches) << text;
      ASSERT_EQ(part.Match(text).in_language, std::regex_search(text, oracle))
          << text;
    }
  }
  EXPECT_GT(num_matches, 10 * num_patterns);
}

// `num_matched` is exact: the byte that it stops at belongs to no text.
TEST(RegexLanguageTest, EveryBeginningOfATextIsMatched) {
  std::mt19937_64 random(2);
  const std::vector<std::string> texts = AllTexts("abc", 5);
  for (int i = 0; i < 60; ++i) {
    const std::string pattern = RandomPattern(4, random);
    SCOPED_TRACE(pattern);
    ASSERT_OK_AND_ASSIGN(const ByteAutomaton automaton, CompileRegex(pattern));
    for (const std::string& text : texts) {
      const auto match = automaton.Match(text);
      std::string completed = text.substr(0, match.num_matched);
      ByteAutomaton::State state = match.state;
      while (automaton.min_bytes(state) > 0) {
        for (const uint8_t byte : automaton.BytesAfter(state)) {
          const auto next = automaton.Next(state, byte);
          if (automaton.min_bytes(next) >= automaton.min_bytes(state)) continue;
          completed += static_cast<char>(byte);
          state = next;
          break;
        }
      }
      ASSERT_TRUE(automaton.Match(completed).in_language) << completed;
      ASSERT_EQ(match.in_language, completed == text);
    }
  }
}

TEST(RegexLanguageTest, AnchorsHoldAtTheEndsOfATextAlone) {
  EXPECT_TRUE(Matches("^a$", "a"));
  EXPECT_TRUE(Matches("^^a$$", "a"));
  EXPECT_TRUE(Matches("\\Aa\\Z", "a"));
  EXPECT_TRUE(Matches("(^a|b)c", "ac"));
  EXPECT_TRUE(Matches("x*^a", "a"));
  EXPECT_FALSE(Matches("x*^a", "xa"));
  EXPECT_TRUE(Matches("a$b*", "a"));
  EXPECT_FALSE(Matches("a$b*", "ab"));
  EXPECT_TRUE(Matches("(a$|a)b?", "ab"));
  EXPECT_TRUE(Matches("$^", ""));
  EXPECT_TRUE(Matches("(^)*a($)?", "a"));
  const auto search = RegexMatching::kSearch;
  EXPECT_TRUE(Matches("^b", "ba", search));
  EXPECT_FALSE(Matches("^b", "ab", search));
  EXPECT_TRUE(Matches("b$", "ab", search));
  EXPECT_FALSE(Matches("b$", "ba", search));
  EXPECT_FALSE(Matches("b$", "b\n", search));
  EXPECT_TRUE(Matches("^$|a", "", search));
  EXPECT_FALSE(Matches("^$|a", "b", search));
  EXPECT_THAT(CompileRegex("a^b"), StatusIs(kInvalid, "no text matches"));
}

TEST(RegexLanguageTest, EscapesAndClassesAreThoseOfEcma262) {
  EXPECT_TRUE(Matches("\\u00e9\\xe9\\u{e9}é", "éééé"));
  EXPECT_TRUE(Matches("\\ud83d\\ude00", "\U0001F600"));
  EXPECT_TRUE(Matches("[\\u{1F600}-\\u{1F64F}]", "\U0001F642"));
  EXPECT_TRUE(Matches("[\\b\\-\\]]+", "\b-]"));
  EXPECT_TRUE(Matches("[a-]+[-a]+", "a--a"));
  EXPECT_TRUE(Matches("\\cJ\\0\\/\\ ", std::string_view("\n\0/ ", 4)));
  EXPECT_TRUE(Matches("\\s+", "\t\u00a0\u2003\ufeff"));
  EXPECT_FALSE(Matches("\\S", "\u3000"));
  EXPECT_FALSE(Matches(".", "\u2028"));
  EXPECT_FALSE(Matches("\\d", "٣"));
  EXPECT_TRUE(Matches("\\p{Lu}\\P{L}\\p{gc=Nd}\\p{LC}", "É-٣ǅ"));
  EXPECT_TRUE(Matches("(?<year>\\d{4})(?P<rest>x)", "2026x"));
  // A brace that repeats nothing is a character.
  EXPECT_TRUE(Matches("{\"a\": \\d+}", "{\"a\": 12}"));
  EXPECT_TRUE(Matches("a{x", "a{x"));
}

// Compares every code point with the set.
TEST(RegexLanguageTest, EveryCodePointOfAClassAndNoOtherMatches) {
  const std::vector<std::string> patterns = {
      "[^a]", ".", "\\p{Lu}", "[\\u07ff-\\u0801\\ud7ff\\ue000-\\u{10001}]"};
  const int step = FewCases() ? 37 : 1;
  for (const std::string& pattern : patterns) {
    ASSERT_OK_AND_ASSIGN(const ByteAutomaton automaton, CompileRegex(pattern));
    for (int32_t c = 0; c <= 0x10FFFF; c += step) {
      uint8_t utf8[4];
      const auto size = utf8proc_encode_char(c, utf8);
      const std::string_view text(reinterpret_cast<const char*>(utf8), size);
      const bool is_surrogate = c >= 0xD800 && c <= 0xDFFF;
      bool expected = false;
      if (pattern == "[^a]") expected = c != 'a';
      if (pattern == ".") {
        expected = c != '\n' && c != '\r' && c != 0x2028 && c != 0x2029;
      }
      if (pattern == "\\p{Lu}") {
        expected = utf8proc_category(c) == UTF8PROC_CATEGORY_LU;
      }
      if (pattern[1] == '\\') {
        expected = (c >= 0x7FF && c <= 0x801) || c == 0xD7FF ||
                   (c >= 0xE000 && c <= 0x10001);
      }
      ASSERT_EQ(automaton.Match(text).in_language, expected && !is_surrogate)
          << pattern << " " << c;
    }
    // Overlong forms and lone bytes are no text.
    for (const char* const text : {"\xC1\xA1", "\xE0\x81\xA1", "\x80", "\xFF",
                                   "\xF5\x80\x80\x80", "\xF4\x90\x80\x80"}) {
      EXPECT_FALSE(automaton.Match(text).in_language) << pattern;
    }
  }
}

TEST(RegexLanguageTest, ErrorsNameTheConstructAndItsByte) {
  const auto error = [](std::string_view pattern) {
    return std::string(CompileRegex(pattern).status().message());
  };
  EXPECT_EQ(error("ab(?=c)"), "at byte 2: look-ahead \"(?=\" is not supported");
  EXPECT_EQ(error("(?<!c)"),
            "at byte 0: look-behind \"(?<!\" is not supported");
  EXPECT_EQ(error("(a)\\1"),
            "at byte 3: a back-reference or octal \"\\1\" is not supported");
  EXPECT_EQ(error("\\bfoo"),
            "at byte 0: a word boundary \"\\b\" is not supported");
  EXPECT_EQ(error("a**"), "at byte 2: nothing to repeat before \"*\"");
  EXPECT_EQ(error("*a"), "at byte 0: nothing to repeat before \"*\"");
  EXPECT_EQ(error("|+"), "at byte 1: nothing to repeat before \"+\"");
  EXPECT_EQ(error("^*"), "at byte 1: \"*\" repeats the anchor at byte 0");
  EXPECT_EQ(error("a++"),
            "at byte 2: a possessive repetition is not supported");
  EXPECT_EQ(error("(ab"), "at byte 0: the group is not closed by \")\"");
  EXPECT_EQ(error("ab)"), "at byte 2: \")\" closes no group");
  EXPECT_EQ(error("[ab"), "at byte 0: the class is not closed by \"]\"");
  EXPECT_EQ(error("[]a]"),
            "at byte 0: the class has no member; \"\\]\" is a bracket");
  EXPECT_EQ(error("(?"), "at byte 0: the group is not closed by \")\"");
  EXPECT_THAT(error("[[:alpha:]]"), HasSubstr("at byte 1: a POSIX class"));
  EXPECT_THAT(error("[b-a]"), HasSubstr("got \"b-a\""));
  EXPECT_THAT(error("[\\d-z]"), HasSubstr("two ascending characters"));
  EXPECT_EQ(error("a{3,2}"), "at byte 1: counts must ascend, got \"{3,2}\"");
  EXPECT_THAT(error("a{9999999}"), HasSubstr("at most 1048576 times"));
  EXPECT_EQ(error("a{,5}"), "at byte 1: write \"{0,5}\" for \"{,5}\"");
  EXPECT_EQ(error("(?i)a"),
            "at byte 0: the group of flags \"(?i\" is not supported");
  EXPECT_THAT(error("\\p{Greek}"), HasSubstr("property \"Greek\""));
  EXPECT_EQ(error("\\ud800"), "at byte 0: half of a pair of surrogates");
  EXPECT_EQ(error("\\q"), "at byte 0: escape \"\\q\" is not supported");
  EXPECT_EQ(error("a\\"), "at byte 1: nothing follows \"\\\"");
  EXPECT_THAT(error("a\xFF"), HasSubstr("UTF-8"));
}

std::string Repeated(const std::string& text, int count) {
  std::string repeated;
  for (int i = 0; i < count; ++i) repeated += text;
  return repeated;
}

// Each would take much time or memory in another part of the compiler.
TEST(RegexLanguageTest, HostilePatternsAreRefusedWithinTheBudget) {
  std::string separate = "[";  // 47 ranges
  for (char c = '!'; c < '}'; c += 2) {
    if (c != '[' && c != ']') separate += c;
  }
  separate += "]";
  const std::vector<std::string> patterns = {
      "(a|b)*a(a|b){40}",
      "((a{1000}){1000}){1000}",
      "((){1000000}){1000000}",
      "(.{0,3000}x){3000}",
      "(\\p{L}{1000}){1000}",
      "(a?){1000000}",
      "a{0,1000000}",
      separate + "{1000000}",
      "(" + separate + "{1000}){4000}",
      "(?:" + Repeated("|", 60'000) + "){0,1048576}",
      "[" + Repeated("\\p{L}", 13'000) + "]",
      "(?:" + Repeated("\\P{L}", 10'000) + "){0}",
  };
  for (const std::string& pattern : patterns) {
    EXPECT_THAT(CompileRegex(pattern),
                StatusIs(kInvalid, HasSubstr(", the limit")))
        << pattern.substr(0, 40);
  }
  EXPECT_THAT(CompileRegex(Repeated("(", 201) + Repeated(")", 201)),
              StatusIs(kInvalid, HasSubstr("nest at most 200 deep")));
  EXPECT_OK(CompileRegex(Repeated("(", 200) + Repeated(")", 200)));
  EXPECT_THAT(CompileRegex(Repeated("a", 65'537)),
              StatusIs(kInvalid, HasSubstr("at most 65536 bytes")));
  EXPECT_OK(CompileRegex(Repeated("a", 65'536)));
  const CompileLimits few = {.max_states = 10};
  EXPECT_OK(CompileRegex("a{9}", RegexMatching::kWhole, few));
  EXPECT_THAT(CompileRegex("a{10}", RegexMatching::kWhole, few),
              StatusIs(kInvalid,
                       "it needs more than 10 states, the limit; its largest "
                       "repetition is {10} at byte 1"));
}

TEST(RegexLanguageTest, AnErrorOfALimitNamesTheRepetitionThatGrew) {
  const std::pair<const char*, const char*> cases[] = {
      {"(?:[a-z]{0,1000000}x){1,2}", "{0,1000000} at byte 8"},
      {"(?:[a-z]{0,900}x){2000,}", "{2000,} at byte 17"},
      {"[a-z]{2000}\\p{L}{1,1999}", "{1,1999} at byte 16"},
      {"((a{1000}){1001}){1000}", "{1001} at byte 10"},
  };
  for (const auto& [pattern, repetition] : cases) {
    EXPECT_THAT(CompileRegex(pattern),
                StatusIs(kInvalid,
                         HasSubstr(std::string("; its largest repetition is ") +
                                   repetition)));
  }
  const CompileLimits few = {.max_states = 10};
  EXPECT_THAT(CompileRegex("abcdefghijkl+", RegexMatching::kWhole, few),
              StatusIs(kInvalid, "it needs more than 10 states, the limit"));
}

TEST(RegexLanguageTest, SamplesAreInTheLanguage) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    const std::string pattern = RandomPattern(6, random);
    ASSERT_OK_AND_ASSIGN(const ByteAutomaton automaton, CompileRegex(pattern));
    for (const int max_bytes : {0, 1, 20}) {
      const std::string text = SampleText(automaton, max_bytes, &random);
      EXPECT_TRUE(automaton.Match(text).in_language) << pattern << ' ' << text;
      if (max_bytes == 0) {
        EXPECT_EQ(text.size(), automaton.min_bytes(ByteAutomaton::kStart));
      }
    }
  }
}

// Sizes beyond 64 bits are refused as others are.
TEST(RegexLanguageTest, NestedCountsDoNotOverflow) {
  std::string pattern = "(";
  for (int i = 0; i < 8; ++i) pattern += "(a{0,1048576}b){0,1048576}";
  pattern += "){0,1048576}";
  EXPECT_THAT(CompileRegexLanguage(pattern).status(),
              StatusIs(kInvalid, HasSubstr("{0,1048576}")));
}

}  // namespace
}  // namespace espalier
