#include "base/rename_word.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(RenameWordTest, WordsAreRenamedAndValuesAreNot) {
  const auto renamed = [](std::string_view message) {
    return RenameWord(message, "n", "--num");
  };
  EXPECT_EQ(renamed("n must be 1, got \"n\""), "--num must be 1, got \"n\"");
  EXPECT_EQ(renamed("n(n) n.n"), "--num(--num) --num.--num");
  EXPECT_EQ(renamed(""), "");
  // Parts of names are other names.
  EXPECT_EQ(renamed("nn n_ _n n1 1n"), "nn n_ _n n1 1n");
  // A quote after a backslash ends no value.
  EXPECT_EQ(renamed(R"("a\" n" n)"), R"("a\" n" --num)");
  EXPECT_EQ(renamed(R"("\\" n)"), R"("\\" --num)");
  // A value that does not end.
  EXPECT_EQ(renamed("n \"n"), "--num \"n");
  EXPECT_EQ(renamed("\"n\\"), "\"n\\");
  EXPECT_EQ(renamed("é n"), "é --num");
}

TEST(RenameWordTest, AMessageIsTakenApart) {
  EXPECT_EQ(FirstPartLength("num_beams must"), 9);
  EXPECT_EQ(FirstPartLength(" must"), 1);
  EXPECT_EQ(FirstPartLength("\"a b\" c"), 5);
  EXPECT_EQ(FirstPartLength("\"a b"), 4);
  EXPECT_EQ(FirstPartLength("\""), 1);
  EXPECT_EQ(FirstPartLength("\"\\"), 2);
}

}  // namespace
}  // namespace espalier
