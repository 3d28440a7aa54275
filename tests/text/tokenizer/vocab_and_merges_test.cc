// vocab.json and merges.txt without a tokenizer.json: supported classes, and
// errors. Their tokens are tested in text_models_test.cc and
// directory_tokenizer_test.cc.
#include "text/tokenizer/vocab_and_merges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/vocab_and_merges_files.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {
namespace {

using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::espalier::testing::WriteVocabAndMerges;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kGpt2Roles[] = R"({"tokenizer_class": "GPT2Tokenizer",
    "bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>"})";

class VocabAndMergesTest : public ::testing::Test {
 protected:
  VocabAndMergesTest() {
    WriteVocabAndMerges(
        SourcePath("tests/data/text_models/bart/") + "tokenizer.json",
        directory_);
  }

  absl::StatusOr<std::unique_ptr<Tokenizer>> Load() const {
    return Tokenizer::LoadDirectory(directory_.path());
  }

  const ScratchDirectory directory_;
};

TEST_F(VocabAndMergesTest, TheModelSaysTheClassWhereTheConfigDoesNot) {
  directory_.Write("config.json", R"({"model_type": "bart"})");
  ASSERT_OK_AND_ASSIGN(const auto bart, Load());
  EXPECT_EQ(bart->special_tokens().bos, 0);
  EXPECT_EQ(bart->special_tokens().pad, 1);
  EXPECT_EQ(bart->special_tokens().eos, 2);
  EXPECT_EQ(bart->before_text(), std::vector<TokenId>{0});
  EXPECT_EQ(bart->after_text(), std::vector<TokenId>{2});
  directory_.Write("tokenizer_config.json", kGpt2Roles);
  ASSERT_OK_AND_ASSIGN(const auto gpt2, Load());
  EXPECT_EQ(gpt2->special_tokens().eos, 2);
  EXPECT_THAT(gpt2->before_text(), IsEmpty());
  EXPECT_THAT(gpt2->after_text(), IsEmpty());
  const char* const text = "the house, thou";
  EXPECT_EQ(gpt2->Encode(text).value(), bart->Encode(text).value());
  EXPECT_EQ(gpt2->Decode(gpt2->Encode(text).value()).value(), text);
}

TEST_F(VocabAndMergesTest, ASpaceGoesBeforeIfTheConfigSaysSo) {
  directory_.Write("tokenizer_config.json", kGpt2Roles);
  ASSERT_OK_AND_ASSIGN(const auto without, Load());
  std::string config = kGpt2Roles;
  config.insert(1, R"("add_prefix_space": true, )");
  directory_.Write("tokenizer_config.json", config);
  ASSERT_OK_AND_ASSIGN(const auto with, Load());
  EXPECT_EQ(with->Encode("the house").value(),
            without->Encode(" the house").value());
}

TEST_F(VocabAndMergesTest, ListedTokensAreFoundAsTheyAreListed) {
  std::string config = kGpt2Roles;
  config.insert(1, R"("added_tokens_decoder": {
      "64": {"content": "<tool>", "special": false},
      "65": {"content": "<end>", "special": true}}, )");
  directory_.Write("tokenizer_config.json", config);
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Load());
  EXPECT_EQ(tokenizer->Encode("<tool>").value(), std::vector<TokenId>{64});
  EXPECT_NE(tokenizer->Encode("<end>").value(), std::vector<TokenId>{65});
  EXPECT_TRUE(tokenizer->is_special(65));
}

TEST_F(VocabAndMergesTest, OtherFilesAreRefused) {
  const struct {
    const char* file;
    const char* text;
    const char* message;
  } cases[] = {
      {"config.json", R"({"model_type": "llama"})",
       ": the tokenizer_class of a vocab.json with a merges.txt must be "
       "GPT2Tokenizer, RobertaTokenizer, BartTokenizer or Qwen2Tokenizer, or "
       "the model_type of config.json one of theirs, got TokenizersBackend"},
      {"config.json", R"({"model_type": "marian"})", "got another class"},
      {"tokenizer_config.json",
       R"({"tokenizer_class": "BartTokenizer", "split_special_tokens": true})",
       "split_special_tokens must be false, got true"},
      {"tokenizer_config.json", R"({"tokenizer_class": 7})",
       "tokenizer_class must be a string, got 7"},
      {"tokenizer_config.json",
       R"({"tokenizer_class": "BartTokenizer", "pad_token": 7})",
       "pad_token must be a string, or an object with \"content\", got 7"},
      {"tokenizer_config.json",
       R"({"tokenizer_class": "BartTokenizer", "added_tokens_decoder": [1]})",
       "added_tokens_decoder must be an object"},
      {"tokenizer_config.json",
       R"({"tokenizer_class": "BartTokenizer",
           "added_tokens_decoder": {"7x": {"content": "a"}}})",
       "added_tokens_decoder[\"7x\"] must be an id with an object"},
      {"tokenizer_config.json",
       R"({"tokenizer_class": "BartTokenizer",
           "added_tokens_decoder": {"5": {"content": "<s>"}}})",
       "added_tokens_decoder: \"<s>\" must have the id 0"},
      {"added_tokens.json", R"({"<x>": 4})",
       "added_tokens.json: \"<x>\" must have the id "},
      {"added_tokens.json", R"({"<x>": -4})",
       "added_tokens.json: \"<x>\" must be an id in [0, "},
      {"vocab.json", "[]", "vocab.json must hold an object"},
      {"vocab.json", "{", "vocab.json"},
      {"merges.txt", "a b c\n", "merges[0] must be two pieces"},
      {"merges.txt", "#version: 0.2\nq zz\n", "merges[0] needs"}};
  for (const auto& [file, text, message] : cases) {
    SCOPED_TRACE(text);
    const ScratchDirectory directory;
    for (const char* const name : {"vocab.json", "merges.txt"}) {
      directory.Write(name, ReadFile(directory_.path(name), 1 << 20).value());
    }
    directory.Write("config.json", R"({"model_type": "bart"})");
    directory.Write(file, text);
    EXPECT_THAT(
        Tokenizer::LoadDirectory(directory.path()),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
}

}  // namespace
}  // namespace espalier
