// Errors of a spiece.model without a tokenizer.json. Its tokens are tested in
// text_models_test.cc.
#include "text/tokenizer/t5_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/status.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/fake_tokenizer_model.h"
#include "text/pipeline/base64.h"

namespace espalier {
namespace {

using ::espalier::testing::FakeTokenizerModel;
using ::espalier::testing::Field;
using ::espalier::testing::PieceType;
using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kNotValid = absl::StatusCode::kInvalidArgument;

std::string Pieces() {
  return ReadFile(SourcePath("tests/data/text_models/t5/spiece.model"), 1 << 20)
      .value();
}

TEST(T5TokenizerTest, WithoutAConfigItHasAHundredGaps) {
  const ScratchDirectory directory;
  directory.Write("spiece.model", Pieces());
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       Tokenizer::LoadDirectory(directory.path()));
  EXPECT_EQ(tokenizer->vocab_size(), 56 + 100);
  EXPECT_EQ(tokenizer->PieceToId("<extra_id_99>"), 56);
  EXPECT_EQ(tokenizer->PieceToId("<extra_id_0>"), 155);
  EXPECT_TRUE(tokenizer->is_special(155));
  EXPECT_EQ(tokenizer->special_tokens().pad, 0);
  EXPECT_EQ(tokenizer->special_tokens().eos, 1);
  EXPECT_EQ(tokenizer->special_tokens().unk, 2);
  EXPECT_EQ(tokenizer->Encode("<extra_id_7>", {.parse_special = true}).value(),
            std::vector<TokenId>{155 - 7});
  EXPECT_EQ(tokenizer->after_text(), std::vector<TokenId>{1});
  // A tokenizer.json takes precedence.
  directory.Write("tokenizer.json", "{");
  EXPECT_FALSE(Tokenizer::LoadDirectory(directory.path()).ok());
}

// The tokens are those of transformers 5.24.
TEST(T5TokenizerTest, AddedTokensFollowTheGaps) {
  const ScratchDirectory directory;
  directory.Write("spiece.model", Pieces());
  const auto encode = [&](const char* text) {
    const auto tokenizer = Tokenizer::LoadDirectory(directory.path());
    EXPECT_OK(tokenizer);
    return (*tokenizer)->Encode(text, {.parse_special = true}).value();
  };
  const char* const text = "il <new> pleut";
  EXPECT_THAT(encode(text),
              ElementsAre(3, 11, 15, 3, 2, 9, 4, 20, 2, 3, 26, 15, 4, 17, 8));
  const std::vector<TokenId> found = {3, 11, 15, 156, 3, 26, 15, 4, 17, 8};
  directory.Write("added_tokens.json", R"({"<new>": 156, "<sp>": 157})");
  EXPECT_EQ(encode(text), found);
  // The special tokens are the gaps still.
  directory.Write("special_tokens_map.json",
                  R"({"additional_special_tokens": ["<sp>"]})");
  EXPECT_THAT(encode("<sp> a <extra_id_3>"), ElementsAre(157, 22, 152));
  const auto tokenizer = Tokenizer::LoadDirectory(directory.path()).value();
  EXPECT_EQ(tokenizer->vocab_size(), 158);
  EXPECT_FALSE(tokenizer->is_special(156));
  EXPECT_FALSE(tokenizer->is_special(157));
  EXPECT_TRUE(tokenizer->is_special(152));
  EXPECT_EQ(tokenizer->Decode(found).value(), "il<new> pleut");
  // added_tokens_decoder takes their place.
  directory.Write("tokenizer_config.json",
                  R"({"added_tokens_decoder": {"156": {"content": "<new>",
                      "special": true, "normalized": false, "lstrip": true}}})");
  EXPECT_EQ(encode(text), found);
  const auto listed = Tokenizer::LoadDirectory(directory.path()).value();
  EXPECT_EQ(listed->vocab_size(), 157);
  EXPECT_EQ(listed->Decode(found).value(), "il pleut");
}

TEST(T5TokenizerTest, SpecialTokensThatAreListedReplaceTheGaps) {
  const ScratchDirectory directory;
  directory.Write("spiece.model", Pieces());
  directory.Write("tokenizer_config.json",
                  R"({"additional_special_tokens": ["<sp>"],
                      "mask_token": "<mask>"})");
  const auto tokenizer = Tokenizer::LoadDirectory(directory.path()).value();
  EXPECT_EQ(tokenizer->PieceToId("<mask>"), 156);
  EXPECT_EQ(tokenizer->PieceToId("<sp>"), 157);
  EXPECT_TRUE(tokenizer->is_special(157));
  EXPECT_FALSE(tokenizer->is_special(152));
  EXPECT_EQ(
      tokenizer->Encode("<sp> a <extra_id_3>", {.parse_special = true}).value(),
      (std::vector<TokenId>{157, 22, 3, 152}));
}

