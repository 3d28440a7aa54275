#include "text/tokenizer/incremental_detokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "base/json.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/fake_tokenizer_model.h"
#include "tests/text/test_tokenizer.h"

namespace espalier {
namespace {

using ::espalier::testing::EnFrTokenizer;
using ::espalier::testing::FakeTokenizerModel;
using ::espalier::testing::PieceType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns the text that each token adds, and the text that Finish() adds.
std::vector<std::string> Pieces(const Tokenizer& tokenizer,
                                const std::vector<TokenId>& tokens) {
  IncrementalDetokenizer detokenizer(tokenizer);
  std::vector<std::string> pieces(tokens.size() + 1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    detokenizer.Feed(tokens[i], &pieces[i]);
  }
  detokenizer.Finish(&pieces.back());
  return pieces;
}

// After each beginning of the tokens the rest completes the whole text.
void ExpectContinued(const Tokenizer& tokenizer,
                     const std::vector<TokenId>& tokens, bool shows_special) {
  ASSERT_OK_AND_ASSIGN(
      const std::string whole,
      tokenizer.Decode(tokens, {.show_special = shows_special}));
  IncrementalDetokenizer first(tokenizer, /*is_opening=*/true, shows_special);
  std::string text;
  for (size_t i = 0; i <= tokens.size(); ++i) {
    auto rest = IncrementalDetokenizer::After(
        tokenizer, std::span(tokens).first(i), shows_special);
    std::string joined = text;
    for (size_t j = i; j < tokens.size(); ++j) rest.Feed(tokens[j], &joined);
    rest.Finish(&joined);
    ASSERT_EQ(joined, whole) << ::testing::PrintToString(tokens) << " at " << i;
    if (i < tokens.size()) first.Feed(tokens[i], &text);
  }
}

void ExpectDecode(const Tokenizer& tokenizer,
                  const std::vector<TokenId>& tokens) {
  std::string text;
  for (const std::string& piece : Pieces(tokenizer, tokens)) {
    EXPECT_TRUE(IsUtf8(piece)) << ::testing::PrintToString(piece);
    text += piece;
  }
  ASSERT_OK_AND_ASSIGN(const std::string whole, tokenizer.Decode(tokens));
  ASSERT_EQ(text, whole) << ::testing::PrintToString(tokens);
}

TokenId Id(const Tokenizer& tokenizer, std::string_view piece) {
  const auto id = tokenizer.PieceToId(piece);
  CHECK(id.has_value()) << piece;
  return *id;
}

// Bytes that begin, continue and break characters, and the edges of the forms.
std::vector<TokenId> TellingBytes(const Tokenizer& tokenizer) {
  std::vector<TokenId> bytes;
  for (const char* const piece :
       {"<0x00>", "<0x20>", "<0x41>", "<0x7F>", "<0x80>", "<0x8F>", "<0x90>",
        "<0x9F>", "<0xA0>", "<0xA9>", "<0xBF>", "<0xC0>", "<0xC1>", "<0xC2>",
        "<0xC3>", "<0xDF>", "<0xE0>", "<0xE2>", "<0xED>", "<0xEF>", "<0xF0>",
        "<0xF3>", "<0xF4>", "<0xF5>", "<0xF8>", "<0xFF>"}) {
    bytes.push_back(Id(tokenizer, piece));
  }
  return bytes;
}

// Random sequences, most tokens out of `favourites`.
void ExpectDecodeOfRandomTokens(const Tokenizer& tokenizer,
                                const std::vector<TokenId>& favourites,
                                int num_sequences, int seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < num_sequences; ++i) {
    std::vector<TokenId> tokens(random() % 12);
    for (TokenId& token : tokens) {
      token = random() % 4 == 0 ? random() % (tokenizer.vocab_size() + 2)
                                : favourites[random() % favourites.size()];
    }
    ASSERT_NO_FATAL_FAILURE(ExpectDecode(tokenizer, tokens));
    if (i % 8 > 1) continue;
    ASSERT_NO_FATAL_FAILURE(ExpectContinued(tokenizer, tokens, i % 8 == 0));
  }
}

TEST(IncrementalDetokenizerTest, PiecesMakeTheTextOfRandomTokens) {
  for (const char* const name : {"en-fr", "en-fr-draft"}) {
    ASSERT_OK_AND_ASSIGN(
        const auto tokenizer,
        Tokenizer::Load(SourcePath("models/" + std::string(name)) +
                        "/tokenizer.model"));
    std::vector<TokenId> favourites = TellingBytes(*tokenizer);
    ExpectDecodeOfRandomTokens(*tokenizer, favourites, 20000, 1);
    favourites.insert(favourites.end(), {0, 1, 2, 3, 4, 5, 6000, 1 << 30});
    ExpectDecodeOfRandomTokens(*tokenizer, favourites, 20000, 2);
    ExpectDecodeOfRandomTokens(*tokenizer, {333, 545, 365, 2001, 262}, 2000, 3);
  }
}

TEST(IncrementalDetokenizerTest, RulesOfTheWayInDoNotMatter) {
  ASSERT_OK_AND_ASSIGN(
      const auto tokenizer,
      Tokenizer::Load(SourcePath("tests/data/charsmap.model")));
  ExpectDecodeOfRandomTokens(*tokenizer, {0, 1, 2, 3, 4, 5}, 2000, 7);
}

// Each sequence of up to three of the telling bytes, which covers all ways that
// a character can begin, go on and break.
TEST(IncrementalDetokenizerTest, PiecesMakeTheTextOfAllByteSequences) {
  const std::vector<TokenId> bytes = TellingBytes(EnFrTokenizer());
  std::vector<std::vector<TokenId>> sequences = {{}};
  for (size_t begin = 0; sequences.back().size() < 3;) {
    const size_t end = sequences.size();
    for (size_t i = begin; i < end; ++i) {
      for (const TokenId byte : bytes) {
        sequences.push_back(sequences[i]);
        sequences.back().push_back(byte);
      }
    }
    begin = end;
  }
  for (const std::vector<TokenId>& tokens : sequences) {
    ASSERT_NO_FATAL_FAILURE(ExpectDecode(EnFrTokenizer(), tokens));
  }
}

// Returns a vocabulary of unusual pieces.
FakeTokenizerModel OddModel() {
  FakeTokenizerModel model;
  model.pieces = {{"<unk>", PieceType::kUnknown},
                  {"<s>", PieceType::kControl},
                  {"\u2581"},
                  {"\u2581\u2581"},
                  {"\u2581a"},
                  {"\u2581\u2581b\u2581"},
                  {" c"},
                  {"d"},
                  {"\u2581e\u2581", PieceType::kUserDefined},
                  {"\u2581f", PieceType::kUnused},
                  {"g", PieceType::kControl},
                  {"\u00E9"}};
  return model;
}

TEST(IncrementalDetokenizerTest, OpeningSpacesFallAsInTheWholeText) {
  for (const bool add_dummy_prefix : {false, true}) {
    for (const bool remove_extra_whitespaces : {false, true}) {
      for (const bool has_lone_space : {false, true}) {
        for (const bool has_bytes : {false, true}) {
          FakeTokenizerModel model = OddModel();
          model.add_dummy_prefix = add_dummy_prefix;
          model.remove_extra_whitespaces = remove_extra_whitespaces;
          if (!has_lone_space) model.pieces[2].piece = "h";
          if (has_bytes) model.AddBytePieces();
          ASSERT_OK_AND_ASSIGN(const auto tokenizer, model.Load());
          ExpectDecodeOfRandomTokens(*tokenizer, {1, 2, 2, 3, 4, 5, 6, 8, 9},
                                     3000, 4);
        }
      }
    }
  }
}

TEST(IncrementalDetokenizerTest, TheUnknownSymbolIsSpeltAsTheModelSays) {
  for (const std::string surface : {"", "?", "\u2581", " x"}) {
    FakeTokenizerModel model = OddModel();
    model.unk_surface = surface;
    ASSERT_OK_AND_ASSIGN(const auto tokenizer, model.Load());
    EXPECT_THAT(Pieces(*tokenizer, {0}), ElementsAre(surface, ""));
    ExpectDecodeOfRandomTokens(*tokenizer, {0, 2, 3, 4}, 1000, 5);
  }
  FakeTokenizerModel model = OddModel();
  model.unk_surface = "\xC3";
  EXPECT_THAT(model.Load(), ::espalier::testing::StatusIs(
                                absl::StatusCode::kInvalidArgument,
                                HasSubstr("the unknown symbol is not UTF-8")));
}

TEST(IncrementalDetokenizerTest, OfTwoTokensSpeltAlikeTheSymbolWins) {
  FakeTokenizerModel model = OddModel();
  model.pieces.push_back({"d", PieceType::kControl});
  model.pieces.push_back({"<0x41>"});
  model.AddBytePieces();
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, model.Load());
  ExpectDecodeOfRandomTokens(*tokenizer, {7, 12, 13, 14, 4}, 1000, 6);
}

