// Tokenizers of tests/data/tokenizers against results of Hugging Face's
// library, and the effects of tokenizer_config.json and special tokens.
#include "text/tokenizer/json_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/value_to.hpp>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/file.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/sentencepiece_as_json.h"
#include "tests/text/test_tokenizer.h"
#include "tests/text/tokenizer_file.h"
#include "text/tokenizer/incremental_detokenizer.h"

namespace espalier {
namespace {

using ::espalier::testing::EnFrDir;
using ::espalier::testing::EnFrTokenizer;
using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::SentencePieceAsJson;
using ::espalier::testing::StatusIs;
using ::espalier::testing::TokenizerFile;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr auto kInvalidFile = absl::StatusCode::kInvalidArgument;

struct Fixture {
  std::unique_ptr<Tokenizer> tokenizer;
  json::array cases;
};

Fixture LoadFixture(const std::filesystem::path& path) {
  const auto text = ReadFile(path, size_t{1} << 20);
  CHECK(text.ok()) << text.status().ToString();
  const auto file = ParseJson(*text);
  CHECK(file.ok()) << file.status().ToString();
  auto tokenizer =
      JsonTokenizer::Parse(json::serialize(file->at("tokenizer")), {});
  CHECK(tokenizer.ok()) << path << tokenizer.status().ToString();
  json::array cases = file->at("cases").as_array();
  CHECK(!cases.empty()) << path;
  return {*std::move(tokenizer), std::move(cases)};
}

std::vector<Fixture> AllFixtures() {
  std::vector<Fixture> fixtures;
  for (const auto& entry : std::filesystem::directory_iterator(
           SourcePath("tests/data/tokenizers"))) {
    if (entry.path().extension() == ".json") {
      fixtures.push_back(LoadFixture(entry.path()));
    }
  }
  CHECK(fixtures.size() >= 10) << fixtures.size();
  return fixtures;
}

std::string TextOfCase(const json::value& value) {
  return std::string(value.at("text").as_string());
}

std::vector<TokenId> ListOf(const json::value& value) {
  return json::value_to<std::vector<TokenId>>(value);
}

TEST(JsonTokenizerTest, TokensAreThoseOfTheReference) {
  for (const Fixture& fixture : AllFixtures()) {
    for (const json::value& value : fixture.cases) {
      const std::string text = TextOfCase(value);
      EXPECT_EQ(fixture.tokenizer->Encode(text).value(),
                ListOf(value.at("tokens")))
          << text;
      EXPECT_EQ(fixture.tokenizer
                    ->Encode(text, {.add_special_tokens = true,
                                    .parse_special = true})
                    .value(),
                ListOf(value.at("with_special")))
          << text;
    }
  }
}

TEST(JsonTokenizerTest, TextsAreThoseOfTheReference) {
  for (const Fixture& fixture : AllFixtures()) {
    for (const json::value& value : fixture.cases) {
      const std::string expected(value.at("decoded").as_string());
      // The reference gives up a whole run of bytes, not the broken ones.
      if (expected.find("\uFFFD") != std::string::npos) continue;
      EXPECT_EQ(fixture.tokenizer->Decode(ListOf(value.at("tokens"))).value(),
                expected);
    }
  }
}

TEST(JsonTokenizerTest, TextThatGrowsIsWholeCharactersOfTheWholeText) {
  for (const Fixture& fixture : AllFixtures()) {
    const Tokenizer& tokenizer = *fixture.tokenizer;
    for (const json::value& value : fixture.cases) {
      std::vector<TokenId> tokens = ListOf(value.at("with_special"));
      // Every other one is left out, so that characters break.
      for (const size_t step : {1, 2, 3}) {
        IncrementalDetokenizer detokenizer(tokenizer);
        std::vector<TokenId> kept;
        std::string text, part;
        for (size_t i = 0; i < tokens.size(); i += step) {
          kept.push_back(tokens[i]);
          part.clear();
          detokenizer.Feed(tokens[i], &part);
          EXPECT_TRUE(IsUtf8(part));
          text += part;
        }
        detokenizer.Finish(&text);
        EXPECT_EQ(text, tokenizer.Decode(kept).value());
      }
    }
  }
}

// The embedded translator's vocabulary, read both ways.
TEST(JsonTokenizerTest, AConvertedModelMakesTheTokensOfTheModel) {
  const auto model =
      ReadFile(EnFrDir() + "/tokenizer.model", size_t{1} << 20).value();
  const auto converted =
      JsonTokenizer::Parse(SentencePieceAsJson(model), {}).value();
  const auto lines =
      ReadFile(SourcePath("tests/data/beam_search.jsonl"), size_t{1} << 20);
  std::istringstream stream(lines.value());
  int num_texts = 0;
  for (std::string line; std::getline(stream, line); ++num_texts) {
    const std::string sentence(ParseJson(line)->at("prompt_text").as_string());
    for (const std::string& text : {sentence, "  " + sentence + "  漢 🎈  "}) {
      const auto tokens = EnFrTokenizer().Encode(text).value();
      EXPECT_EQ(converted->Encode(text).value(), tokens) << text;
      EXPECT_EQ(converted->Decode(tokens).value(),
                EnFrTokenizer().Decode(tokens).value());
    }
  }
  EXPECT_EQ(num_texts, 300);
}

TEST(JsonTokenizerTest, ManyThreadsMakeTheSameTokens) {
  const Fixture fixture =
      LoadFixture(SourcePath("tests/data/tokenizers/qwen.json"));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        for (const json::value& value : fixture.cases) {
          EXPECT_EQ(fixture.tokenizer->Encode(TextOfCase(value)).value(),
                    ListOf(value.at("tokens")));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// In the library, the first piece is the one that begins with the first
// character.
TEST(JsonTokenizerTest, ReplacedCharactersMayNotBeTheFirst) {
  TokenizerFile file;
  file.At("/normalizer") = json::parse(R"({"type": "Replace",
      "pattern": {"String": "xc"}, "content": "abc"})");
  EXPECT_THAT(file.Parse().value()->Encode("xc").value(), ElementsAre(7));
  file.At("/normalizer/pattern/String") = "x";
  EXPECT_THAT(file.Parse().value()->Encode("x").value(), ElementsAre(8));
}

TEST(JsonTokenizerTest, AUsersTextBecomesNoSpecialToken) {
  const auto tokenizer = TokenizerFile().Parse().value();
  // "<", "s" and ">" are not in the vocabulary.
  EXPECT_THAT(tokenizer->Encode("<s>abc").value(), ElementsAre(2, 0, 0, 0, 7));
  EXPECT_THAT(tokenizer->Encode("<s>abc", {.parse_special = true}).value(),
              ElementsAre(1, 7));
  EXPECT_THAT(tokenizer->Encode("abc<tool>").value(), ElementsAre(8, 9));
  EXPECT_TRUE(tokenizer->is_special(1));
  EXPECT_FALSE(tokenizer->is_special(9));
}

TEST(JsonTokenizerTest, NoVocabularyGivesAUserASpecialToken) {
  for (const Fixture& fixture : AllFixtures()) {
    const Tokenizer& tokenizer = *fixture.tokenizer;
    for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
      const std::string piece = tokenizer.Piece(token);
      if (!tokenizer.is_special(token) || piece == "<unk>") continue;
      for (const std::string& text : {piece, "a " + piece, piece + "b"}) {
        EXPECT_THAT(tokenizer.Encode(text).value(), Not(Contains(token)))
            << text;
        EXPECT_THAT(tokenizer.Encode(text, {.parse_special = true}).value(),
                    Contains(token))
            << text;
      }
    }
  }
}

TEST(JsonTokenizerTest, AddedTokensMarkedSpecialAreNoTextOfAUser) {
  const auto tokenizer = TokenizerFile().Parse().value();
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{8, 9}).value(), "abc<tool>");
  tokenizer->MarkSpecial(std::vector<TokenId>{9, 7});
  EXPECT_TRUE(tokenizer->is_special(9));
  EXPECT_FALSE(tokenizer->is_special(7));  // an ordinary piece
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{8, 9, 7}).value(), "abcabc");
  EXPECT_THAT(tokenizer->Encode("<tool>").value(),
              ElementsAre(2, 0, 0, 0, 0, 0, 0));
}

