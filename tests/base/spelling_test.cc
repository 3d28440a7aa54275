#include "base/spelling.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace espalier {
namespace {

constexpr std::array<std::string_view, 5> kNames = {
    "num_beams", "num_beam_groups", "top_k", "n", "seed"};

TEST(NearestTest, FewLettersMayBeWrong) {
  EXPECT_EQ(ClosestName("num_beams", kNames), "num_beams");
  EXPECT_EQ(ClosestName("num_bemas", kNames), "num_beams");
  EXPECT_EQ(ClosestName("topk", kNames), "top_k");
  EXPECT_EQ(ClosestName("sed", kNames), "seed");
  EXPECT_EQ(ClosestName("temperature", kNames), "");
}

TEST(NearestTest, DashesAndCapitalsMakeNoOtherName) {
  EXPECT_EQ(ClosestName("--num-beams", kNames), "num_beams");
  EXPECT_EQ(ClosestName("NUM_BEAMS", kNames), "num_beams");
  EXPECT_EQ(NormalizeName("--num_beams"), "num-beams");
  EXPECT_EQ(NormalizeName("--"), "");
}

TEST(NearestTest, PartsOfANameAreAsNearAsOneLetterThatDiffers) {
  constexpr std::array<std::string_view, 3> kStops = {"steps", "stop",
                                                      "stop_token_ids"};
  EXPECT_EQ(ClosestName("stops", kStops),
            "steps");  // as near as stop, and first
  EXPECT_EQ(ClosestName("token_ids", kStops), "stop_token_ids");
  EXPECT_EQ(ClosestName("stop", kStops), "stop");
  EXPECT_EQ(ClosestName("sto", kStops), "stop");
}

TEST(NearestTest, ALetterThatDiffersIsNearerThanAPart) {
  constexpr std::array<std::string_view, 3> kBeams = {
      "num_beam_groups", "num_beams", "stream_beams"};
  EXPECT_EQ(ClosestName("num_beam", kBeams), "num_beams");
  EXPECT_EQ(ClosestName("beam", kBeams), "num_beam_groups");  // the first
}

TEST(NearestTest, OneLetterIsMeantAsItIs) {
  EXPECT_EQ(ClosestName("n", kNames), "n");
  EXPECT_EQ(ClosestName("m", kNames), "");
}

TEST(NearestTest, NothingIsNearALongWord) {
  EXPECT_EQ(ClosestName(std::string(1 << 20, 'n'), kNames), "");
}

TEST(NearestTest, AQuestionIsAskedWhereAnythingIsNear) {
  EXPECT_EQ(DidYouMean("top-k", kNames), "; did you mean top_k?");
  EXPECT_EQ(DidYouMean("colour", kNames), "");
}

}  // namespace
}  // namespace espalier
