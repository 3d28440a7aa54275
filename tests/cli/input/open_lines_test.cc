#include "examples/cli/input/open_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier::cli {
namespace {

using ::testing::Optional;

TEST(OpenLinesTest, AnswersAreTakenInTheOrderOfTheLines) {
  OpenLines lines;
  const size_t first = lines.Open(3), second = lines.Open(4);
  EXPECT_EQ(lines.num_bytes(), 7u);
  lines.Answer(second, "second");
  EXPECT_EQ(lines.num_bytes(), 9u);
  EXPECT_EQ(lines.Take(), std::nullopt);
  lines.Answer(first, "");
  EXPECT_THAT(lines.Take(), Optional(std::string()));
  const size_t third = lines.Open(5);
  EXPECT_THAT(lines.Take(), Optional(std::string("second")));
  EXPECT_EQ(lines.Take(), std::nullopt);
  lines.Answer(third, "third");
  EXPECT_THAT(lines.Take(), Optional(std::string("third")));
  EXPECT_TRUE(lines.empty());
  EXPECT_EQ(lines.num_bytes(), 0u);
}

TEST(OpenLinesTest, LinesAreBounded) {
  OpenLines lines;
  for (size_t i = 1; i < OpenLines::kMaxLines; ++i) lines.Open(1);
  EXPECT_FALSE(lines.is_full());
  lines.Open(1);
  EXPECT_TRUE(lines.is_full());
}

// After a slow one they pile up, however small their requests were.
TEST(OpenLinesTest, FinishedAnswersAreBounded) {
  OpenLines lines;
  const size_t slow = lines.Open(10);
  const std::string answer(OpenLines::kMaxBytes / 4, 'x');
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(lines.is_full());
    lines.Answer(lines.Open(10), answer);
  }
  EXPECT_TRUE(lines.is_full());
  lines.Answer(slow, "");
  EXPECT_TRUE(lines.Take());
  EXPECT_TRUE(lines.Take());
  EXPECT_FALSE(lines.is_full());
}

// A line beyond all bounds is read, or the input would never end.
TEST(OpenLinesTest, OneLineIsAlwaysRead) {
  OpenLines lines;
  EXPECT_FALSE(lines.is_full());
  lines.Answer(lines.Open(2 * OpenLines::kMaxBytes), "");
  EXPECT_TRUE(lines.Take());
  EXPECT_FALSE(lines.is_full());
}

}  // namespace
}  // namespace espalier::cli
