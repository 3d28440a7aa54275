#include "base/shown_bytes.h"

#include <string>

#include "base/json.h"
#include "gtest/gtest.h"

namespace espalier {
namespace {

TEST(ShownBytesTest, TextIsShownAsElsewhereAndOtherBytesAreEscaped) {
  for (const std::string text : {"", "a\"b", "élan\n", "\x1b[2J"}) {
    EXPECT_EQ(BytesInQuotes(text), ShownInQuotes(text));
  }
  EXPECT_EQ(BytesInQuotes("ab\xff\n"), R"("ab\xff\n")");
  EXPECT_EQ(BytesInQuotes(std::string("\0\xc3", 2)), R"("\x00\xc3")");
}

TEST(ShownBytesTest, ManyBytesAreCutShort) {
  const std::string most = std::string(59, 'a') + '\xff';
  EXPECT_EQ(BytesInQuotes(most), '"' + std::string(59, 'a') + R"(\xff")");
  EXPECT_EQ(BytesInQuotes(most + 'b'),
            '"' + std::string(59, 'a') + R"(\xff...)");
}

}  // namespace
}  // namespace espalier
