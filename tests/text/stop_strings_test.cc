#include "text/stop_strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <type_traits>

#include "base/json.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "tests/text/naive_cut.h"

namespace espalier {
namespace {

using ::espalier::testing::Cut;
using ::espalier::testing::NaiveCut;
using ::espalier::testing::StatusIs;

StopStrings Stops(const std::vector<std::string>& stops) {
  const auto made = StopStrings::Create(stops);
  CHECK(made.ok()) << made.status().ToString();
  return *made;
}

// The longest suffix of `text` that a stop begins with and is longer than.
size_t NaiveHeldBytes(const std::vector<std::string>& stops,
                      const std::string& text) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
      if (text.ends_with(stop.substr(0, n))) longest = std::max(longest, n);
    }
  }
  return longest;
}

using Alphabet = std::vector<std::string>;  // characters

std::string RandomText(const Alphabet& alphabet, int size,
                       std::mt19937& random) {
  std::string text;
  for (; size > 0; --size) text += alphabet[random() % alphabet.size()];
  return text;
}

// Stops that are parts of one another as often as not.
std::vector<std::string> RandomStops(const Alphabet& alphabet,
                                     std::mt19937& random) {
  std::vector<std::string> stops(random() % 5);
  std::string last;
  for (std::string& stop : stops) {
    const std::string more = RandomText(alphabet, 1 + random() % 4, random);
    const int way = random() % 4;
    stop = way == 0 ? last + more : way == 1 ? more + last : more;
    last = stop;
  }
  return stops;
}

// `text` in pieces of whole characters, some of them empty.
std::vector<std::string> RandomPieces(const std::string& text,
                                      std::mt19937& random) {
  std::vector<std::string> pieces(1);
  for (const char byte : text) {
    const bool is_inside = (byte & 0xC0) == 0x80;
    while (!is_inside && random() % 3 == 0) pieces.emplace_back();
    pieces.back() += byte;
  }
  return pieces;
}

// Feeds the pieces, and checks after each that just what must be is held.
Cut FeedPieces(const std::vector<std::string>& stops,
               const std::vector<std::string>& pieces, bool include_stop) {
  const StopStrings automaton = Stops(stops);
  StopMatcher matcher(automaton, include_stop);
  Cut cut;
  std::string fed;
  for (const std::string& text : pieces) {
    const bool was_stopped = matcher.stopped();
    const TextPiece piece = matcher.Feed(text);
    EXPECT_TRUE(IsUtf8(piece.text));
    EXPECT_EQ(matcher.stopped(), was_stopped || piece.stop_idx.has_value());
    cut.text += piece.text;
    cut.consumed_bytes += piece.consumed_bytes;
    if (piece.stop_idx) cut.stop_idx = piece.stop_idx;
    fed += text;
    if (!matcher.stopped()) {
      EXPECT_EQ(fed.size() - cut.text.size(), NaiveHeldBytes(stops, fed));
    }
  }
  cut.text += matcher.Finish();
  return cut;
}

void ExpectNaiveCuts(const Alphabet& alphabet, int num_texts, int seed) {
  std::mt19937 random(seed);
  int num_hits = 0;
  for (int i = 0; i < num_texts; ++i) {
    const std::vector<std::string> stops = RandomStops(alphabet, random);
    const std::string text = RandomText(alphabet, random() % 30, random);
    const std::vector<std::string> pieces = RandomPieces(text, random);
    for (const bool include_stop : {false, true}) {
      const Cut expected = NaiveCut(stops, text, include_stop);
      num_hits += expected.stop_idx.has_value();
      ASSERT_EQ(FeedPieces(stops, pieces, include_stop), expected)
          << ::testing::PrintToString(stops) << " in "
          << ::testing::PrintToString(pieces);
    }
  }
  EXPECT_GT(num_hits, num_texts / 4);
  EXPECT_LT(num_hits, 2 * num_texts - num_texts / 4);
}

TEST(StopMatcherTest, CutsWhereSearchOfTheWholeTextDoes) {
  ExpectNaiveCuts({"a", "b"}, 20000, 1);
  ExpectNaiveCuts({"a", "b", "c"}, 20000, 2);
}

// The characters share bytes: leads, and bytes inside.
TEST(StopMatcherTest, ReleasesWholeCharacters) {
  ExpectNaiveCuts({"\u00E9", "\u00E8", "\u0269", "\u2029", "\u2269",
                   "\U0001F388", "\U0001F389"},
                  20000, 3);
}

TEST(StopMatcherTest, TheStopThatEndsFirstWins) {
  const StopStrings stops = Stops({"abcde", "cd", "d"});
  StopMatcher matcher(stops);
  const TextPiece piece = matcher.Feed("xabcdef");
  EXPECT_EQ(piece.text, "xab");
  EXPECT_EQ(piece.stop_idx, 1);
  EXPECT_EQ(piece.consumed_bytes, 5);
}

TEST(StopMatcherTest, OfEqualStopsTheFirstIsTold) {
  const StopStrings stops = Stops({"c", "ab", "ab"});
  EXPECT_EQ(StopMatcher(stops).Feed("ab").stop_idx, 1);
}

