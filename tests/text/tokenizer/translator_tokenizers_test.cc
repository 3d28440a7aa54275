// Errors of the tokenizers of multilingual translators, and cases that the
// references lack.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/fake_tokenizer_model.h"
#include "text/prompt_template.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {
namespace {

using ::espalier::testing::FakeTokenizerModel;
using ::espalier::testing::PieceType;
using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A copy of a tokenizer of tests/data/text_models, to change.
class TranslatorTest : public ::testing::Test {
 protected:
  void Copy(const std::string& model) {
    const std::string from = SourcePath("tests/data/text_models/" + model);
    for (const auto& file : std::filesystem::directory_iterator(from)) {
      std::filesystem::copy(file.path(), scratch_.path(file.path().filename()));
    }
  }

  void SetConfig(const std::string& field, const json::value& value) {
    const std::string path = scratch_.path("tokenizer_config.json");
    json::object config = ParseJson(*ReadFile(path, 1 << 20))->as_object();
    config[field] = value;
    scratch_.Write("tokenizer_config.json", WriteJson(config));
  }

  absl::StatusOr<std::unique_ptr<Tokenizer>> Load() {
    return Tokenizer::LoadDirectory(scratch_.path());
  }

  void ExpectRefused(const std::string& message) {
    EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr(message)));
  }

  ScratchDirectory scratch_;
};

TEST_F(TranslatorTest, TheSourceLanguageOfTheFileStandsAroundTexts) {
  Copy("nllb");
  SetConfig("src_lang", "fra_Latn");
  const auto tokenizer = Load().value();
  ASSERT_EQ(tokenizer->before_text().size(), 1);
  EXPECT_EQ(tokenizer->Piece(tokenizer->before_text()[0]), "fra_Latn");
}

TEST_F(TranslatorTest, AnUnknownSourceLanguageIsRefused) {
  for (const char* const model : {"nllb", "m2m100", "mbart50"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(scratch_.path())) {
      std::filesystem::remove(entry.path());
    }
    Copy(model);
    SetConfig("src_lang", "tlh");
    ExpectRefused(
        "tokenizer_config.json: src_lang must be a language of the "
        "vocabulary, got \"tlh\"");
    SetConfig("src_lang", 7);
    ExpectRefused("tokenizer_config.json: src_lang must be a string, got 7");
  }
}

TEST_F(TranslatorTest, Small100SaysTheTargetBeforeTheSource) {
  Copy("m2m100");
  SetConfig("tokenizer_class", "SMALL100Tokenizer");
  const auto tokenizer = Load().value();
  EXPECT_TRUE(tokenizer->before_text().empty());
  const auto templates =
      PromptTemplates::Load(scratch_.path(), *tokenizer).value();
  const auto* const into_french = templates.Find("", "fr").value();
  ASSERT_EQ(into_french->before_text.size(), 1);
  EXPECT_EQ(tokenizer->Piece(into_french->before_text[0]), "__fr__");
  EXPECT_EQ(into_french->first_output, std::nullopt);
  EXPECT_THAT(templates.Find("en", "fr"),
              StatusIs(absl::StatusCode::kNotFound,
                       "the model takes no source language, got \"en\"; give "
                       "the target alone, fr"));
}

