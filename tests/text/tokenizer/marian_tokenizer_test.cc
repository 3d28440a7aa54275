// Errors of a Marian model's tokenizer, and cases that the references lack.
#include "text/tokenizer/marian_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class MarianTokenizerTest : public ::testing::Test {
 protected:
  MarianTokenizerTest() {
    for (const char* const name :
         {"source.spm", "target.spm", "vocab.json", "tokenizer_config.json"}) {
      std::filesystem::copy_file(
          SourcePath("tests/data/text_models/marian/") + name,
          directory_.path(name));
    }
  }

  // Puts `to` where `from` is in a file.
  void Replace(const char* name, const std::string& from,
               const std::string& to) {
    std::string text = ReadFile(directory_.path(name), 1 << 20).value();
    const size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << from;
    directory_.Write(name, text.replace(at, from.size(), to));
  }

  void ExpectError(absl::StatusCode code, const char* file,
                   const std::string& what) const {
    EXPECT_THAT(Tokenizer::LoadDirectory(directory_.path()),
                StatusIs(code, AllOf(HasSubstr(directory_.path(file)),
                                     HasSubstr(what))));
  }

  const ScratchDirectory directory_;
};

TEST_F(MarianTokenizerTest, AFileThatIsMissingIsNamed) {
  for (const char* const name : {"target.spm", "vocab.json"}) {
    std::filesystem::rename(directory_.path(name), directory_.path("aside"));
    EXPECT_THAT(
        Tokenizer::LoadDirectory(directory_.path()),
        StatusIs(absl::StatusCode::kNotFound,
                 directory_.path() + " has source.spm and no " + name +
                     ": a Marian tokenizer is source.spm, target.spm and "
                     "vocab.json; put there what the model comes with"));
    std::filesystem::rename(directory_.path("aside"), directory_.path(name));
  }
  // Without source.spm these files are no tokenizer.
  std::filesystem::remove(directory_.path("source.spm"));
  EXPECT_EQ(Tokenizer::LoadDirectory(directory_.path()).value(), nullptr);
}

// CTranslate2 leaves out <pad>, which transformers has last.
TEST_F(MarianTokenizerTest, AListOfCTranslate2NumbersThePieces) {
  const auto expected = Tokenizer::LoadDirectory(directory_.path()).value();
  const int size = expected->vocab_size();
  const TokenId pad = *expected->special_tokens().pad;
  json::array all, without_pad;
  for (TokenId token = 0; token < size; ++token) {
    all.emplace_back(expected->Piece(token));
    if (token != pad) without_pad.emplace_back(expected->Piece(token));
  }
  std::filesystem::remove(directory_.path("vocab.json"));
  std::filesystem::remove(directory_.path("tokenizer_config.json"));
  directory_.Write("shared_vocabulary.json", WriteJson(all));
  const std::string text = "It rains, and I am tired.";
  const auto tokens = expected->Encode(text).value();
  const auto same = Tokenizer::LoadDirectory(directory_.path()).value();
  EXPECT_EQ(same->Encode(text).value(), tokens);
  EXPECT_EQ(same->special_tokens().pad, pad);
  directory_.Write("shared_vocabulary.json", WriteJson(without_pad));
  const auto other = Tokenizer::LoadDirectory(directory_.path()).value();
  EXPECT_EQ(other->vocab_size(), size);
  EXPECT_EQ(other->special_tokens().pad, size - 1);
  EXPECT_EQ(other->Encode(text).value().size(), tokens.size());
  directory_.Write("shared_vocabulary.json", R"(["<unk>", "<unk>"])");
  ExpectError(absl::StatusCode::kInvalidArgument, "shared_vocabulary.json",
              ": token 1 must be a string that no other has, got \"<unk>\"");
  directory_.Write("shared_vocabulary.json", "{}");
  ExpectError(absl::StatusCode::kInvalidArgument, "shared_vocabulary.json",
              " must hold a list, got {}");
}

TEST_F(MarianTokenizerTest, WithoutAConfigRolesHaveTheirUsualNames) {
  std::filesystem::remove(directory_.path("tokenizer_config.json"));
  const auto tokenizer = Tokenizer::LoadDirectory(directory_.path()).value();
  EXPECT_EQ(tokenizer->special_tokens().pad, 0);
  EXPECT_EQ(tokenizer->special_tokens().unk, 1);
  EXPECT_EQ(tokenizer->special_tokens().eos, 2);
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
}

