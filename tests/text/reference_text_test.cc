// Encoding and decoding against tests/data/beam_search.jsonl: transformers'
// input tokens of each sentence, and its text of each hypothesis.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/value_to.hpp>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "text/prompt_template.h"

namespace espalier {
namespace {

using ::espalier::testing::EnFrDir;
using ::espalier::testing::EnFrTokenizer;
using ::testing::ElementsAreArray;

constexpr TokenId kEnglish = 4;
constexpr int kNumSentences = 300;

std::vector<json::value> ReferenceLines() {
  const auto text =
      ReadFile(SourcePath("tests/data/beam_search.jsonl"), size_t{1} << 20);
  CHECK(text.ok()) << text.status().ToString();
  std::vector<json::value> lines;
  std::istringstream stream(*text);
  for (std::string line; std::getline(stream, line);) {
    const auto value = ParseJson(line);
    CHECK(value.ok()) << value.status().ToString();
    lines.push_back(*value);
  }
  return lines;
}

std::vector<TokenId> TokensOf(const json::value& value) {
  return json::value_to<std::vector<TokenId>>(value);
}

std::string Text(const json::value& value) {
  return std::string(value.as_string());
}

TEST(ReferenceTextTest, TemplatesGiveTheReferencesPrompts) {
  ASSERT_OK_AND_ASSIGN(const auto templates,
                       PromptTemplates::Load(EnFrDir(), EnFrTokenizer()));
  const std::vector<json::value> lines = ReferenceLines();
  ASSERT_EQ(lines.size(), kNumSentences);
  int num_from_english = 0;
  for (const json::value& line : lines) {
    const std::vector<TokenId> expected = TokensOf(line.at("prompt_tokens"));
    const bool from_english = expected[1] == kEnglish;
    num_from_english += from_english;
    ASSERT_OK_AND_ASSIGN(
        const auto* prompt_template,
        from_english ? templates.Find("en", "fr") : templates.Find("fr", "en"));
    const std::string text = Text(line.at("prompt_text"));
    ASSERT_OK_AND_ASSIGN(const auto prompt,
                         prompt_template->Apply(text, EnFrTokenizer()));
    EXPECT_THAT(prompt, ElementsAreArray(expected)) << text;
  }
  EXPECT_GT(num_from_english, 0);
  EXPECT_LT(num_from_english, kNumSentences);
}

TEST(ReferenceTextTest, DecodeGivesTheReferencesTexts) {
  int num_hypotheses = 0;
  for (const json::value& line : ReferenceLines()) {
    for (const json::value& hypothesis : line.at("hypotheses").as_array()) {
      const std::vector<TokenId> tokens = TokensOf(hypothesis.at("tokens"));
      ASSERT_OK_AND_ASSIGN(const std::string text,
                           EnFrTokenizer().Decode(tokens));
      EXPECT_EQ(text, Text(hypothesis.at("text")));
      ++num_hypotheses;
    }
  }
  EXPECT_GE(num_hypotheses, kNumSentences);
}

}  // namespace
}  // namespace espalier