// One token takes spaces that another would begin with: as in the library, that
// one is there if it does not take spaces in front or reaches farther.
TEST(JsonTokenizerTest, SpacesThatATokenTookAreNoTokenAgain) {
  TokenizerFile file;
  file.At("/normalizer") = nullptr;
  file.At("/pre_tokenizer") = nullptr;
  json::array& added = file.At("/added_tokens").as_array();
  const auto add = [&](int id, const char* content, bool lstrip, bool rstrip) {
    added.push_back({{"id", id},
                     {"content", content},
                     {"lstrip", lstrip},
                     {"rstrip", rstrip},
                     {"normalized", false}});
  };
  add(10, "  ", true, true);
  add(11, "\n", false, true);
  add(12, " b", true, false);
  const auto tokenizer = file.Parse().value();
  EXPECT_THAT(tokenizer->Encode("a    a").value(), ElementsAre(3, 10, 3));
  EXPECT_THAT(tokenizer->Encode("a     a").value(), ElementsAre(3, 10, 3));
  EXPECT_THAT(tokenizer->Encode("     ").value(), ElementsAre(10));
  EXPECT_THAT(tokenizer->Encode("\n     a").value(), ElementsAre(11, 3));
  EXPECT_THAT(tokenizer->Encode("\n   \na").value(), ElementsAre(11, 11, 3));
  EXPECT_THAT(tokenizer->Encode("\n b").value(), ElementsAre(11, 12));
}