TEST_F(MarianTokenizerTest, PiecesThatAreNoModelAreNamed) {
  for (const char* const name : {"source.spm", "target.spm"}) {
    const std::string whole = ReadFile(directory_.path(name), 1 << 20).value();
    directory_.Write(name, "{}");
    ExpectError(kInvalid, name, "is no SentencePiece model");
    directory_.Write(name, whole);
  }
}

TEST_F(MarianTokenizerTest, AMalformedVocabularyIsNamed) {
  const std::pair<const char*, const char*> files[] = {
      {"", "JSON"},
      {"{\"</s>\": 2", "JSON"},
      {"[\"</s>\"]", "must hold an object, got [\"</s>\"]"},
      {"{}", "must be an object with entries"},
      {R"({"a": "1"})", R"(["a"] must be an id in [0, 4194304), got "1")"},
      {R"({"a": -1})", R"(["a"] must be an id in [0, 4194304), got -1)"},
      {R"({"a": 1.5})", R"(["a"] must be an id in [0, 4194304), got 1.5)"},
      {R"({"a": 4194304})", R"(["a"] must be an id in)"},
      {R"({"a": 7, "b": 7})", R"(id 7 is that of "a" and of "b")"}};
  for (const auto& [text, what] : files) {
    directory_.Write("vocab.json", text);
    ExpectError(kInvalid, "vocab.json", what);
  }
}

TEST_F(MarianTokenizerTest, RolesThatTheVocabularyLacksAreNamed) {
  for (const char* const role : {"eos_token", "pad_token", "unk_token"}) {
    const std::string config =
        ReadFile(directory_.path("tokenizer_config.json"), 1 << 20).value();
    for (const char* const piece :
         {"\"<none>\"", "\"\"", "{\"content\": \"\"}"}) {
      directory_.Write("tokenizer_config.json",
                       std::string("{\"") + role + "\": " + piece + "}");
      ExpectError(kInvalid, "tokenizer_config.json",
                  std::string(role) + " must be a token of vocab.json");
    }
    directory_.Write("tokenizer_config.json", config);
  }
  Replace("vocab.json", "\"<pad>\"", "\"<PAD>\"");
  ExpectError(kInvalid, "tokenizer_config.json",
              "pad_token must be a token of vocab.json and have 1 to 256 "
              "bytes, got \"<pad>\"");
}

TEST_F(MarianTokenizerTest, WhatIsNotSupportedIsRefusedByName) {
  const std::pair<const char*, const char*> files[] = {
      {R"({"separate_vocabs": true})",
       "separate_vocabs must be false, got true"},
      {R"({"separate_vocabs": "no"})", "separate_vocabs must be true, false"},
      {R"({"sp_model_kwargs": {"enable_sampling": true}})",
       "sp_model_kwargs must be empty, got {\"enable_sampling\": true}"},
      {R"({"additional_special_tokens": ["<x>"]})",
       "additional_special_tokens must be empty, got [\"<x>\"]"},
      {R"({"extra_special_tokens": ["<x>"]})", "extra_special_tokens must be"},
      {R"({"added_tokens_decoder": {"3": {"content": "</s>"}}})",
       "added_tokens_decoder[\"3\"] must be eos_token, pad_token or"},
      {R"({"added_tokens_decoder": {"3": {"content": ">>fr<<"}}})",
       "added_tokens_decoder[\"3\"] must be eos_token, pad_token or"},
      {R"({"added_tokens_decoder": {"64": 1}})",
       "added_tokens_decoder[\"64\"] must be eos_token, pad_token or"},
      {R"({"added_tokens_decoder": [1]})",
       "added_tokens_decoder must be an object, got [1]"},
      {"[]", "must hold an object, got []"}};
  for (const auto& [text, what] : files) {
    directory_.Write("tokenizer_config.json", text);
    ExpectError(kInvalid, "tokenizer_config.json", what);
  }
  directory_.Write("tokenizer_config.json",
                   R"({"separate_vocabs": false, "sp_model_kwargs": {},
                       "additional_special_tokens": [],
                       "added_tokens_decoder":
                           {"2": {"content": "</s>", "special": true}}})");
  EXPECT_OK(Tokenizer::LoadDirectory(directory_.path()));
}