TEST(StopMatcherTest, AfterAStopNothingIsReleased) {
  const StopStrings stops = Stops({"b", "ab", "cc"});
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.Feed("xa").text, "x");
  EXPECT_EQ(matcher.Feed("bc").stop_idx, 1);
  EXPECT_EQ(matcher.Feed("xcc").text, "");
  EXPECT_EQ(matcher.Feed("xcc").stop_idx, std::nullopt);
  EXPECT_EQ(matcher.Feed("xcc").consumed_bytes, 0);
  EXPECT_EQ(matcher.FeedUnmatched("x").text, "");
  EXPECT_EQ(matcher.Finish(), "");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcherTest, NoStopEndsInUnmatchedText) {
  const StopStrings stops = Stops({"abc"});
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.FeedUnmatched("xabcx").text, "xabcx");
  EXPECT_EQ(matcher.FeedUnmatched("ab").text, "");
  StopMatcher fork = matcher;
  EXPECT_EQ(fork.Feed("c").stop_idx, 0);
  EXPECT_EQ(matcher.FeedUnmatched("c").stop_idx, std::nullopt);
  EXPECT_EQ(matcher.Feed("x").text, "abcx");
}

TEST(StopMatcherTest, ACopyIsAForkOfTwoWords) {
  static_assert(std::is_trivially_copyable_v<StopMatcher>);
  static_assert(sizeof(StopMatcher) <= 16);
  const StopStrings stops = Stops({"abc"});
  StopMatcher parent(stops);
  EXPECT_EQ(parent.Feed("ab").text, "");
  StopMatcher child = parent;
  EXPECT_EQ(parent.Feed("c").stop_idx, 0);
  EXPECT_EQ(child.Feed("d").text, "abd");
  EXPECT_FALSE(child.stopped());
}

TEST(StopStringsTest, NoneStopNothing) {
  const StopStrings none;
  StopMatcher matcher(none);
  EXPECT_EQ(matcher.Feed("caf\u00E9").text, "caf\u00E9");
  EXPECT_EQ(matcher.Finish(), "");
  EXPECT_EQ(Stops({}).stops().size(), 0);
}

TEST(StopStringsTest, WhatCannotStopIsNamed) {
  EXPECT_THAT(StopStrings::Create({"a", ""}),
              StatusIs(kInvalid, "stop[1] must not be empty, got \"\""));
  EXPECT_THAT(StopStrings::Create({"a", "b", "\xA9"}),
              StatusIs(kInvalid, "stop[2] is not UTF-8"));
}

TEST(StopStringsTest, LimitsAreNamed) {
  EXPECT_OK(StopStrings::Create(std::vector<std::string>(64, "a")));
  EXPECT_THAT(StopStrings::Create(std::vector<std::string>(65, "a")),
              StatusIs(kInvalid, "stop must have at most 64 strings, got 65"));
  EXPECT_THAT(StopStrings::Create({std::string(4097, 'a')}),
              StatusIs(kInvalid,
                       "stop must have at most 4096 bytes together, got 4097"));
}

std::string Utf8(char32_t c) {
  const auto rest = [c](int shift) {
    return static_cast<char>(0x80 | (c >> shift & 0x3F));
  };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), rest(0)};
  if (c < 0x10000) {
    return {static_cast<char>(0xE0 | c >> 12), rest(6), rest(0)};
  }
  return {static_cast<char>(0xF0 | c >> 18), rest(12), rest(6), rest(0)};
}

// Few characters that have all the 243 bytes of UTF-8 between them.
Alphabet CharactersOfAllBytes() {
  Alphabet alphabet;
  for (char32_t c = 0; c < 0x80; ++c) alphabet.push_back(Utf8(c));
  for (char32_t i = 0; i < 0x40; ++i) {
    alphabet.push_back(Utf8((2 + i % 30) << 6 | i));
  }
  alphabet.push_back(Utf8(0x800));
  for (char32_t c = 0x1000; c < 0x10000; c += 0x1000) {
    alphabet.push_back(Utf8(c));
  }
  alphabet.push_back(Utf8(0x10000));
  for (char32_t c = 0x40000; c < 0x110000; c += 0x40000) {
    alphabet.push_back(Utf8(c));
  }
  return alphabet;
}

std::string Joined(const Alphabet& characters) {
  std::string text;
  for (const std::string& character : characters) text += character;
  return text;
}

TEST(StopStringsTest, NoByteIsTakenForAnother) {
  const Alphabet alphabet = CharactersOfAllBytes();
  const std::string stop = Joined(alphabet);
  ASSERT_EQ(std::set<char>(stop.begin(), stop.end()).size(), 243);
  const StopStrings stops = Stops({stop});
  EXPECT_EQ(StopMatcher(stops).Feed(stop).stop_idx, 0);
  for (size_t i = 0; i < alphabet.size(); ++i) {
    Alphabet other = alphabet;
    for (const std::string& character : alphabet) {
      if (character == alphabet[i]) continue;
      other[i] = character;
      ASSERT_FALSE(StopMatcher(stops).Feed(Joined(other)).stop_idx) << i;
    }
  }
}

TEST(StopStringsTest, WorkAtTheLimit) {
  const Alphabet alphabet = CharactersOfAllBytes();
  std::mt19937 random(4);
  std::vector<std::string> stops;
  for (size_t i = 0; i < StopStrings::kMaxStops; ++i) {
    stops.push_back(RandomText(alphabet, 50, random));
    while (stops.back().size() > 64 || !IsUtf8(stops.back())) {
      stops.back().pop_back();
    }
    stops.back() += std::string(64 - stops.back().size(), 'x');
  }
  for (size_t i = 0; i < stops.size(); i += testing::Cases(1, 4)) {
    const std::string& stop = stops[i];
    const std::string text =
        RandomText(alphabet, 100, random) + stop + stops[0];
    ASSERT_EQ(FeedPieces(stops, RandomPieces(text, random), false),
              NaiveCut(stops, text, false));
  }
}

}  // namespace
}  // namespace espalier
