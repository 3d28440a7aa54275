#include "base/wording.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace espalier {
namespace {

TEST(WordingTest, OneIsSingularAndNoneIsPlural) {
  EXPECT_EQ(Counted(0, "request"), "0 requests");
  EXPECT_EQ(Counted(1, "request"), "1 request");
  EXPECT_EQ(Counted(2, "request"), "2 requests");
  EXPECT_EQ(Counted(1, "copy", "copies"), "1 copy");
  EXPECT_EQ(Counted(3, "copy", "copies"), "3 copies");
}

TEST(WordingTest, ListsEndInAnd) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(Listed(Words{}), "");
  EXPECT_EQ(Listed(Words{"a"}), "a");
  EXPECT_EQ(Listed(Words{"a", "b"}), "a and b");
  EXPECT_EQ(Listed(Words{"a", "b", "c"}), "a, b and c");
}

}  // namespace
}  // namespace espalier