TEST_F(MarianTokenizerTest, OlderFilesOfTokensAreReadWithoutAList) {
  directory_.Write("added_tokens.json", R"({"</s>": 2, "<new>": 64})");
  ExpectError(kInvalid, "added_tokens.json",
              "\"<new>\" must be eos_token, pad_token or unk_token with its id "
              "in vocab.json, got 64");
  directory_.Write("added_tokens.json", R"({"</s>": 3})");
  ExpectError(kInvalid, "added_tokens.json", "\"</s>\" must be eos_token");
  directory_.Write("added_tokens.json", R"({"</s>": 2})");
  EXPECT_OK(Tokenizer::LoadDirectory(directory_.path()));
  directory_.Write("special_tokens_map.json",
                   R"({"additional_special_tokens": ["<x>"]})");
  ExpectError(kInvalid, "special_tokens_map.json",
              "additional_special_tokens must be empty, got [\"<x>\"]");
  // It goes before tokenizer_config.json.
  directory_.Write("special_tokens_map.json", R"({"pad_token": "</s>"})");
  const auto tokenizer = Tokenizer::LoadDirectory(directory_.path()).value();
  EXPECT_EQ(tokenizer->special_tokens().pad, 2);
  directory_.Write("special_tokens_map.json", R"({"pad_token": "<none>"})");
  ExpectError(kInvalid, "special_tokens_map.json", "pad_token must be a token");
  // Neither is read beside a list.
  directory_.Write("added_tokens.json", R"({"<new>": 64})");
  directory_.Write("tokenizer_config.json", R"({"added_tokens_decoder": {}})");
  EXPECT_OK(Tokenizer::LoadDirectory(directory_.path()));
}

// transformers has no tokenizer.json of such a model, other programs do.
TEST_F(MarianTokenizerTest, ATokenizerJsonBesideItIsNotRead) {
  directory_.Write("tokenizer.json", "{");
  EXPECT_OK(Tokenizer::LoadDirectory(directory_.path()));
  EXPECT_EQ(Tokenizer::FileOf(directory_.path()).value(), "source.spm");
}

TEST_F(MarianTokenizerTest, LanguagesOfTemplatesSpellNothingAndAreStillRead) {
  const auto tokenizer = Tokenizer::LoadDirectory(directory_.path()).value();
  const TokenId french = tokenizer->PieceToId(">>fr<<").value();
  const auto tokens = tokenizer->Encode(">>fr<< the").value();
  EXPECT_EQ(tokenizer->Decode(tokens).value(), ">>fr<< the");
  tokenizer->MarkSpecial(std::vector<TokenId>{french, 20});
  EXPECT_EQ(tokenizer->Decode(tokens).value(), "the");
  EXPECT_EQ(tokenizer->Encode(">>fr<< the").value(), tokens);
  EXPECT_EQ(tokenizer->Piece(french), ">>fr<<");
  EXPECT_FALSE(tokenizer->is_special(20));
}

TEST_F(MarianTokenizerTest, LongTextsAreRefusedWithoutTheCostOfTheirLength) {
  const auto tokenizer = Tokenizer::LoadDirectory(directory_.path()).value();
  const std::string words(4 << 20, 'a');
  EXPECT_THAT(
      tokenizer->Encode(words, {.max_tokens = 100}),
      StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("4194304 bytes")));
  EXPECT_THAT(tokenizer->Encode(">>fr<<" + words, {.max_tokens = 100}),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("bytes")));
  EXPECT_THAT(tokenizer->Encode("caf\xE9"),
              StatusIs(kInvalid, HasSubstr("not UTF-8")));
  EXPECT_THAT(tokenizer->EncodeOutput("caf\xE9"),
              StatusIs(kInvalid, HasSubstr("not UTF-8")));
}

// A space that a text ends with may be followed by something, and is shown
// only then.
TEST_F(MarianTokenizerTest, SpacesAtTheEndsFallAndThoseBetweenStay) {
  const auto tokenizer = Tokenizer::LoadDirectory(directory_.path()).value();
  const TokenId space = tokenizer->PieceToId("\u2581").value();
  const TokenId a = tokenizer->Encode("xa").value().back();
  const TokenId eos = *tokenizer->special_tokens().eos;
  const std::vector<TokenId> tokens = {space, eos, space, a,    space,
                                       space, a,   eos,   space};
  EXPECT_EQ(tokenizer->Decode(tokens).value(), "a  a");
  EXPECT_EQ(tokenizer->Decode(tokens, {.show_special = true}).value(),
            "</s> a  a</s>");
  EXPECT_EQ(
      tokenizer->Decode(std::vector<TokenId>{space, 64, -0x7FFFFFFF + 1}).ok(),
      false);
  EXPECT_EQ(
      tokenizer->Decode(std::vector<TokenId>{space, 64, a, 1 << 30}).value(),
      "a");
}

}  // namespace
}  // namespace espalier