// An added token that is a word is in the vocabulary, too; if it is not matched
// as an added token, the model's merges may still produce it.
TEST(JsonTokenizerTest, AddedTokensThatAreTextAreMergedToo) {
  TokenizerFile file;
  file.At("/added_tokens")
      .as_array()
      .push_back({{"id", 6}, {"content", "ab"}, {"single_word", true}});
  for (const bool ignores_merges : {false, true}) {
    file.At("/model/ignore_merges") = ignores_merges;
    EXPECT_THAT(file.Parse().value()->Encode("abab|ab|abc").value(),
                ElementsAre(2, 6, 6, 0, 6, 0, 7));
    const auto tokenizer = file.Parse().value();
    tokenizer->MarkSpecial(std::vector<TokenId>{6});
    EXPECT_THAT(tokenizer->Encode("abab|ab").value(),
                ElementsAre(2, 3, 4, 3, 4, 0, 3, 4));
  }
}

TEST(JsonTokenizerTest, AddedTokensThatAreTextArePiecesOfUnigramToo) {
  TokenizerFile file;
  file.At("/added_tokens")
      .as_array()
      .push_back({{"id", 6}, {"content", "ab"}, {"single_word", true}});
  file.At("/model") = json::parse(R"({"type": "Unigram", "unk_id": 0,
      "vocab": [["<unk>", 0], ["<s>", 0], ["▁", -1], ["a", -2], ["b", -2],
                ["c", -2], ["ab", -1], ["abc", -9], ["▁abc", -9]]})");
  EXPECT_THAT(file.Parse().value()->Encode("abab").value(),
              ElementsAre(2, 6, 6));
  const auto tokenizer = file.Parse().value();
  tokenizer->MarkSpecial(std::vector<TokenId>{6});
  EXPECT_THAT(tokenizer->Encode("abab").value(), ElementsAre(2, 3, 4, 3, 4));
}

TEST(JsonTokenizerTest, SpecialTokensAreSpeltOutIfAskedFor) {
  const auto tokenizer = TokenizerFile().Parse().value();
  const std::vector<TokenId> tokens = {1, 8, 0, 7};
  EXPECT_EQ(tokenizer->Decode(tokens).value(), "abcabc");
  EXPECT_EQ(tokenizer->Decode(tokens, {.show_special = true}).value(),
            "<s> abc<unk>abc");
}

// Only the first token of all opens the text, as in the library.
TEST(JsonTokenizerTest, SpacesBehindShownSpecialTokensStay) {
  const auto tokenizer = TokenizerFile().Parse().value();
  const auto shown = [&](const std::vector<TokenId>& tokens) {
    return tokenizer->Decode(tokens, {.show_special = true}).value();
  };
  EXPECT_EQ(shown({8, 1, 8, 1, 8}), "abc<s> abc<s> abc");
  EXPECT_EQ(shown({1, 8, 8}), "<s> abc abc");
  EXPECT_EQ(shown({8, 8}), "abc abc");
  EXPECT_EQ(shown({1, 1}), "<s><s>");
}

TEST(JsonTokenizerTest, TokensOutsideOfTheVocabularySpellNothing) {
  const auto tokenizer = TokenizerFile().Parse().value();
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{8, 10, 99999}).value(),
            "abc");
  EXPECT_THAT(tokenizer->Decode(std::vector<TokenId>{8, -1}),
              StatusIs(kInvalidFile, HasSubstr("token -1 at index 1")));
}

