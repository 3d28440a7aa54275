#include "speech/whisper_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {
namespace {

using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kMultilingual[] = "tokenizer";
constexpr char kEnglish[] = "old_english_tokenizer";
constexpr int kContext = 448;

std::string TokenizerText(const std::string& name) {
  return *ReadFile(SourcePath("tests/data/speech/" + name + "/tokenizer.json"),
                   1 << 22);
}

std::unique_ptr<Tokenizer> LoadText(const std::string& text) {
  const ScratchDirectory scratch;
  auto tokenizer = Tokenizer::Load(scratch.Write("tokenizer.json", text));
  EXPECT_OK(tokenizer);
  return *std::move(tokenizer);
}

struct Whisper {
  std::unique_ptr<Tokenizer> tokenizer;
  WhisperTokens tokens;
};

Whisper Load(const std::string& name) {
  auto tokenizer = LoadText(TokenizerText(name));
  auto tokens = WhisperTokens::Find(*tokenizer, name == kMultilingual);
  EXPECT_OK(tokens);
  return {std::move(tokenizer), *std::move(tokens)};
}

// openai's own, of tools/make_speech_references.py.
json::value References(const std::string& name) {
  return ParseJson(
             *ReadFile(SourcePath("tests/data/speech/whisper_tokens.json"),
                       1 << 20))
      ->at(name);
}

std::vector<TokenId> IdsOf(const json::value& list) {
  std::vector<TokenId> ids;
  for (const json::value& id : list.as_array()) {
    ids.push_back(id.to_number<TokenId>());
  }
  return ids;
}

class WhisperTokensTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Tokenizers, WhisperTokensTest,
                         ::testing::Values(kMultilingual, kEnglish),
                         [](const auto& test) {
                           return std::string(test.param);
                         });

TEST_P(WhisperTokensTest, AreThoseOfOpenai) {
  const Whisper whisper = Load(GetParam());
  const WhisperTokens& tokens = whisper.tokens;
  const json::value expected = References(GetParam());
  const auto id = [&](const char* name) {
    return expected.at(name).to_number<TokenId>();
  };
  EXPECT_EQ(tokens.end(), id("end"));
  EXPECT_EQ(tokens.start(), id("start"));
  EXPECT_EQ(tokens.translate(), id("translate"));
  EXPECT_EQ(tokens.transcribe(), id("transcribe"));
  EXPECT_EQ(tokens.start_of_lm(), id("start_of_lm"));
  EXPECT_EQ(tokens.start_of_previous(), id("start_of_previous"));
  EXPECT_EQ(tokens.no_speech(), id("no_speech"));
  EXPECT_EQ(tokens.no_timestamps(), id("no_timestamps"));
  EXPECT_EQ(tokens.first_time(), id("first_time"));
  EXPECT_EQ(tokens.NotSpoken(*whisper.tokenizer).value(),
            IdsOf(expected.at("not_spoken")));
  EXPECT_EQ(tokens.NotAtBegin(*whisper.tokenizer).value(),
            IdsOf(expected.at("not_at_begin")));
  const json::object& languages = expected.at("languages").as_object();
  if (!tokens.is_multilingual()) return;
  EXPECT_EQ(tokens.languages().all().size(), languages.size());
  for (const NaturalLanguage& language : tokens.languages().all()) {
    EXPECT_EQ(language.token, languages.at(language.code).to_number<TokenId>())
        << language.code;
  }
}

TEST_P(WhisperTokensTest, MakeThePromptsOfOpenai) {
  const Whisper whisper = Load(GetParam());
  const json::value references = References(GetParam());
  for (const json::value& line : references.at("prompts").as_array()) {
    const std::vector<TokenId> previous = IdsOf(line.at("previous"));
    WhisperPrompt prompt = {
        .previous = previous,
        .has_timestamps = line.at("has_timestamps").as_bool()};
    if (!line.at("language").is_null()) {
      prompt.language = whisper.tokens.languages().WithCode(
          std::string(line.at("language").as_string()));
      prompt.task = line.at("task") == "translate" ? SpeechTask::kTranslate
                                                   : SpeechTask::kTranscribe;
    }
    EXPECT_EQ(whisper.tokens.PromptOf(prompt, kContext).value(),
              IdsOf(line.at("tokens")))
        << WriteJson(line);
  }
}

TEST_P(WhisperTokensTest, HaveTimesByArithmetic) {
  const WhisperTokens tokens = Load(GetParam()).tokens;
  EXPECT_FALSE(tokens.IsTime(tokens.no_timestamps()));
  EXPECT_TRUE(tokens.IsTime(tokens.first_time()));
  EXPECT_TRUE(tokens.IsTime(tokens.TimeOf(1500)));
  EXPECT_FALSE(tokens.IsTime(tokens.TimeOf(1500) + 1));
  EXPECT_EQ(tokens.StepOf(tokens.TimeOf(54)), 54);
  EXPECT_TRUE(tokens.IsText(tokens.end() - 1));
  EXPECT_FALSE(tokens.IsText(tokens.end()));
  EXPECT_FALSE(tokens.IsText(-1));
}

TEST_P(WhisperTokensTest, PutAPrefixAfterItsTime) {
  const Whisper whisper = Load(GetParam());
  const WhisperTokens& tokens = whisper.tokens;
  const std::vector<TokenId> prefix = {5, 6};
  WhisperPrompt prompt = {.prefix = prefix};
  if (tokens.is_multilingual()) {
    prompt.language = tokens.languages().WithCode("de");
  }
  std::vector<TokenId> expected =
      tokens.PromptOf({.language = prompt.language}, kContext).value();
  const std::vector<TokenId> before = expected;
  expected.insert(expected.end(), {tokens.first_time(), 5, 6});
  EXPECT_EQ(tokens.PromptOf(prompt, kContext).value(), expected);
  prompt.has_timestamps = false;
  expected = before;
  expected.insert(expected.end(), {tokens.no_timestamps(), 5, 6});
  EXPECT_EQ(tokens.PromptOf(prompt, kContext).value(), expected);
}

