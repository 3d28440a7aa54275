#include "base/nearest.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace espalier {
namespace {

constexpr std::array<std::string_view, 5> kNames = {
    "num_beams", "num_beam_groups", "top_k", "n", "seed"};

TEST(NearestTest, FewLettersMayBeWrong) {
  EXPECT_EQ(Nearest("num_beams", kNames), "num_beams");
  EXPECT_EQ(Nearest("num_bemas", kNames), "num_beams");
  EXPECT_EQ(Nearest("topk", kNames), "top_k");
  EXPECT_EQ(Nearest("sed", kNames), "seed");
  EXPECT_EQ(Nearest("temperature", kNames), "");
}

TEST(NearestTest, DashesAndCapitalsMakeNoOtherName) {
  EXPECT_EQ(Nearest("--num-beams", kNames), "num_beams");
  EXPECT_EQ(Nearest("NUM_BEAMS", kNames), "num_beams");
  EXPECT_EQ(FoldedName("--num_beams"), "num-beams");
  EXPECT_EQ(FoldedName("--"), "");
}

TEST(NearestTest, PartsOfANameAreAsNearAsOneLetterThatDiffers) {
  constexpr std::array<std::string_view, 3> kStops = {"steps", "stop",
                                                      "stop_token_ids"};
  EXPECT_EQ(Nearest("stops", kStops), "steps");  // as near as stop, and first
  EXPECT_EQ(Nearest("token_ids", kStops), "stop_token_ids");
  EXPECT_EQ(Nearest("stop", kStops), "stop");
  EXPECT_EQ(Nearest("sto", kStops), "stop");
}

TEST(NearestTest, OneLetterIsMeantAsItIs) {
  EXPECT_EQ(Nearest("n", kNames), "n");
  EXPECT_EQ(Nearest("m", kNames), "");
}

TEST(NearestTest, NothingIsNearALongWord) {
  EXPECT_EQ(Nearest(std::string(1 << 20, 'n'), kNames), "");
}

TEST(NearestTest, AQuestionIsAskedWhereAnythingIsNear) {
  EXPECT_EQ(DidYouMean("top-k", kNames), "; did you mean top_k?");
  EXPECT_EQ(DidYouMean("colour", kNames), "");
}

}  // namespace
}  // namespace espalier
