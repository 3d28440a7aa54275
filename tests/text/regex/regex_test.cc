#include "text/regex/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/status_matchers.h"
#include "text/regex/regex_syntax.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kBadPattern = absl::StatusCode::kInvalidArgument;

std::vector<std::string> Matches(std::string_view pattern,
                                 std::string_view text) {
  const auto regex = Regex::Compile(pattern);
  if (!regex.ok()) return {std::string(regex.status().message())};
  std::vector<std::string> matches;
  RegexBudget budget(text.size());
  EXPECT_OK(regex->ForEachMatch(text, &budget, [&](const Regex::Match& match) {
    matches.emplace_back(text.substr(match.begin, match.end - match.begin));
  }));
  return matches;
}

TEST(RegexTest, FindsMatchesFromTheLeft) {
  EXPECT_THAT(Matches("a+|b", "caabb"), ElementsAre("aa", "b", "b"));
  EXPECT_THAT(Matches("x", "caabb"), IsEmpty());
  EXPECT_THAT(Matches("x", ""), IsEmpty());
}

TEST(RegexTest, EmptyMatchesDoNotFollowAMatch) {
  EXPECT_THAT(Matches("a*", "baac"), ElementsAre("", "aa", ""));
  EXPECT_THAT(Matches("", "é"), ElementsAre("", ""));
}

// Oniguruma and PCRE2 differ here.
TEST(RegexTest, ClassesAreThoseOfOniguruma) {
  EXPECT_THAT(Matches("\\s", "\u180e\u0085\u00a0\u3000\v"),
              ElementsAre("\u0085", "\u00a0", "\u3000", "\v"));
  EXPECT_THAT(Matches("[^\\S\\n]", " \n\u180e\t"), ElementsAre(" ", "\t"));
  EXPECT_THAT(Matches("\\w+", "e\u0301\u203f½-"),
              ElementsAre("e\u0301\u203f½"));
  EXPECT_THAT(Matches("\\h+", "xAf9g"), ElementsAre("Af9"));
  EXPECT_THAT(Matches("\\v", "\n\v"), ElementsAre("\v"));
  EXPECT_THAT(Matches("\\p{Han}+", "漢字、カ"), ElementsAre("漢字"));
  EXPECT_THAT(Matches("\\p{^L}", "a1"), ElementsAre("1"));
  EXPECT_THAT(Matches(".", "\r\n"), ElementsAre("\r"));
  EXPECT_THAT(Matches("^a$", "a\na"), ElementsAre("a", "a"));
  EXPECT_THAT(Matches("\\bé\\b", "é aé"), ElementsAre("é"));
}

// Among numbers that are no digits, only those of Latin-1 are word characters,
// and only outside of brackets.
TEST(RegexTest, WordCharactersAreThoseOfOniguruma) {
  EXPECT_THAT(Matches("\\w", "①₇⁴৴Ⅷ٣²³¹¼½¾⅓"),
              ElementsAre("Ⅷ", "٣", "²", "³", "¹", "¼", "½", "¾"));
  EXPECT_THAT(Matches("\\W", "①a²"), ElementsAre("①"));
  EXPECT_THAT(Matches("[\\w]", "①²¾a"), ElementsAre("a"));
  EXPECT_THAT(Matches("[^\\w]", "①²a"), ElementsAre("①", "²"));
  EXPECT_THAT(Matches("a\\b", "a①"), ElementsAre("a"));
  EXPECT_THAT(Matches("a\\b", "a²"), IsEmpty());
  EXPECT_THAT(Matches("a\\B", "a①"), IsEmpty());
  EXPECT_THAT(Matches("a\\B", "a²"), ElementsAre("a"));
}

