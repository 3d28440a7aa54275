#include "text/pipeline/vocabulary.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace espalier {
namespace {

TEST(PieceIndexTest, AnIndexFindsWhatWasAddedLast) {
  PieceIndex index(3);
  const std::string pieces[] = {"", "long enough for words", "a"};
  for (TokenId id = 0; id < 3; ++id) index.Add(pieces[id], id);
  index.Add(pieces[2], 7);
  EXPECT_EQ(index.Find(""), 0);
  EXPECT_EQ(index.Find("long enough for words"), 1);
  EXPECT_EQ(index.Find("a"), 7);
  EXPECT_EQ(index.Find("b"), std::nullopt);
}

}  // namespace
}  // namespace espalier