TEST_F(TranslatorTest, MadladTakesATargetAlone) {
  Copy("madlad");
  const auto tokenizer = Load().value();
  std::vector<std::string> codes;
  for (const NaturalLanguage& language : tokenizer->languages().all()) {
    codes.push_back(language.code);
  }
  EXPECT_THAT(codes, ElementsAre("ace_Arab", "fr", "fr_CA", "ms_Arab_BN", "zh",
                                 "zh_Hant", "mass"));
  EXPECT_TRUE(tokenizer->before_text().empty());
  const auto templates =
      PromptTemplates::Load(scratch_.path(), *tokenizer).value();
  const auto* const french = templates.Find("fr").value();
  EXPECT_EQ(french->name, "fr");
  EXPECT_EQ(french->from, "");
  EXPECT_EQ(french->to, "fr");
  for (const char* const name : {"French", "fra", "FR"}) {
    EXPECT_EQ(templates.Find(name).value(), french) << name;
    EXPECT_EQ(templates.Find("", name).value(), french) << name;
  }
  EXPECT_EQ(templates.Find("zh-Hant").value()->to, "zh_Hant");
  EXPECT_EQ(templates.default_template().to, "");
  for (const auto& found :
       {templates.Find("en", "fr"), templates.Find("en-French")}) {
    EXPECT_THAT(found, StatusIs(absl::StatusCode::kNotFound,
                                "the model takes no source language, got "
                                "\"en\"; give the target alone, fr"));
  }
  EXPECT_THAT(templates.Find("Frenhc"),
              StatusIs(absl::StatusCode::kNotFound,
                       StartsWith("no language \"Frenhc\"; the model has "
                                  "fr (French), ")));
  EXPECT_EQ(templates.Describe(),
            "default, and one of each of its languages, such as ace_Arab");
}

// Languages may be added tokens, with no space before them, and stand in a
// spiece.model with T5's first pieces.
TEST_F(TranslatorTest, MadladsPromptsAreTheirTextsAfterTheLanguage) {
  Copy("madlad");
  const std::string path = scratch_.path("tokenizer.json");
  json::object file = ParseJson(*ReadFile(path, 1 << 20))->as_object();
  const auto expect_prompts = [&](bool are_added) {
    const auto tokenizer = Load().value();
    const auto templates =
        PromptTemplates::Load(scratch_.path(), *tokenizer).value();
    for (const std::string code : {"fr", "zh_Hant"}) {
      for (const std::string text :
           {"Tom is here.", "  two  spaces", "\u6f22"}) {
        EXPECT_EQ(
            templates.Find(code).value()->Apply(text, *tokenizer).value(),
            tokenizer
                ->Encode(Concat("<2", code, "> ", text),
                         {.add_special_tokens = true, .parse_special = true})
                .value())
            << code << " " << text;
      }
    }
    EXPECT_EQ(templates.Find("fr").value()->before_text.size(),
              are_added ? 1 : 2);
  };
  expect_prompts(false);
  for (const bool is_special : {false, true}) {
    json::object changed = file;
    json::array& added = changed["added_tokens"].as_array();
    const json::array& vocab = file["model"].as_object()["vocab"].as_array();
    for (size_t id = 3; id < vocab.size(); ++id) {
      const std::string piece(vocab[id].at(0).as_string());
      if (!piece.starts_with("<2")) continue;
      json::object token = added[0].as_object();
      token["content"] = piece;
      token["id"] = id;
      token["special"] = is_special;
      added.push_back(std::move(token));
    }
    scratch_.Write("tokenizer.json", WriteJson(changed));
    expect_prompts(true);
  }
  std::filesystem::remove(path);
  FakeTokenizerModel model;
  model.pieces = {{"<pad>", PieceType::kControl},
                  {"</s>", PieceType::kControl},
                  {"<unk>", PieceType::kUnknown},
                  {"\u2581"}};
  for (const std::string piece : {"<2fr>", "<2zh_Hant>"}) {
    model.pieces.push_back({piece, PieceType::kUserDefined});
  }
  SetConfig("pad_token", "<pad>");
  scratch_.Write("spiece.model", model.Serialized());
  expect_prompts(false);
}

// A vocabulary of another class has no languages, whatever its pieces are.
TEST_F(TranslatorTest, LanguagesOfMadladAreT5Tokenizers) {
  Copy("madlad");
  SetConfig("tokenizer_class", "PreTrainedTokenizerFast");
  EXPECT_TRUE(Load().value()->languages().empty());
}

