// The work of patterns by its count: never by a clock.
#include "text/regex/regex_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/status_matchers.h"
#include "text/regex/regex.h"
#include "text/regex/regex_syntax.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kHardTextBytes = 80'000;

std::string RepeatedPart(std::string_view part, size_t num_bytes) {
  std::string text;
  while (text.size() < num_bytes) text += part;
  return text;
}

absl::Status FindAll(const Regex& regex, std::string_view text,
                     RegexBudget* budget, size_t* num_matches = nullptr) {
  return regex.ForEachMatch(text, budget, [&](const Regex::Match&) {
    if (num_matches != nullptr) ++*num_matches;
  });
}

// Patterns of models, and of normalizers.
constexpr const char* kRealPatterns[] = {
    // GPT-2
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)"
    R"(|\s+(?!\S)|\s+)",
    // Llama 3
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // Qwen 2
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // o200k
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // DeepSeek V3
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
    R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
    "[一-龥ࠀ-一가-퟿]+",
    // DeepSeek LLM
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+)",
    R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", R"([\r\n])", R"(\p{N}+)",
    // Falcon, Command R, CLIP
    R"([0-9][0-9][0-9])", R"(\p{N}{1,3})",
    R"('s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)",
    // normalizers
    R"( {2,})", R"(\s+)", R"((?<=\S) (?=\S))", R"([^\S\n]+)"};

// Texts that are hard for them.
std::vector<std::string> HardTexts(size_t num_bytes) {
  std::vector<std::string> texts;
  for (const std::string_view part :
       {" ", "\n", " \n", "a", "A", "漢", "1", "'", "-", "\u3000", "Ab ", "\t",
        "It's 12 o'clock, she'll say.\r\n  ", "ACGT", "é\u0301", "🎈", "a\u00a0",
        "    if (x == 1) {\n\n        y = 2;\n    }\n"}) {
    texts.push_back(RepeatedPart(part, num_bytes));
    texts.push_back(texts.back() + "x");
    texts.push_back(texts.back() + "\n");
  }
  return texts;
}

TEST(RegexCostTest, RealPatternsTakeLittleOfTheBudget) {
  int64_t most = 0;
  for (const char* const pattern : kRealPatterns) {
    const auto regex = Regex::Compile(pattern);
    ASSERT_OK(regex) << pattern;
    for (const std::string& text : HardTexts(kHardTextBytes)) {
      RegexBudget budget(text.size());
      ASSERT_OK(FindAll(*regex, text, &budget)) << pattern;
      most = std::max(most, budget.taken());
      EXPECT_LT(budget.taken(), budget.limit() / 20)
          << pattern << " of " << text.substr(0, 20);
    }
  }
  RecordProperty("most_steps_per_byte",
                 static_cast<int>(most / static_cast<int64_t>(kHardTextBytes)));
}

// A repetition at the end of a match, as in words, needs no callout.
TEST(RegexCostTest, RepetitionsThatEndAMatchAreNotCounted) {
  const auto counted = [](std::string_view pattern) {
    return CountPattern(OnigurumaToPcre2(pattern).value()).pattern;
  };
  EXPECT_EQ(counted("a+|b*|c{2,}"), "a+|b*|c{2,}");
  EXPECT_EQ(counted("a+b*(?i:c|d)?"), "a+b*(?i:c|d)?");
  EXPECT_EQ(counted("a*b|c"), "a*(?C1)b|c");
  EXPECT_EQ(counted("a?b+(?!c)|a+?b+"), "a?b+(?C1)(?!c)|a+?(?C2)b+");
  EXPECT_EQ(counted("(?:a+|b)c?"), "(?:a+(?C1)|b)c?");
  EXPECT_EQ(counted("(?=a*)"), "(?=a*(?C1))");
  EXPECT_EQ(counted("(?:a*b)?"), "(?:a*b)?");  // all are
  EXPECT_TRUE(CountPattern("(?:a*b)?").cost.counts_all);
  EXPECT_TRUE(CountPattern("(?:ab)*").cost.counts_all);
  EXPECT_FALSE(CountPattern("(?:ab){0,3}c{1,8}").cost.counts_all);
}

enum class Outcome {
  kRefused,  // takes more steps than it may
  kTooDeep,  // ends by the stack that PCRE2 has for a match
  kMatched,
};

struct HostilePattern {
  const char* pattern;
  const char* part;  // the text repeats it
  Outcome outcome = Outcome::kRefused;
};