// The prefix stays whole, and one position is left to write.
TEST_P(WhisperTokensTest, KeepTheEndOfThePreviousThatThePrefixLeaves) {
  const WhisperTokens tokens = Load(GetParam()).tokens;
  const NaturalLanguage* language = tokens.languages().WithCode("en");
  std::vector<TokenId> previous(300, 1);
  std::iota(previous.begin(), previous.end(), 0);
  for (const int max_context : {kContext, 9, 8}) {
    const std::vector<TokenId> prefix(max_context / 2 - 1, 7);
    for (const bool has_timestamps : {false, true}) {
      const WhisperPrompt alone = {.language = language,
                                   .has_timestamps = has_timestamps,
                                   .prefix = prefix};
      WhisperPrompt both = alone;
      both.previous = previous;
      const std::vector<TokenId> end =
          tokens.PromptOf(alone, max_context).value();
      const std::vector<TokenId> got =
          tokens.PromptOf(both, max_context).value();
      const int num_kept =
          std::max(0, max_context - 2 - static_cast<int>(end.size()));
      std::vector<TokenId> expected;
      if (num_kept > 0) expected.push_back(tokens.start_of_previous());
      expected.insert(expected.end(), previous.end() - num_kept,
                      previous.end());
      expected.insert(expected.end(), end.begin(), end.end());
      EXPECT_EQ(got, expected) << max_context;
      EXPECT_LT(got.size(), static_cast<size_t>(max_context));
    }
  }
}

TEST_P(WhisperTokensTest, RefusePromptsThatAreNoText) {
  const WhisperTokens tokens = Load(GetParam()).tokens;
  const NaturalLanguage* language = tokens.languages().WithCode("en");
  for (const TokenId token : {tokens.end(), tokens.start(), -1,
                              tokens.no_timestamps(), tokens.TimeOf(1501)}) {
    const std::vector<TokenId> given = {1, token};
    EXPECT_THAT(
        tokens.PromptOf({.previous = given, .language = language}, kContext),
        StatusIs(kInvalid, HasSubstr("must be text or times, got ")))
        << token;
    EXPECT_THAT(
        tokens.PromptOf({.language = language, .prefix = given}, kContext),
        StatusIs(kInvalid, HasSubstr("must be text or times, got ")))
        << token;
  }
  const std::vector<TokenId> longest(223, 1);
  EXPECT_OK(
      tokens.PromptOf({.language = language, .prefix = longest}, kContext));
  const std::vector<TokenId> longer(224, 1);
  EXPECT_THAT(
      tokens.PromptOf({.language = language, .prefix = longer}, kContext),
      StatusIs(kInvalid, HasSubstr("a prefix must have at most 223 tokens")));
}

TEST(WhisperPromptTest, NeedsALanguageOfAMultilingualModel) {
  const Whisper whisper = Load(kMultilingual);
  EXPECT_THAT(whisper.tokens.PromptOf({}, kContext),
              StatusIs(kInvalid, HasSubstr("needs a language")));
  const NaturalLanguage other{"tlh", 1};
  EXPECT_THAT(whisper.tokens.PromptOf({.language = &other}, kContext),
              StatusIs(kInvalid, HasSubstr("has no language tlh")));
  EXPECT_EQ((*whisper.tokens.languages().Find("German"))->code, "de");
}

TEST(WhisperPromptTest, HasTheModelsTokenOfALanguage) {
  const WhisperTokens tokens = Load(kMultilingual).tokens;
  const NaturalLanguage other{"de", 1};
  EXPECT_EQ(
      tokens.PromptOf({.language = &other}, kContext).value(),
      tokens.PromptOf({.language = tokens.languages().WithCode("de")}, kContext)
          .value());
}

TEST(WhisperPromptTest, OfAnEnglishModelHasNeitherLanguageNorTranslation) {
  const Whisper whisper = Load(kEnglish);
  EXPECT_THAT(
      whisper.tokens.PromptOf({.task = SpeechTask::kTranslate}, kContext),
      StatusIs(kInvalid, HasSubstr("does not translate")));
  const NaturalLanguage english{"en", 355};
  EXPECT_THAT(whisper.tokens.PromptOf({.language = &english}, kContext),
              StatusIs(kInvalid, HasSubstr("takes no language, got en")));
}

TEST(FindWhisperTokensTest, RefusesOtherTokenizers) {
  const std::string text = TokenizerText(kMultilingual);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    const size_t at = other.find(from);
    EXPECT_NE(at, std::string::npos);
    other.replace(at, from.size(), to);
    return WhisperTokens::Find(*LoadText(other), /*is_multilingual=*/true)
        .status();
  };
  EXPECT_THAT(changed("<|translate|>", "<|transmute|>"),
              StatusIs(kInvalid, HasSubstr("has no <|translate|>")));
  EXPECT_THAT(changed("<|nospeech|>", "<|silence|>"),
              StatusIs(kInvalid, HasSubstr("has no <|nocaptions|>")));
  EXPECT_THAT(changed("<|ru|>", "ru"),
              StatusIs(kInvalid, HasSubstr("must be a language")));
}

}  // namespace
}  // namespace espalier
