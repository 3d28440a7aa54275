#include "text/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "text/tokenizer/incremental_detokenizer.h"

namespace espalier {
namespace {

using ::espalier::testing::EnFrDir;
using ::espalier::testing::EnFrTokenizer;
using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Returns a character of one to four bytes that is neither a space of any kind
// nor the sign for one inside pieces.
std::string RandomCharacter(std::mt19937& random) {
  const char* const kCharacters[] = {"a",  "e", "t", "Q", "7", "é", "ç",   "œ",
                                     "漢", "€", "🎈", "!", "-", "'", "\x01"};
  return kCharacters[random() % std::size(kCharacters)];
}

// Words with one space between them: what survives the way there and back.
std::string RandomSentence(std::mt19937& random) {
  std::string text = RandomCharacter(random);
  for (int length = random() % 60; length > 0; --length) {
    if (random() % 4 == 0) text += ' ';
    text += RandomCharacter(random);
  }
  return text;
}

TEST(TokenizerTest, DecodeUndoesEncode) {
  std::mt19937 random(20240601);
  for (int i = 0; i < 500; ++i) {
    const std::string text = RandomSentence(random);
    ASSERT_OK_AND_ASSIGN(const auto tokens, EnFrTokenizer().Encode(text));
    ASSERT_OK_AND_ASSIGN(const std::string again,
                         EnFrTokenizer().Decode(tokens));
    EXPECT_EQ(again, text);
  }
}

TEST(TokenizerTest, EncodeAddsNeitherBosNorEos) {
  ASSERT_OK_AND_ASSIGN(const auto tokens, EnFrTokenizer().Encode("Hello."));
  EXPECT_THAT(tokens,
              AllOf(Not(IsEmpty()), Not(Contains(1)), Not(Contains(2))));
  ASSERT_OK_AND_ASSIGN(const auto none, EnFrTokenizer().Encode(""));
  EXPECT_THAT(none, IsEmpty());
}

TEST(TokenizerTest, TextCannotSmuggleInControlSymbols) {
  const std::string text = "a<s>b</s>c<pad>";
  ASSERT_OK_AND_ASSIGN(const auto tokens, EnFrTokenizer().Encode(text));
  EXPECT_THAT(tokens, Not(Contains(::testing::AnyOf(1, 2, 3))));
  ASSERT_OK_AND_ASSIGN(const std::string again, EnFrTokenizer().Decode(tokens));
  EXPECT_EQ(again, text);
}

TEST(TokenizerTest, UserDefinedSymbolsSpellThemselves) {
  ASSERT_OK_AND_ASSIGN(const auto tokens, EnFrTokenizer().Encode("a<fr>"));
  EXPECT_EQ(tokens.back(), 5);
  ASSERT_OK_AND_ASSIGN(const std::string again, EnFrTokenizer().Decode(tokens));
  EXPECT_EQ(again, "a<fr>");
}

TEST(TokenizerTest, SpecialTokensSpellNothingAndAreStillRead) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       Tokenizer::Load(EnFrDir() + "/tokenizer.model"));
  ASSERT_OK_AND_ASSIGN(const auto tokens, tokenizer->Encode("a<fr> b<en>"));
  const std::vector<TokenId> ordinary = tokenizer->Encode("Merci bien").value();
  std::vector<TokenId> marked = {1, 4, 5, -1, 6000};
  marked.insert(marked.end(), ordinary.begin(), ordinary.end());
  tokenizer->MarkSpecial(marked);
  // As with transformers' skip_special_tokens, they are removed before
  // decoding, so the token after one may begin the text.
  EXPECT_EQ(tokenizer->Decode(tokens).value(), "a b");
  EXPECT_EQ(tokenizer->Encode("a<fr> b<en>").value(), tokens);
  EXPECT_EQ(tokenizer->Piece(5), "<fr>");
  EXPECT_EQ(tokenizer->Decode(ordinary).value(), "Merci bien");
  std::vector<TokenId> opened = {5};
  opened.insert(opened.end(), ordinary.begin(), ordinary.end());
  EXPECT_EQ(tokenizer->Decode(opened).value(), "Merci bien");
  IncrementalDetokenizer detokenizer(*tokenizer);
  std::string text;
  for (const TokenId token : opened) detokenizer.Feed(token, &text);
  EXPECT_EQ(text, "Merci bien");
}

