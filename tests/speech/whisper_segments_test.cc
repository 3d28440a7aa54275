#include "speech/whisper_segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "tests/speech/whisper_fixture.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

std::vector<TokenId> Numbers(int first, int count) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Whatever the decoder writes, also what the rule of times forbids.
TEST(CutIntoSegmentsTest, TimesAreInTheAudioAndEveryWindowEnds) {
  const WhisperTokens whisper = LoadWhisperText().tokens;
  std::mt19937 random(1);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution(low, high)(random);
  };
  for (int i = 0; i < 20000; ++i) {
    std::vector<TokenId> tokens;
    for (int left = draw(0, 8); left > 0; --left) {
      tokens.push_back(
          draw(0, 1) == 0
              ? draw(0, 50)
              : whisper.TimeOf(draw(0, 2) == 0 ? 0 : draw(0, 1500)));
    }
    const int seek = draw(0, 10000);
    const int num_frames = draw(1, 3000);
    const CutWindow cut = CutIntoSegments(tokens, whisper, seek, num_frames);
    EXPECT_GE(cut.num_frames, 1);
    for (const WindowSegment& segment : cut.segments) {
      EXPECT_GE(segment.start, seek / 100.0);
      EXPECT_LE(segment.start, (seek + num_frames) / 100.0);
      EXPECT_GE(segment.end, seek / 100.0);
      EXPECT_LE(segment.end, (seek + num_frames) / 100.0);
    }
  }
}

TEST(CutIntoSegmentsTest, GoesToTheLastTimeOfAPair) {
  const WhisperTokens whisper = LoadWhisperText().tokens;
  const auto at = [&](int step) { return whisper.TimeOf(step); };
  const CutWindow cut = CutIntoSegments(
      std::vector<TokenId>{at(0), 5, at(50), at(60), 6, 7, at(100), at(100), 8},
      whisper, 200, 1000);
  EXPECT_EQ(cut.num_frames, 200);
  ASSERT_EQ(cut.segments.size(), 2u);
  EXPECT_EQ(cut.segments[0].start, 2.0);
  EXPECT_EQ(cut.segments[0].end, 3.0);
  EXPECT_EQ(cut.segments[1].start, 2.0 + 60 * 0.02);
  EXPECT_EQ(cut.segments[1].end, 4.0);
  EXPECT_THAT(cut.segments[1].tokens, ElementsAre(at(60), 6, 7, at(100)));
}

TEST(CutIntoSegmentsTest, TakesAllOfAWindowThatEndsWithOneTime) {
  const WhisperTokens whisper = LoadWhisperText().tokens;
  const auto at = [&](int step) { return whisper.TimeOf(step); };
  const CutWindow cut = CutIntoSegments(
      std::vector<TokenId>{at(0), 5, at(50), at(50), 6, at(100)}, whisper, 0,
      1000);
  EXPECT_EQ(cut.num_frames, 1000);
  ASSERT_EQ(cut.segments.size(), 2u);
  EXPECT_EQ(cut.segments[1].end, 2.0);
}

TEST(PreviousTextTest, KeepsTheEndOfWhatWasSaid) {
  PreviousText previous(Numbers(0, 5), /*carries=*/false, {}, 8);
  EXPECT_EQ(previous.Prompt(), Numbers(0, 5));
  previous.Add(Numbers(5, 10));
  EXPECT_EQ(previous.Prompt(), Numbers(7, 8));
  previous.Reset();
  EXPECT_THAT(previous.Prompt(), IsEmpty());
  previous.Add(Numbers(40, 2));
  EXPECT_EQ(previous.Prompt(), Numbers(40, 2));
}

TEST(PreviousTextTest, HotwordsAndCarriedPromptsComeFirstAndStay) {
  PreviousText previous(Numbers(0, 3), /*carries=*/true, Numbers(50, 2), 8);
  EXPECT_THAT(previous.Prompt(), ElementsAre(50, 51, 0, 1, 2));
  previous.Add(Numbers(10, 20));
  EXPECT_THAT(previous.Prompt(), ElementsAre(50, 51, 0, 1, 2, 27, 28, 29));
  previous.Reset();
  EXPECT_THAT(previous.Prompt(), ElementsAre(50, 51, 0, 1, 2));
  PreviousText longer({}, /*carries=*/false, Numbers(0, 20), 8);
  longer.Add(Numbers(30, 2));
  EXPECT_EQ(longer.Prompt(), Numbers(0, 8));
}

TEST(ClipsOfTest, AreInTheAudio) {
  const std::vector<double> none;
  EXPECT_THAT(*ClipsOf(none, 700), ElementsAre(Pair(0, 700)));
  EXPECT_THAT(*ClipsOf(std::vector<double>{2}, 700),
              ElementsAre(Pair(200, 700)));
  EXPECT_THAT(*ClipsOf(std::vector<double>{0, 2, 2, 3.005, 6, 9}, 700),
              ElementsAre(Pair(0, 200), Pair(200, 300), Pair(600, 700)));
  EXPECT_THAT(*ClipsOf(std::vector<double>{8}, 700), IsEmpty());
  EXPECT_THAT(*ClipsOf(std::vector<double>{1, 1, 2, 1e300}, 700),
              ElementsAre(Pair(200, 700)));
}

TEST(ClipsOfTest, RefuseTimesThatGoBack) {
  for (const std::vector<double>& times :
       std::vector<std::vector<double>>{{-1}, {NAN}, {0, INFINITY}, {5, 4}}) {
    EXPECT_THAT(ClipsOf(times, 700),
                StatusIs(kInvalid, HasSubstr("clip_timestamps must be seconds "
                                             "in ascending order, got ")));
  }
}

}  // namespace
}  // namespace espalier
