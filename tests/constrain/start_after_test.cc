#include "constrain/start_after.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "constrain/gbnf_language.h"
#include "constrain/pushdown_configurations.h"
#include "constrain/regex_language.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

// Decides by the definition.
template <typename Language>
bool IsIn(std::string_view text, std::string_view marker,
          const Language& language) {
  const size_t at = text.find(marker);
  if (at == text.npos || !IsUtf8(text.substr(0, at))) return false;
  std::string_view rest = text.substr(at + marker.size());
  for (int i = 0; i <= 2; ++i) {
    if (language.Match(rest).in_language) return true;
    if (!rest.starts_with('\n')) return false;
    rest.remove_prefix(1);
  }
  return false;
}

// All texts of up to seven characters of a few, by the definition: markers that
// begin as they go on, one that a character of the language begins, and a byte.
TEST(StartAfterTest, ATextIsOfTheLanguageBehindTheFirstMarker) {
  const char* const kMarkers[] = {"a", "aab", "aba", "é", "aé", "\xF8", "(.)"};
  for (const std::string_view marker : kMarkers) {
    SCOPED_TRACE(marker);
    ASSERT_OK_AND_ASSIGN(const ByteAutomaton language,
                         CompileRegex("b\n?a*|é"));
    CompileBudget budget;
    ASSERT_OK_AND_ASSIGN(const ByteAutomaton delayed,
                         StartAfter(marker, language, &budget));
    std::vector<std::string> pieces = {"a", "b", "é", "\n"};
    if (marker == "\xF8" || marker == "(.)") pieces.emplace_back(marker);
    int num_in = 0;
    std::vector<std::string> texts = {""};
    for (size_t i = 0; i < texts.size() && texts.size() < 30'000; ++i) {
      const bool is_in = IsIn(texts[i], marker, language);
      EXPECT_EQ(delayed.Match(texts[i]).in_language, is_in) << texts[i];
      num_in += is_in ? 1 : 0;
      for (const std::string& piece : pieces) texts.push_back(texts[i] + piece);
    }
    EXPECT_GT(num_in, 10);
  }
}

// As above, of grammars with and without an empty text.
TEST(StartAfterTest, AGrammarBeginsBehindTheFirstMarker) {
  for (const char* const grammar :
       {"root ::= \"b\" root \"a\" | \"\\n\"", "root ::= \"b\" root \"a\" |"}) {
    for (const std::string_view marker : {"a", "ab", "\xF8"}) {
      CompileBudget budget;
      ASSERT_OK_AND_ASSIGN(const GrammarLanguage language,
                           CompileGbnf(grammar));
      ASSERT_OK_AND_ASSIGN(const GrammarLanguage delayed,
                           StartAfter(marker, language, &budget));
      const auto texts_of = [](const GrammarLanguage& of) {
        const auto calls = std::make_shared<const PushdownAutomaton>(
            std::get<PushdownAutomaton>(of));
        return std::make_unique<PushdownConfigurations>(calls, calls->bytes());
      };
      const auto alone = texts_of(language);
      const auto behind = texts_of(delayed);
      std::vector<std::string> texts = {""};
      int num_in = 0;
      for (size_t i = 0; i < texts.size() && texts.size() < 10'000; ++i) {
        const bool is_in = IsIn(texts[i], marker, *alone);
        EXPECT_EQ(behind->Match(texts[i]).in_language, is_in) << texts[i];
        num_in += is_in ? 1 : 0;
        for (const std::string_view piece : {"a", "b", "\n", "\xF8"}) {
          texts.push_back(texts[i] + std::string(piece));
        }
      }
      EXPECT_GT(num_in, 10);
    }
  }
}

TEST(StartAfterTest, ABudgetBoundsIt) {
  ASSERT_OK_AND_ASSIGN(const ByteAutomaton language, CompileRegex("[a-z]{90}"));
  CompileBudget budget({.max_steps = 2'000});
  EXPECT_THAT(StartAfter("</think>", language, &budget),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("steps")));
}

}  // namespace
}  // namespace espalier