TEST(TokenizerTest, ATextThatCannotBeSoFewTokensIsRefusedAtOnce) {
  constexpr auto kTooLong = absl::StatusCode::kOutOfRange;
  const Tokenizer& tokenizer = EnFrTokenizer();
  std::string words, one_word(2 << 20, 'a');
  while (words.size() < one_word.size()) words += "It rains, je crois. ";
  EXPECT_THAT(tokenizer.Encode(one_word, {.max_tokens = 100}),
              StatusIs(kTooLong, HasSubstr("2097152 bytes beside its spaces")));
  EXPECT_THAT(tokenizer.Encode(words, {.max_tokens = 100}),
              StatusIs(kTooLong, HasSubstr("beside its spaces; 100 tokens")));
  words.resize(7000);
  EXPECT_THAT(
      tokenizer.Encode(words, {.max_tokens = 100}),
      StatusIs(kTooLong, AllOf(HasSubstr(" of 7000 bytes of the text are "),
                               HasSubstr(" tokens, more than 100"))));
}

// Runs texts made of `parts` through both ways of encoding, and returns how
// many were refused for their length: only those may be that have more tokens.
int CheckRefusals(const Tokenizer& tokenizer,
                  const std::vector<std::string>& parts) {
  std::mt19937 random(1);
  int num_refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string text;
    const int num_kinds = 1 + random() % 3;
    const int first = static_cast<int>(random() % parts.size());
    for (int n = random() % 400; n >= 0; --n) {
      text += parts[(first + random() % num_kinds) % parts.size()];
    }
    const std::vector<TokenId> all = tokenizer.Encode(text).value();
    for (const int max_tokens : {1, 10, 60, 400}) {
      const auto tokens = tokenizer.Encode(text, {.max_tokens = max_tokens});
      if (tokens.ok()) {
        EXPECT_EQ(*tokens, all);
      } else {
        EXPECT_GT(std::ssize(all), max_tokens) << text;
        ++num_refused;
      }
    }
  }
  return num_refused;
}

TEST(TokenizerTest, OnlyWhatIsLongerIsRefusedForItsLength) {
  const Tokenizer& tokenizer = EnFrTokenizer();
  const std::vector<std::string> parts = {"It rains",
                                          " ",
                                          "   ",
                                          "e\u0301",
                                          "\u3000",
                                          "漢",
                                          "internationalisation",
                                          "aaaaaaaa",
                                          "<fr>",
                                          "\uFF21",
                                          "\n",
                                          ",",
                                          "1234567",
                                          "🎈",
                                          "\u200b"};
  EXPECT_GT(CheckRefusals(tokenizer, parts), 100);
  const std::string spaces(1 << 20, ' ');
  EXPECT_EQ(
      tokenizer
          .Encode(spaces + "It" + spaces + "rains" + spaces, {.max_tokens = 3})
          .value(),
      tokenizer.Encode("It rains").value());
}

// Runs of spaces of every length around that at which runs are shortened,
// between all possible neighbours.
TEST(TokenizerTest, LongRunsOfSpacesChangeNoToken) {
  ASSERT_OK_AND_ASSIGN(
      const auto ruled,
      Tokenizer::Load(SourcePath("tests/data/charsmap.model")));
  const std::vector<std::string> parts = {
      "",       "a",      "face",   "<fr>",    "\n", "\u3000",
      "\u2581", "\uFB01", "\u200b", "e\u0301", ","};
  for (const Tokenizer* tokenizer :
       std::initializer_list<const Tokenizer*>{&EnFrTokenizer(), ruled.get()}) {
    for (const size_t length : {1, 2, 255, 256, 257, 258, 512, 513, 5000}) {
      const std::string spaces(length, ' ');
      for (const std::string& before : parts) {
        for (const std::string& after : parts) {
          const std::string text = before + spaces + after + spaces + before;
          EXPECT_EQ(tokenizer->Encode(text, {.max_tokens = 1000}).value(),
                    tokenizer->Encode(text).value())
              << before << " " << length << " " << after;
        }
      }
    }
  }
}

