#include "text/text_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <type_traits>

#include "base/json.h"
#include "tests/status_matchers.h"
#include "tests/text/naive_cut.h"
#include "tests/text/test_tokenizer.h"

namespace espalier {
namespace {

using ::espalier::testing::Cut;
using ::espalier::testing::EnFrTokenizer;
using ::espalier::testing::NaiveCut;

StopStrings StreamStops(const std::vector<std::string>& stops) {
  const auto made = StopStrings::Create(stops);
  CHECK(made.ok()) << made.status().ToString();
  return *made;
}

std::vector<TokenId> Tokens(std::string_view text) {
  const auto tokens = EnFrTokenizer().Encode(text);
  CHECK(tokens.ok()) << tokens.status().ToString();
  return *tokens;
}

std::string Decode(const std::vector<TokenId>& tokens) {
  const auto text = EnFrTokenizer().Decode(tokens);
  CHECK(text.ok()) << text.status().ToString();
  return *text;
}

// Tokens of all kinds: bytes, symbols, words, padding.
std::vector<TokenId> RandomTokens(std::mt19937& random) {
  std::vector<TokenId> tokens(random() % 20);
  for (TokenId& token : tokens) {
    const int way = random() % 4;
    token = random() % (way == 0 ? 270 : way == 1 ? 20 : 6010);
  }
  return tokens;
}

bool IsBoundary(const std::string& text, size_t i) {
  return i == text.size() || (text[i] & 0xC0) != 0x80;
}

// Some characters out of `text`, so that a stop is often there; often they are
// the text of several tokens. Nothing if they would be none.
std::vector<std::string> SomeStops(const std::string& text, size_t max_bytes,
                                   std::mt19937& random) {
  std::vector<std::string> stops;
  for (int i = random() % 4; i > 0 && !text.empty(); --i) {
    const size_t begin = random() % text.size();
    size_t end = std::min(begin + 1 + random() % max_bytes, text.size());
    if (!IsBoundary(text, begin)) continue;
    while (!IsBoundary(text, end)) ++end;
    stops.push_back(text.substr(begin, end - begin));
    if (random() % 3 == 0) stops.back() += "q";
  }
  return stops;
}

// Returns the expected text of the stream, cut from the text of all tokens. No
// stop string ends within the text that the first min_new_tokens make certain.
Cut ExpectedCut(const std::vector<TokenId>& tokens,
                const std::vector<std::string>& stops,
                const TextOptions& options) {
  IncrementalDetokenizer detokenizer(EnFrTokenizer());
  std::string unmatched;
  for (size_t i = 0; i < tokens.size() && i < options.min_new_tokens; ++i) {
    detokenizer.Feed(tokens[i], &unmatched);
  }
  if (tokens.size() < options.min_new_tokens) unmatched = Decode(tokens);
  return NaiveCut(stops, Decode(tokens), options.include_stop,
                  unmatched.size());
}

Cut StreamedCut(const std::vector<TokenId>& tokens, const StopStrings& stops,
                const TextOptions& options) {
  TextStream stream(EnFrTokenizer(), stops, options);
  Cut cut;
  const auto add = [&cut](const TextPiece& piece) {
    EXPECT_TRUE(IsUtf8(piece.text));
    cut.text += piece.text;
    cut.consumed_bytes += piece.consumed_bytes;
    if (piece.stop_idx) cut.stop_idx = piece.stop_idx;
  };
  for (const TokenId token : tokens) add(stream.Feed(token));
  add(stream.Finish());
  EXPECT_EQ(stream.stopped(), cut.stop_idx.has_value());
  return cut;
}

TEST(TextStreamTest, PiecesMakeTheWholeTextCutAtTheFirstStop) {
  std::mt19937 random(1);
  int num_stopped = 0;
  constexpr int kNumTexts = 20000;
  for (int i = 0; i < kNumTexts; ++i) {
    const std::vector<TokenId> tokens = RandomTokens(random);
    const std::vector<std::string> strings =
        SomeStops(Decode(tokens), i % 2 == 0 ? 3 : 12, random);
    const StopStrings stops = StreamStops(strings);
    TextOptions options;
    options.include_stop = random() % 2 == 0;
    if (random() % 2 == 0) options.min_new_tokens = random() % 8;
    const Cut expected = ExpectedCut(tokens, strings, options);
    ASSERT_EQ(StreamedCut(tokens, stops, options), expected)
        << ::testing::PrintToString(tokens) << ::testing::PrintToString(strings)
        << options.min_new_tokens;
    ASSERT_EQ(TextOf(tokens, EnFrTokenizer(), stops, options), expected.text);
    num_stopped += expected.stop_idx.has_value();
  }
  EXPECT_GT(num_stopped, kNumTexts / 4);
  EXPECT_LT(num_stopped, kNumTexts - kNumTexts / 4);
}

TEST(TextStreamTest, AStopMayBeTheTextOfSeveralTokens) {
  const StopStrings stops = StreamStops({"beaucoup de"});
  const std::vector<TokenId> tokens = Tokens("Il a beaucoup de chance.");
  EXPECT_EQ(TextOf(tokens, EnFrTokenizer(), stops), "Il a ");
  EXPECT_EQ(TextOf(tokens, EnFrTokenizer(), stops, {.include_stop = true}),
            "Il a beaucoup de");
}

TEST(TextStreamTest, WhatMayBeginAStopWaits) {
  const StopStrings stops = StreamStops({" de chance"});
  TextStream stream(EnFrTokenizer(), stops);
  std::string text;
  for (const TokenId token : Tokens("Il a beaucoup de")) {
    text += stream.Feed(token).text;
  }
  EXPECT_EQ(text, "Il a beaucoup");
  EXPECT_EQ(stream.Finish().text, " de");
}

TEST(TextStreamTest, AStopBeforeMinNewTokensIsText) {
  const StopStrings stops = StreamStops({"a"});
  const std::vector<TokenId> tokens = Tokens("a a a");
  ASSERT_EQ(tokens.size(), 3);
  const auto text_from = [&](int min_new_tokens) {
    return TextOf(tokens, EnFrTokenizer(), stops,
                  {.min_new_tokens = min_new_tokens});
  };
  EXPECT_EQ(text_from(0), "");
  EXPECT_EQ(text_from(1), "a ");
  EXPECT_EQ(text_from(2), "a a ");
  EXPECT_EQ(text_from(3), "a a a");
}

TEST(TextStreamTest, AStopMayBeginBeforeMinNewTokens) {
  const StopStrings stops = StreamStops({"ve l"});
  const std::vector<TokenId> tokens = Tokens("trouve la gare");
  const size_t num_first = Tokens("trouve").size();
  for (int64_t min_new_tokens = 0; min_new_tokens <= num_first;
       ++min_new_tokens) {
    EXPECT_EQ(TextOf(tokens, EnFrTokenizer(), stops,
                     {.min_new_tokens = min_new_tokens}),
              "trou");
  }
}

// As a stop, and within one; its name that is spelt is found, too.
TEST(TextStreamTest, SpecialTokensStop) {
  const auto eos = EnFrTokenizer().special_tokens().eos.value();
  const auto with_eos = [&](std::string_view before, std::string_view after) {
    std::vector<TokenId> tokens = Tokens(before);
    tokens.push_back(eos);
    const std::vector<TokenId> rest = Tokens(after);
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    return tokens;
  };
  const StopStrings alone = MakeStops({"x", "</s>"}, EnFrTokenizer());
  const StopStrings within = MakeStops({"le</s> chat"}, EnFrTokenizer());
  const std::vector<TokenId> tokens = with_eos("le", "chat noir");
  const Cut cut = StreamedCut(tokens, alone, {});
  EXPECT_EQ(cut.text, "le");
  EXPECT_EQ(cut.stop_idx, 1);
  EXPECT_EQ(StreamedCut(tokens, alone, {.include_stop = true}).text, "le</s>");
  EXPECT_EQ(StreamedCut(tokens, within, {}).text, "");
  EXPECT_EQ(StreamedCut(tokens, within, {.include_stop = true}).text,
            "le</s> chat");
  // Held text is written without the special token.
  EXPECT_EQ(StreamedCut(with_eos("le", "chien"), within, {}).text, "le chien");
  EXPECT_EQ(StreamedCut(with_eos("le", ""), within, {}).text, "le");
  EXPECT_EQ(StreamedCut(Tokens("oui</s>non"), alone, {}).text, "oui");
}

// A stop is no special token's if only a part of the name is in it.
TEST(TextStreamTest, PartsOfNamesAreText) {
  const StopStrings stops = MakeStops({"s>", "</s>!"}, EnFrTokenizer());
  std::vector<TokenId> tokens = Tokens("oui");
  tokens.push_back(EnFrTokenizer().special_tokens().eos.value());
  const std::vector<TokenId> rest = Tokens("non");
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  EXPECT_EQ(StreamedCut(tokens, stops, {}).text, "oui non");
}

TEST(TextStreamTest, ShownSpecialTokensAreText) {
  std::vector<TokenId> tokens = Tokens("oui");
  tokens.push_back(EnFrTokenizer().special_tokens().eos.value());
  const IncrementalDetokenizer begin(EnFrTokenizer(), /*is_opening=*/true,
                                     /*shows_special=*/true);
  EXPECT_EQ(TextOf(tokens, begin, StopStrings()), "oui</s>");
  const StopStrings stops = MakeStops({"i</s>"}, EnFrTokenizer());
  EXPECT_EQ(TextOf(tokens, begin, stops), "ou");
}

TEST(TextStreamTest, TheRestMayCompleteAStop) {
  const StopStrings stops = StreamStops({"\uFFFD"});
  const auto lead = EnFrTokenizer().PieceToId("<0xC3>");
  ASSERT_TRUE(lead);
  TextStream stream(EnFrTokenizer(), stops);
  EXPECT_FALSE(stream.Feed(*lead).stop_idx);
  EXPECT_EQ(stream.Finish().stop_idx, 0);
}

TEST(TextStreamTest, ACopyIsAForkOfFiveWords) {
  static_assert(std::is_trivially_copyable_v<TextStream>);
  static_assert(sizeof(TextStream) <= 40);
  const StopStrings stops = StreamStops({"oui"});
  const std::vector<TokenId> tokens = Tokens("oui");
  const std::vector<TokenId> others = Tokens("non");
  const TextStream parent(EnFrTokenizer(), stops);
  TextStream child = parent, other = parent;
  TextPiece piece;
  for (const TokenId token : tokens) piece = child.Feed(token);
  EXPECT_EQ(piece.stop_idx, 0);
  std::string text;
  for (const TokenId token : others) text += other.Feed(token).text;
  EXPECT_EQ(text, "non");
  EXPECT_FALSE(parent.stopped());
}

}  // namespace
}  // namespace espalier