TEST(JsonTokenizerTest, LooksUpPiecesAndSpellings) {
  const auto tokenizer = TokenizerFile().Parse().value();
  EXPECT_EQ(tokenizer->vocab_size(), 10);
  EXPECT_EQ(tokenizer->PieceToId("▁abc"), 8);
  EXPECT_EQ(tokenizer->PieceToId("<tool>"), 9);
  EXPECT_EQ(tokenizer->PieceToId("abcd"), std::nullopt);
  EXPECT_EQ(tokenizer->Piece(8), "▁abc");
  EXPECT_EQ(tokenizer->Spelling(8), " abc");
  EXPECT_EQ(tokenizer->Spelling(1), "<s>");
  EXPECT_EQ(tokenizer->Piece(-1), "");
  EXPECT_EQ(tokenizer->Piece(10), "");
  const Fixture bytes =
      LoadFixture(SourcePath("tests/data/tokenizers/gpt2.json"));
  const auto space = bytes.tokenizer->PieceToId("Ġ").value();
  EXPECT_EQ(bytes.tokenizer->Spelling(space), " ");
  const auto lead = bytes.tokenizer->PieceToId("Ã").value();
  EXPECT_EQ(bytes.tokenizer->Spelling(lead), "<0xC3>");
}

TEST(JsonTokenizerTest, TheConfigNamesTokensThatHaveARole) {
  const auto tokenizer = TokenizerFile()
                             .Parse({.bos_token = "<s>",
                                     .eos_token = "<tool>",
                                     .pad_token = "c",
                                     .unk_token = {}})
                             .value();
  EXPECT_EQ(tokenizer->special_tokens().bos, 1);
  EXPECT_EQ(tokenizer->special_tokens().eos, 9);
  EXPECT_EQ(tokenizer->special_tokens().pad, 5);
  EXPECT_EQ(tokenizer->special_tokens().unk, 0);  // the model's
  EXPECT_THAT(tokenizer->before_text(), ElementsAre(1));
  EXPECT_THAT(tokenizer->after_text(), IsEmpty());
}

TEST(JsonTokenizerTest, ADirectoryHasOneTokenizer) {
  const ScratchDirectory scratch;
  EXPECT_EQ(Tokenizer::LoadDirectory(scratch.path()).value(), nullptr);
  scratch.Write("tokenizer.json", json::serialize(TokenizerFile().value));
  scratch.Write("tokenizer_config.json",
                R"({"bos_token": {"content": "<s>"}, "eos_token": "<tool>",
                    "pad_token": null, "chat_template": "..."})");
  const auto tokenizer = Tokenizer::LoadDirectory(scratch.path()).value();
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->special_tokens().eos, 9);
  EXPECT_THAT(tokenizer->Encode("abc ab").value(), ElementsAre(8, 2, 6));
  // Alone it may have a name that ends in this one.
  const std::string other = scratch.Write(
      "other_tokenizer.json", json::serialize(TokenizerFile().value));
  EXPECT_EQ(Tokenizer::Load(other).value()->vocab_size(),
            tokenizer->vocab_size());
  // It takes precedence over a tokenizer.model.
  std::filesystem::copy_file(SourcePath("models/en-fr/tokenizer.model"),
                             scratch.path("tokenizer.model"));
  EXPECT_EQ(Tokenizer::LoadDirectory(scratch.path()).value()->vocab_size(),
            tokenizer->vocab_size());
}

TEST(JsonTokenizerTest, ErrorsNameTheFile) {
  const ScratchDirectory scratch;
  const std::string path = scratch.Write("tokenizer.json", "{\"version\":");
  EXPECT_THAT(Tokenizer::Load(path), StatusIs(kInvalidFile, HasSubstr(path)));
  TokenizerFile file;
  file.At("/model/type") = "WordPiece";
  scratch.Write("tokenizer.json", json::serialize(file.value));
  EXPECT_THAT(Tokenizer::Load(path),
              StatusIs(kInvalidFile,
                       HasSubstr(path + ": model.type must be BPE or Unigram, "
                                        "got \"WordPiece\"")));
  scratch.Write("tokenizer.json", json::serialize(TokenizerFile().value));
  scratch.Write("tokenizer_config.json", R"({"bos_token": 1})");
  EXPECT_THAT(Tokenizer::Load(path),
              StatusIs(kInvalidFile,
                       HasSubstr("tokenizer_config.json: bos_token must be")));
  EXPECT_THAT(TokenizerFile().Parse({.bos_token = {},
                                     .eos_token = "</nowhere>",
                                     .pad_token = {},
                                     .unk_token = {}}),
              StatusIs(kInvalidFile, HasSubstr("eos_token must be a token, got "
                                               "\"</nowhere>\"")));
}

}  // namespace
}  // namespace espalier