// Its rules make one space of many that are three bytes each.
TEST(TokenizerTest, SpacesOfOtherScriptsAreNoLength) {
  ASSERT_OK_AND_ASSIGN(
      const auto tokenizer,
      Tokenizer::Load(SourcePath("tests/data/charsmap.model")));
  EXPECT_GT(
      CheckRefusals(*tokenizer, {"fine", " ", "\u3000", "\uFB01", "\uFF21",
                                 "\u3000 \u3000", "cab", "face"}),
      100);
  std::string spaces;
  for (int i = 0; i < 10'000; ++i) spaces += "\u3000";
  EXPECT_EQ(
      tokenizer->Encode("fine" + spaces + "cab", {.max_tokens = 2}).value(),
      tokenizer->Encode("fine cab").value());
}

TEST(TokenizerTest, ControlSymbolsVanishAnywhereFromText) {
  ASSERT_OK_AND_ASSIGN(const auto tokens, EnFrTokenizer().Encode("Merci bien"));
  std::vector<TokenId> spread = {1};
  for (const TokenId token : tokens) {
    spread.insert(spread.end(), {3, token, 2});
  }
  ASSERT_OK_AND_ASSIGN(const std::string text, EnFrTokenizer().Decode(spread));
  EXPECT_EQ(text, "Merci bien");
}

TEST(TokenizerTest, TextIsUtf8WhateverTheTokens) {
  std::mt19937 random(7);
  std::vector<TokenId> tokens(EnFrTokenizer().vocab_size());
  std::iota(tokens.begin(), tokens.end(), 0);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(tokens.begin(), tokens.end(), random);
    ASSERT_OK_AND_ASSIGN(const std::string text,
                         EnFrTokenizer().Decode(tokens));
    EXPECT_TRUE(IsUtf8(text));
  }
}

TEST(TokenizerTest, HalfACharacterIsTheReplacementCharacter) {
  const auto lead = EnFrTokenizer().PieceToId("<0xC3>");
  const auto rest = EnFrTokenizer().PieceToId("<0xA9>");
  ASSERT_TRUE(lead && rest);
  const std::vector<TokenId> whole = {*lead, *rest};
  ASSERT_OK_AND_ASSIGN(const auto text, EnFrTokenizer().Decode(whole));
  EXPECT_EQ(text, "é");
  const std::vector<TokenId> half = {*lead};
  ASSERT_OK_AND_ASSIGN(const auto broken, EnFrTokenizer().Decode(half));
  EXPECT_EQ(broken, "\uFFFD");
}

TEST(TokenizerTest, ANegativeTokenIsNamed) {
  const std::vector<TokenId> tokens = {300, 301, -1};
  EXPECT_THAT(EnFrTokenizer().Decode(tokens),
              StatusIs(kInvalid, "token -1 at index 2 is negative"));
}

TEST(TokenizerTest, TokensOfThePaddingSpellNothing) {
  ASSERT_OK_AND_ASSIGN(const auto tokens, EnFrTokenizer().Encode("Merci bien"));
  std::vector<TokenId> spread = {6000};
  for (const TokenId token : tokens) {
    spread.insert(spread.end(), {token, 6001, 1 << 30});
  }
  ASSERT_OK_AND_ASSIGN(const std::string text, EnFrTokenizer().Decode(spread));
  EXPECT_EQ(text, "Merci bien");
}

TEST(TokenizerTest, OnlyTextsWithATokenThatTheModelLacksAreRefused) {
  ASSERT_OK_AND_ASSIGN(
      const auto tokenizer,
      Tokenizer::Load(SourcePath("models/en-fr/tokenizer.model")));
  const std::vector<std::string> texts = {"How old are you?", "Merci bien",
                                          "It rains.", "xyz"};
  std::vector<std::vector<TokenId>> all;
  for (const std::string& text : texts) {
    ASSERT_OK_AND_ASSIGN(all.emplace_back(), tokenizer->Encode(text));
  }
  for (const int size : {1, 300, 1000, 3000, 5999, 6000, 6016}) {
    tokenizer->SetModelVocabSize(size);
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto lacking = std::ranges::find_if(
          all[i], [&](TokenId token) { return token >= size; });
      if (lacking == all[i].end()) {
        EXPECT_OK(tokenizer->Encode(texts[i]));
        EXPECT_OK(tokenizer->EncodeOutput(texts[i]));
        continue;
      }
      const auto is_named =
          StatusIs(kInvalid, AllOf(HasSubstr(Concat("token ", *lacking, ",")),
                                   HasSubstr(tokenizer->Piece(*lacking)),
                                   HasSubstr(Concat("has ", size, " tokens"))));
      EXPECT_THAT(tokenizer->Encode(texts[i]), is_named);
      EXPECT_THAT(tokenizer->Encode(texts[i], {.max_tokens = 100}), is_named);
      EXPECT_THAT(tokenizer->EncodeOutput(texts[i]), is_named);
    }
  }
}