TEST(T5TokenizerTest, AnotherIdThanATokensOwnIsRefused) {
  const ScratchDirectory directory;
  directory.Write("spiece.model", Pieces());
  directory.Write("added_tokens.json", R"({"<new>": 161})");
  EXPECT_THAT(Tokenizer::LoadDirectory(directory.path()),
              StatusIs(kNotValid, HasSubstr("added_tokens.json: \"<new>\" must "
                                            "have the id 156 beside ")));
}

TEST(T5TokenizerTest, OtherConfigsAreRefused) {
  const ScratchDirectory directory;
  directory.Write("spiece.model", Pieces());
  const std::pair<const char*, const char*> files[] = {
      {R"({"tokenizer_class": "AlbertTokenizer"})",
       "tokenizer_class of a spiece.model must be that of T5 or mT5, got "
       "\"AlbertTokenizer\"; transformers writes tokenizer.json"},
      {R"({"extra_ids": -1})",
       "extra_ids must be an integer in [0, 10000], got -1"},
      {R"({"extra_ids": "many"})", "extra_ids must be an integer"},
      {R"({"eos_token": "<none>"})", "eos_token must be a token"},
      {"{", "JSON"}};
  for (const auto& [text, what] : files) {
    directory.Write("tokenizer_config.json", text);
    EXPECT_THAT(Tokenizer::LoadDirectory(directory.path()),
                StatusIs(kNotValid, AllOf(HasSubstr("tokenizer_config.json"),
                                          HasSubstr(what))));
  }
}

// Whose pieces have other ids: PEGASUS puts 103 tokens before them.
TEST(T5TokenizerTest, ThoseOfOtherModelsAreRefused) {
  const ScratchDirectory directory;
  directory.Write("spiece.model", Pieces());
  for (const char* type : {"\"t5\"", "\"mt5\"", "null"}) {
    directory.Write("config.json",
                    Concat("{\"model_type\": ", type, ", \"x\": Infinity}"));
    EXPECT_OK(Tokenizer::LoadDirectory(directory.path())) << type;
  }
  directory.Write("config.json", R"({"model_type": "pegasus"})");
  EXPECT_THAT(
      Tokenizer::LoadDirectory(directory.path()),
      StatusIs(kNotValid, HasSubstr("config.json: model_type of a spiece.model "
                                    "must be that of T5 or mT5, got "
                                    "\"pegasus\"")));
  // The tokenizer's own file takes precedence.
  directory.Write("tokenizer_config.json",
                  R"({"tokenizer_class": "MT5Tokenizer"})");
  EXPECT_OK(Tokenizer::LoadDirectory(directory.path()));
}

TEST(T5TokenizerTest, OtherPiecesAreRefused) {
  const ScratchDirectory directory;
  const auto expect_refused = [&](const std::string& bytes,
                                  const char* message) {
    directory.Write("spiece.model", bytes);
    EXPECT_THAT(
        Tokenizer::LoadDirectory(directory.path()),
        StatusIs(kNotValid, AllOf(HasSubstr(directory.path("spiece.model")),
                                  HasSubstr(message))));
  };
  expect_refused("{}", "is no SentencePiece model");
  expect_refused("", "must have pad, EOS and the unknown token first");
  FakeTokenizerModel model;
  model.pieces = {{"<pad>", PieceType::kControl},
                  {"<unk>", PieceType::kUnknown},
                  {"</s>", PieceType::kControl},
                  {"\u2581a"}};
  expect_refused(model.Serialized(), "must have pad, EOS and the unknown");
  std::swap(model.pieces[1], model.pieces[2]);
  directory.Write("spiece.model", model.Serialized());
  EXPECT_OK(Tokenizer::LoadDirectory(directory.path()));
  // A BPE model; the later of two trainer_specs counts.
  expect_refused(model.Serialized() + Field(2, Field(3, 2)),
                 "is no unigram model");
}

TEST(Base64Test, GoesThereAndBack) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(FromBase64(ToBase64(bytes)), bytes);
    bytes += static_cast<char>(i * 7);
  }
  EXPECT_EQ(ToBase64("Man"), "TWFu");
  EXPECT_EQ(ToBase64("Ma"), "TWE=");
  EXPECT_EQ(ToBase64("M"), "TQ==");
}

}  // namespace
}  // namespace espalier