TEST(RegexTest, RepetitionsAreThoseOfOniguruma) {
  EXPECT_THAT(Matches("a{,2}b", "aab"), ElementsAre("aab"));
  // One more quantifier there, possessive in PCRE2.
  EXPECT_THAT(Matches("a{1,2}+", "aaaaa"), ElementsAre("aaaaa"));
  EXPECT_THAT(Matches("a++a", "aaa"), IsEmpty());
  EXPECT_THAT(Matches("a+?", "aa"), ElementsAre("a", "a"));
}

TEST(RegexTest, CaseIsIgnoredWhereAskedFor) {
  EXPECT_THAT(Matches("(?i:'s|'ll)", "'S'Ll'ſ"),
              ElementsAre("'S", "'Ll", "'ſ"));
  EXPECT_THAT(Matches("(?i)ab", "AB"), ElementsAre("AB"));
  EXPECT_THAT(Matches("(?i:a)b", "Ab AB"), ElementsAre("Ab"));
}

TEST(RegexTest, WhatHasNoEqualIsRefused) {
  const std::pair<const char*, const char*> kBad[] = {
      {"(a)\\1", "the escape \\1"},
      {"(?<n>a)", "this kind of group"},
      {"(?(1)a)", "this kind of group"},
      {"(?x)a", "this kind of group"},
      {"a(?i)b", "this kind of group"},
      {"[[:alpha:]]", "[ inside of a class"},
      {"[a&&b]", "&& inside of a class"},
      {"[]a]", "] as the first of a class"},
      {"[a", "a class without its end"},
      {"[\\W]", "\\W or \\H inside of a class"},
      {"\\p{Klingon}", "the property \"Klingon\""},
      {"\\pL", "\\p without {"},
      {"\\R", "the escape \\R"},
      {"a\\é", "\\ before a character that is not ASCII"},
      {"\\xE2", "a byte above \\x7f"},
      {"(?i:strasse)", "(?i) with ss"},
      {"(?i:é)", "a letter of no ASCII beside (?i)"},
      {"a**", "a quantifier of nothing"},
      {"*a", "a quantifier of nothing"},
      {"a{2}?", "? after {n}"},
      {"a{b", "{ without an interval"},
      {"(a", "a group without its end"},
      {"a)", "the end of no group"},
      {"a\\", "\\ at the end"}};
  for (const auto& [pattern, what] : kBad) {
    EXPECT_THAT(Regex::Compile(pattern),
                StatusIs(kBadPattern,
                         HasSubstr(std::string(what) + " is not supported")))
        << pattern;
  }
}

TEST(RegexTest, AMatchThatTakesForeverIsAnError) {
  const auto find_all = [](std::string_view pattern, std::string_view text) {
    RegexBudget budget(text.size());
    return Regex::Compile(pattern)->ForEachMatch(text, &budget,
                                                 [](const Regex::Match&) {});
  };
  EXPECT_THAT(find_all("(?:a+)+[^a]", std::string(1000, 'a')),
              StatusIs(kBadPattern, HasSubstr("takes more than")));
  EXPECT_THAT(find_all("(?:(?:a|b)*c|[ab])", std::string(1 << 20, 'a')),
              StatusIs(kBadPattern, HasSubstr("from byte 0 of the text")));
}

// PCRE2's own error refers to the rewritten pattern.
TEST(RegexTest, ErrorsShowThePatternAsItIsWritten) {
  EXPECT_THAT(
      Regex::Compile("(?<=\\s+)b"),
      StatusIs(kBadPattern, HasSubstr(R"(pattern "(?<=\\s+)b": lookbehind)")));
  EXPECT_THAT(Regex::CompilePcre2("a("),
              StatusIs(kBadPattern, HasSubstr("\"a(\", byte 2: missing")));
}

TEST(RegexTest, PatternsAreLimited) {
  EXPECT_THAT(Regex::Compile(std::string(Regex::kMaxPatternBytes + 1, 'a')),
              StatusIs(kBadPattern, HasSubstr("65537 bytes")));
}

}  // namespace
}  // namespace espalier