TEST(TokenizerTest, TextThatIsNotUtf8IsAnError) {
  EXPECT_THAT(EnFrTokenizer().Encode("caf\xE9"),
              StatusIs(kInvalid, HasSubstr("not UTF-8")));
  // Long texts are rejected by their beginning, and short ones by their bytes.
  for (const int length : {1, 100, 500, 1 << 20}) {
    EXPECT_THAT(
        EnFrTokenizer().Encode(std::string(length, '\x80'), {.max_tokens = 10}),
        StatusIs(kInvalid, HasSubstr("not UTF-8")));
  }
}

TEST(TokenizerTest, PiecesAreFoundByTheirExactSpelling) {
  EXPECT_EQ(EnFrTokenizer().PieceToId("<unk>"), 0);
  EXPECT_EQ(EnFrTokenizer().PieceToId("<s>"), 1);
  EXPECT_EQ(EnFrTokenizer().PieceToId("</s>"), 2);
  EXPECT_EQ(EnFrTokenizer().PieceToId("<en>"), 4);
  EXPECT_EQ(EnFrTokenizer().PieceToId("<de>"), std::nullopt);
  EXPECT_EQ(EnFrTokenizer().PieceToId(""), std::nullopt);
  EXPECT_EQ(EnFrTokenizer().Piece(2), "</s>");
  EXPECT_EQ(EnFrTokenizer().Piece(4), "<en>");
  EXPECT_EQ(EnFrTokenizer().Piece(-1), "");
  EXPECT_EQ(EnFrTokenizer().Piece(EnFrTokenizer().vocab_size()), "");
  EXPECT_EQ(EnFrTokenizer().vocab_size(), 6000);
  EXPECT_EQ(EnFrTokenizer().bos_id(), 1);
}

TEST(TokenizerTest, BothEmbeddedModelsShareOneVocabulary) {
  const std::string root = SourcePath("models") + "/";
  ASSERT_OK_AND_ASSIGN(const auto draft,
                       Tokenizer::Load(root + "en-fr-draft/tokenizer.model"));
  ASSERT_OK_AND_ASSIGN(const auto tokens, draft->Encode("She made him cry."));
  EXPECT_THAT(tokens, ElementsAre(333, 545, 365, 2001, 262));
}

TEST(TokenizerTest, AMissingFileIsNamed) {
  const std::string path = EnFrDir() + "/no_such.model";
  EXPECT_THAT(Tokenizer::Load(path),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(path)));
}

TEST(TokenizerTest, AFileThatIsNoModelIsNamed) {
  const std::string path = EnFrDir() + "/config.json";
  EXPECT_THAT(Tokenizer::Load(path),
              StatusIs(kInvalid, HasSubstr(path + " is no SentencePiece")));
  EXPECT_THAT(Tokenizer::Load(EnFrDir()),
              StatusIs(kInvalid, HasSubstr("not a regular file")));
}

// Cut inside an entry, the file is malformed; cut between two, or empty, it
// may be a smaller model. It never loads as the whole one.
TEST(TokenizerTest, ATruncatedModelNeverPassesForTheWholeOne) {
  ASSERT_OK_AND_ASSIGN(
      const std::string bytes,
      ReadFile(EnFrDir() + "/tokenizer.model", size_t{1} << 20));
  const ScratchDirectory scratch;
  for (size_t length = 0; length < bytes.size(); length += 4999) {
    const std::string path = scratch.Write("t.model", bytes.substr(0, length));
    const auto tokenizer = Tokenizer::Load(path);
    if (tokenizer.ok()) {
      EXPECT_LT((*tokenizer)->vocab_size(), 6000);
    } else {
      EXPECT_THAT(tokenizer, StatusIs(kInvalid, HasSubstr(path)));
    }
  }
}

}  // namespace
}  // namespace espalier