TEST(IncrementalDetokenizerTest, ACharacterComesWithTheByteThatCompletesIt) {
  const Tokenizer& t = EnFrTokenizer();
  const TokenId f0 = Id(t, "<0xF0>"), n9f = Id(t, "<0x9F>"),
                n8e = Id(t, "<0x8E>"), n88 = Id(t, "<0x88>");
  EXPECT_THAT(Pieces(t, {f0, n9f, n8e, n88}),
              ElementsAre("", "", "", "\U0001F388", ""));
  // Nothing that comes can make a character of these.
  EXPECT_THAT(
      Pieces(t, {n88, f0, f0, n9f, f0}),
      ElementsAre("\uFFFD", "", "\uFFFD", "", "\uFFFD\uFFFD", "\uFFFD"));
}

TEST(IncrementalDetokenizerTest, BytesJoinAcrossPaddingNotAcrossSymbols) {
  const Tokenizer& t = EnFrTokenizer();
  const TokenId c3 = Id(t, "<0xC3>"), a9 = Id(t, "<0xA9>");
  EXPECT_THAT(Pieces(t, {c3, 6000, -1, a9}),
              ElementsAre("", "", "", "\u00E9", ""));
  EXPECT_THAT(Pieces(t, {c3, 3, a9}), ElementsAre("", "\uFFFD", "\uFFFD", ""));
}

TEST(IncrementalDetokenizerTest, FinishGivesWhatWaits) {
  const Tokenizer& t = EnFrTokenizer();
  EXPECT_THAT(Pieces(t, {Id(t, "<0xE2>"), Id(t, "<0x82>")}),
              ElementsAre("", "", "\uFFFD\uFFFD"));
  EXPECT_THAT(Pieces(t, {}), ElementsAre(""));
}

TEST(IncrementalDetokenizerTest, ACopyIsAForkOfTwoWords) {
  static_assert(std::is_trivially_copyable_v<IncrementalDetokenizer>);
  static_assert(sizeof(IncrementalDetokenizer) <= 16);
  const Tokenizer& t = EnFrTokenizer();
  IncrementalDetokenizer parent(t);
  std::string text, other;
  parent.Feed(Id(t, "<0xC3>"), &text);
  IncrementalDetokenizer child = parent;
  parent.Feed(Id(t, "<0xA9>"), &text);
  child.Feed(Id(t, "<0xA8>"), &other);
  EXPECT_EQ(text, "\u00E9");
  EXPECT_EQ(other, "\u00E8");
}

}  // namespace
}  // namespace espalier