constexpr HostilePattern kHostilePatterns[] = {
    {"a*b|a", "a"},
    {"a*b|a*c|a", "a"},
    {"a++b|a", "a"},
    {"a*?b|a", "a"},
    {".*b|a", "a"},
    {"a{2,}b|a", "a"},
    {"a{60000}b|a", "a"},
    {"a{0,60000}b|a", "a"},
    {"(?=a*b)c|a", "a"},
    {"(?!a*b)a", "a"},
    {"a(?=[^b]*)", "a"},
    {"(?>a*)b|a", "a"},
    {"(?:a*b)?a", "a"},
    {"(?:a|a)*b|a", "a", Outcome::kTooDeep},
    {"(?:a+)+b", "a"},
    {"(?:a*)*b", "a"},
    {"(?:(?=a*b)a|a)*", "a"},
    {"(?:(?=a*c)a|a)", "a"},
    {"a*a*a*b|a", "a"},
    {"a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?a?b|a", "a"},
    {"(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)"
     "(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)(?:a|a)b",
     "a"},
    {"(?:(?:a{0,9}){0,9}){0,9}b|a", "a"},
    {"(?:|){30}b|a", "a"},
    {"(?:|a){0,40}b|a", "a"},
    {"\\s*x|\\s", " "},
    {"\\w+\\d|\\w", "a"},
    {"a*+c|ba*+d|b", "baaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
     Outcome::kMatched},
    {"(?i:a*b)|a", "aA"},
    {"[^b]*b|[^b]*c|[^b]*d|[^b]*e|[^b]", "a"}};

TEST(RegexCostTest, TheStepsOfHostilePatternsAreCounted) {
  for (const auto& [pattern, part, outcome] : kHostilePatterns) {
    const auto regex = Regex::Compile(pattern);
    ASSERT_OK(regex) << pattern;
    const std::string text = RepeatedPart(part, kHardTextBytes);
    RegexBudget budget(text.size());
    const absl::Status status = FindAll(*regex, text, &budget);
    switch (outcome) {
      case Outcome::kRefused:
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr(" takes more than the 81")))
            << pattern;
        break;
      case Outcome::kTooDeep:
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr(" of the text on fails: ")))
            << pattern;
        EXPECT_GT(budget.taken(), 0) << pattern;
        break;
      case Outcome::kMatched:
        EXPECT_OK(status) << pattern;
        EXPECT_GE(budget.taken(), static_cast<int64_t>(text.size())) << pattern;
    }
    RegexBudget again(text.size());
    EXPECT_EQ(FindAll(*regex, text, &again), status) << pattern;
    EXPECT_EQ(again.taken(), budget.taken()) << pattern;
  }
}

TEST(RegexCostTest, TheSquareOfATextIsRefused) {
  for (const char* const pattern :
       {"a*b|a", "a++b|a", "a*?b|a", "(?=a*b)c|a", "(?>a*)b|a", "(?:a*b)?a",
        "(?:(?=a*b)a|a)*", ".*b|a", "(?:a+)+b"}) {
    const auto regex = Regex::Compile(pattern).value();
    const std::string text(kHardTextBytes, 'a');
    RegexBudget budget(text.size());
    EXPECT_THAT(FindAll(regex, text, &budget),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(std::string("pattern \"") + pattern),
                               HasSubstr("more than the 81000000 steps that a "
                                         "text of 80000 bytes may take"))))
        << pattern;
    // A short one is matched as ever.
    RegexBudget few(20);
    EXPECT_OK(FindAll(regex, "aaaaaaaaaaab", &few)) << pattern;
  }
}

TEST(RegexCostTest, CalloutsDoNotChangeMatches) {
  for (const char* const pattern : kRealPatterns) {
    const auto plain = Regex::Compile(pattern).value();
    // For a repeated group that never matches all is counted.
    const auto counted =
        Regex::Compile(std::string(pattern) + "|(?:a+b)*(?!)").value();
    for (const std::string& text : HardTexts(100)) {
      RegexBudget budget(text.size()), all(text.size());
      std::vector<size_t> ends, other_ends;
      ASSERT_OK(plain.ForEachMatch(text, &budget, [&](const Regex::Match& m) {
        ends.push_back(m.end);
      }));
      ASSERT_OK(counted.ForEachMatch(text, &all, [&](const Regex::Match& m) {
        other_ends.push_back(m.end);
      }));
      EXPECT_GT(all.taken(), budget.taken());
      EXPECT_EQ(ends, other_ends) << pattern;
    }
  }
}

}  // namespace
}  // namespace espalier
