// Directories with many combinations of tokenizer files, against what
// transformers makes of them (tools/make_directory_references.py).
#include "text/tokenizer/directory_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "text/pipeline/base64.h"
#include "text/tokenizer/incremental_detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {
namespace {

using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ReferenceText(const json::value& value) {
  return std::string(value.as_string());
}

std::vector<TokenId> ReferenceTokens(const json::value& value) {
  std::vector<TokenId> tokens;
  for (const json::value& token : value.as_array()) {
    tokens.push_back(static_cast<TokenId>(token.as_int64()));
  }
  return tokens;
}

class DirectoryReferences {
 public:
  DirectoryReferences() {
    const char* const path = std::getenv("ESPALIER_TOKENIZER_DIRECTORIES");
    const std::string text =
        ReadFile(path != nullptr
                     ? path
                     : SourcePath("tests/data/tokenizer_directories.json"),
                 size_t{1} << 30)
            .value();
    file_ = ParseJson(text).value();
  }

  const json::array& cases() const { return file_.at("cases").as_array(); }

  // The directory of a case, or the file that cases share, by "@name".
  void Write(const json::value& a_case, const ScratchDirectory& to) const {
    for (const auto& [name, content] : a_case.at("files").as_object()) {
      std::string bytes = ReferenceText(content);
      if (bytes.starts_with('@')) bytes = Shared(bytes.substr(1));
      to.Write(std::string(name), bytes);
    }
  }

  std::string Shared(const std::string& name) const {
    const json::object& file = file_.at("shared").at(name).as_object();
    if (file.contains("text")) return ReferenceText(file.at("text"));
    return FromBase64(ReferenceText(file.at("base64"))).value();
  }

 private:
  json::value file_;
};

const DirectoryReferences& References() {
  static const auto* const references = new DirectoryReferences;
  return *references;
}

std::string DecodeByToken(const Tokenizer& tokenizer,
                          const std::vector<TokenId>& tokens) {
  IncrementalDetokenizer detokenizer(tokenizer);
  std::string text;
  for (const TokenId token : tokens) detokenizer.Feed(token, &text);
  detokenizer.Finish(&text);
  return text;
}

TEST(DirectoryTokenizerTest, AnyFilesTogetherAreReadAsTransformersReadsThem) {
  const json::array& cases = References().cases();
  for (size_t i = 0; i < cases.size(); ++i) {
    const ScratchDirectory directory;
    References().Write(cases[i], directory);
    SCOPED_TRACE(Concat(i, " ", WriteJson(cases[i].at("files"))));
    const auto loaded = Tokenizer::LoadDirectory(directory.path());
    ASSERT_OK(loaded);
    const Tokenizer& tokenizer = **loaded;
    for (const json::value& text : cases[i].at("texts").as_array()) {
      EXPECT_EQ(tokenizer
                    .Encode(ReferenceText(text.at("text")),
                            {.add_special_tokens = true, .parse_special = true})
                    .value(),
                ReferenceTokens(text.at("tokens")))
          << text.at("text");
    }
    for (const json::value& decoded : cases[i].at("decoded").as_array()) {
      const std::vector<TokenId> tokens = ReferenceTokens(decoded.at("tokens"));
      EXPECT_EQ(tokenizer.Decode(tokens).value(),
                ReferenceText(decoded.at("text")));
      EXPECT_EQ(DecodeByToken(tokenizer, tokens),
                ReferenceText(decoded.at("text")));
    }
  }
}

// A tokenizer.model of llama's kind with the files of `config` beside it.
class BesideSentencePiece : public ::testing::Test {
 protected:
  BesideSentencePiece() {
    directory_.Write("tokenizer.model", References().Shared("llama.model"));
  }

  absl::StatusOr<std::unique_ptr<Tokenizer>> Load(
      const std::string& config) const {
    directory_.Write("tokenizer_config.json", config);
    return Tokenizer::LoadDirectory(directory_.path());
  }