TEST_F(TranslatorTest, WhatIsNotSupportedIsRefusedByName) {
  Copy("m2m100");
  SetConfig("language_codes", "wmt20");
  ExpectRefused("language_codes must be m2m100 or wmt21, got \"wmt20\"");
  SetConfig("language_codes", nullptr);
  SetConfig("sp_model_kwargs", {{"enable_sampling", true}});
  ExpectRefused("sp_model_kwargs must be empty, got ");
  SetConfig("sp_model_kwargs", nullptr);
  SetConfig("tokenizer_class", "SpeechTokenizer");
  ExpectRefused(
      "must be M2M100Tokenizer or SMALL100Tokenizer, or the model_type of "
      "config.json m2m_100, got another class");
  SetConfig("tokenizer_class", "M2M100Tokenizer");
  SetConfig("unk_token", "<nothing>");
  ExpectRefused("unk_token must be a token of vocab.json, got \"<nothing>\"");
  SetConfig("unk_token", "<unk>");
  SetConfig("extra_special_tokens", {"__fr__", "__tlh__"});
  ExpectRefused(
      "further special tokens must be those of languages, got \"__tlh__\"");
  SetConfig("extra_special_tokens", json::array());
  SetConfig("added_tokens_decoder", {{"5", {{"content", "__fr__"}}}});
  ExpectRefused("added_tokens_decoder: \"__fr__\" must be a token with a role");
}

TEST_F(TranslatorTest, NllbsPiecesAloneHaveNoLanguages) {
  Copy("mbart50");
  SetConfig("tokenizer_class", "NllbTokenizer");
  ExpectRefused("sentencepiece.bpe.model has no languages");
  SetConfig("tokenizer_class", "XLMRobertaTokenizer");
  ExpectRefused(
      "the tokenizer_class of a sentencepiece.bpe.model must be "
      "MBartTokenizer or MBart50Tokenizer");
}

TEST_F(TranslatorTest, AByt5HasNoFileOfAVocabulary) {
  Copy("byt5");
  EXPECT_EQ(Tokenizer::FileOf(scratch_.path()).value(),
            "tokenizer_config.json");
  SetConfig("additional_special_tokens", {"<extra_id_0>", "<gap>"});
  const auto tokenizer = Load().value();
  EXPECT_EQ(tokenizer->vocab_size(), 261);
  EXPECT_EQ(tokenizer->PieceToId("<gap>"), 260);
  SetConfig("additional_special_tokens", json::array());
  EXPECT_EQ(Load().value()->vocab_size(), 259);
  SetConfig("additional_special_tokens", nullptr);
  SetConfig("extra_ids", 10);
  EXPECT_EQ(Load().value()->vocab_size(), 269);
  SetConfig("extra_ids", -1);
  ExpectRefused(
      "tokenizer_config.json: extra_ids must be an integer in [0, 10000], got "
      "-1");
  SetConfig("extra_ids", nullptr);
  EXPECT_EQ(Load().value()->vocab_size(), 384);
  for (const char* const piece : {"<pad>", "a"}) {
    SetConfig("eos_token", piece);
    ExpectRefused(
        Concat("tokenizer_config.json: eos_token must differ from the pieces "
               "of bytes and from other roles' tokens, got \"",
               piece, "\""));
  }
  SetConfig("additional_special_tokens", {"<extra_id_0>", "<gap>"});
  SetConfig("eos_token", nullptr);
  ExpectRefused("tokenizer_config.json: eos_token must be a token, got null");
  SetConfig("eos_token", "</s>");
  SetConfig("added_tokens_decoder",
            {{"300", {{"content", "<gap>"}, {"special", true}}}});
  ExpectRefused("\"<gap>\" must have the id 259 beside ");
  SetConfig("tokenizer_class", "T5Tokenizer");
  EXPECT_EQ(Tokenizer::FileOf(scratch_.path()).value(), std::nullopt);
  // It may be a ByT5's.
  scratch_.Write("tokenizer_config.json", "{");
  ExpectRefused("tokenizer_config.json: not JSON at byte ");
}

