#include "base/wording.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace espalier {
namespace {

TEST(WordingTest, OneIsSingularAndNoneIsPlural) {
  EXPECT_EQ(Pluralize(0, "request"), "0 requests");
  EXPECT_EQ(Pluralize(1, "request"), "1 request");
  EXPECT_EQ(Pluralize(2, "request"), "2 requests");
  EXPECT_EQ(Pluralize(1, "copy", "copies"), "1 copy");
  EXPECT_EQ(Pluralize(3, "copy", "copies"), "3 copies");
}

TEST(WordingTest, ListsEndInAnd) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(JoinWithAnd(Words{}), "");
  EXPECT_EQ(JoinWithAnd(Words{"a"}), "a");
  EXPECT_EQ(JoinWithAnd(Words{"a", "b"}), "a and b");
  EXPECT_EQ(JoinWithAnd(Words{"a", "b", "c"}), "a, b and c");
}

}  // namespace
}  // namespace espalier