  const ScratchDirectory directory_;
};

TEST_F(BesideSentencePiece, FlagsSayWhatStandsAroundAText) {
  const auto around = [&](const std::string& flags) {
    const auto tokenizer = Load("{" + flags + "}").value();
    return std::pair(tokenizer->before_text(), tokenizer->after_text());
  };
  using Tokens = std::vector<TokenId>;
  EXPECT_EQ(around(R"("add_bos_token": true)"), std::pair(Tokens{1}, Tokens{}));
  EXPECT_EQ(around(R"("add_bos_token": false)"), std::pair(Tokens{}, Tokens{}));
  EXPECT_EQ(around(R"("add_bos_token": true, "add_eos_token": true)"),
            std::pair(Tokens{1}, Tokens{2}));
  EXPECT_EQ(around(R"("add_bos_token": true, "bos_token": null)"),
            std::pair(Tokens{}, Tokens{}));
}

TEST_F(BesideSentencePiece, TokensWithARoleAreAddedAfterTheVocabulary) {
  const auto plain = Load("{}").value();
  const int size = plain->vocab_size();
  const auto more = Load(R"({"pad_token": "<|pad|>"})").value();
  EXPECT_EQ(more->vocab_size(), size + 1);
  EXPECT_EQ(more->special_tokens().pad, size);
  EXPECT_TRUE(more->is_special(size));
  EXPECT_THAT(more->Encode("<|pad|>", {.parse_special = true}).value(),
              ElementsAre(size));
  EXPECT_THAT(more->Decode(std::vector<TokenId>{size}).value(), IsEmpty());
}

TEST_F(BesideSentencePiece, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"added_tokens_decoder": {"9999": {"content": "<x>"}}})",
       "added_tokens_decoder: \"<x>\" must have the id "},
      {R"({"added_tokens_decoder": {"-1": {"content": "<x>"}}})",
       "added_tokens_decoder[\"-1\"] must be an id with an object"},
      {R"({"added_tokens_decoder": {"9": {"content": "<x>", "lstrip": 1}}})",
       "added_tokens_decoder[\"9\"].lstrip must be true or false, got 1"},
      {R"({"tokenizer_class": "Qwen2Tokenizer"})",
       "tokenizer_class must be one that reads a tokenizer.model"},
      {R"({"extra_special_tokens": "<x>"})",
       "extra_special_tokens must be a list of tokens, got \"<x>\""},
      {R"({"legacy": "no"})", "legacy must be true, false or null, got \"no\""},
      {"[]", "tokenizer_config.json must hold an object"}};
  for (const auto& [config, message] : cases) {
    EXPECT_THAT(Load(config), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr(message)));
  }
}

TEST(DirectoryTokenizerTest, AddedTokensHaveIdsAndMayLackTheRest) {
  const ScratchDirectory directory;
  const auto load = [&](const std::string& added) {
    directory.Write("tokenizer.json",
                    R"({"added_tokens": )" + added +
                        R"(, "model": {"type": "BPE", "vocab": {"x": 0},)" +
                        R"( "merges": []}})");
    return Tokenizer::LoadDirectory(directory.path());
  };
  EXPECT_FALSE(load(R"([{"id": 0, "content": "x"}])").value()->is_special(0));
  const std::pair<const char*, const char*> cases[] = {
      {"5", "added_tokens must be a list, got 5"},
      {"[5]", "added_tokens[0] must be an object, got 5"},
      {R"([{"id": 7, "content": "<a>"}, {"id": 8, "content": "<b>"},
          {"id": 7, "content": "<c>"}])",
       "added_tokens[2].id must be another than that of added_tokens[0], "
       "got 7"},
      {R"([{"id": "0", "content": "x"}])",
       "added_tokens[0].id must be an integer, got \"0\""},
      {R"([{"id": 9223372036854775807, "content": "x"}])",
       "added_tokens[0].id must be in [0, 4194304)"}};
  for (const auto& [added, message] : cases) {
    EXPECT_THAT(load(added), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr(message)));
  }
}

TEST_F(BesideSentencePiece, AGitLfsPointerIsNamedWhateverFileItIs) {
  for (const char* const name :
       {"tokenizer.model", "tokenizer_config.json", "added_tokens.json",
        "special_tokens_map.json", "tokenizer.json"}) {
    const ScratchDirectory directory;
    directory.Write("tokenizer.model", References().Shared("llama.model"));
    directory.Write(name,
                    "version https://git-lfs.github.com/spec/v1\n"
                    "oid sha256:0000\nsize 1\n");
    EXPECT_THAT(Tokenizer::LoadDirectory(directory.path()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(Concat(name, " is a git-lfs pointer"))));
  }
}

// Same result as for a SentencePiece model alone.
TEST_F(BesideSentencePiece, AModelAloneIsReadByItsLibrary) {
  const auto alone = Tokenizer::LoadDirectory(directory_.path()).value();
  EXPECT_EQ(alone->before_text(), std::vector<TokenId>{1});
  EXPECT_EQ(alone->Encode("some text").value(),
            Load("{}").value()->Encode("some text").value());
}

}  // namespace
}  // namespace espalier