TEST_F(TranslatorTest, ATemplatesNameMayBeTwoNamesOfLanguages) {
  Copy("mbart50");
  const auto tokenizer = Load().value();
  const auto templates =
      PromptTemplates::Load(scratch_.path(), *tokenizer).value();
  const auto* const found = templates.Find("en_XX", "fr_XX").value();
  EXPECT_EQ(found->name, "en_XX-fr_XX");
  EXPECT_EQ(found->from, "en_XX");
  for (const char* const name : {"en-fr", "English-French", "eng-fra"}) {
    EXPECT_EQ(templates.Find(name).value(), found) << name;
  }
  EXPECT_EQ(templates.Find("English", "French").value(), found);
  EXPECT_THAT(templates.Find("en-Frenhc"),
              StatusIs(absl::StatusCode::kNotFound,
                       StartsWith("no language \"Frenhc\"; the model has "
                                  "fr_XX (French), ")));
  EXPECT_THAT(templates.Find("other"),
              StatusIs(absl::StatusCode::kNotFound,
                       "no prompt template \"other\"; the model has default, "
                       "and one of each pair of its languages, such as "
                       "ar_AR-sl_SI"));
}

// They take the library time quadratic in their length.
TEST_F(TranslatorTest, LongRunsOfUnknownCharactersAreRefused) {
  Copy("m2m100");
  const auto tokenizer = Load().value();
  std::string run;
  while (run.size() + 3 <= 65'536) run += "\uE000";
  const std::string text = run + " " + run;
  for (const bool parse_special : {false, true}) {
    EXPECT_EQ(tokenizer->Encode(text, {.parse_special = parse_special})
                  .value()
                  .size(),
              4);
    EXPECT_THAT(
        tokenizer->Encode(text + "\uE000", {.parse_special = parse_special}),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr("the text must have at most 65536 bytes without a "
                           "space between them, for a vocabulary without "
                           "pieces for bytes, got 65538")));
  }
  EXPECT_OK(tokenizer->EncodeOutput(text).status());
  EXPECT_FALSE(tokenizer->EncodeOutput(run + run).ok());
}

// Without normalization rules, which make spaces of other characters.
TEST(FakeTranslatorTest, RunsEndAtWhatTheModelTakesForASpace) {
  std::string run;
  while (run.size() + 3 <= 40'000) run += "\uE000";
  FakeTokenizerModel model;
  model.pieces = {{"<unk>", PieceType::kUnknown}, {"a"}};
  for (const bool is_bpe : {false, true}) {
    model.is_bpe = is_bpe;
    for (const bool has_space : {false, true}) {
      model.pieces.resize(2);
      if (has_space) model.pieces.push_back({"\u2581"});
      const auto tokenizer = model.Load().value();
      EXPECT_EQ(tokenizer->Encode(run + " " + run).ok(), has_space);
      for (const std::string end : {"\r", "\t", "\n"}) {
        EXPECT_THAT(tokenizer->Encode(run + end + run),
                    StatusIs(absl::StatusCode::kInvalidArgument,
                             HasSubstr("got 79999")));
      }
    }
  }
}

// Its output would have to be forced, also where a request names no template.
TEST_F(TranslatorTest, ADefaultTemplateIsOneOfTheFile) {
  Copy("nllb");
  scratch_.Write("prompt_template.json",
                 R"({"default": "eng_Latn-fra_Latn", "templates": [
                     {"name": "bare", "prompt": [{"text": true}]}]})");
  EXPECT_THAT(PromptTemplates::Load(scratch_.path(), *Load().value()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("default: no prompt template "
                                 "\"eng_Latn-fra_Latn\"; the file has bare")));
}

}  // namespace
}  // namespace espalier
