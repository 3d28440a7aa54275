#include "base/cow_vector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

static_assert(std::forward_iterator<CowVector<int>::const_iterator>);

TEST(CowVectorTest, ItsElementsAreThoseThatWereAddedInTheirOrder) {
  CowVector<std::string> values;
  EXPECT_THAT(values, IsEmpty());
  values.push_back("a");
  values.push_back(std::make_shared<std::string>("b"));
  values.emplace_back(2, 'c').push_back('d');
  EXPECT_THAT(values, ElementsAre("a", "b", "ccd"));
  EXPECT_EQ(values.size(), 3u);
  EXPECT_EQ(values[1], "b");
  EXPECT_EQ(values.at(2), values.back());
  EXPECT_EQ(std::ranges::find(values, "b")->size(), 1u);
  values.EraseIf([](const std::string& value) { return value == "b"; });
  EXPECT_THAT(values, ElementsAre("a", "ccd"));
  values = {"e"};
  EXPECT_THAT(values, ElementsAre("e"));
}

TEST(CowVectorTest, ACopySharesElementsUntilOneIsEdited) {
  CowVector<int> values = {1, 2};
  const CowVector<int> same = values;
  EXPECT_EQ(&values[0], &same[0]);
  values.Edit(0) = 3;
  EXPECT_THAT(values, ElementsAre(3, 2));
  EXPECT_THAT(same, ElementsAre(1, 2));
  EXPECT_EQ(&values[1], &same[1]);
}

TEST(CowVectorTest, AnElementOfItsOwnIsEditedWhereItIs) {
  CowVector<int> values = {1};
  const int* const place = &values[0];
  values.Edit(0) = 2;
  EXPECT_EQ(&values[0], place);
}

TEST(CowVectorTest, WhoeverSharesAnElementEditsACopy) {
  auto kept = std::make_shared<int>(1);
  {
    CowVector<int> values;
    values.push_back(kept);
    EXPECT_EQ(&values[0], kept.get());
    EditShared(&kept) = 2;
    EXPECT_THAT(values, ElementsAre(1));
    values.push_back(kept);
    values.Edit(1) = 3;
    EXPECT_EQ(*kept, 2);
  }
  const int* const place = kept.get();
  EditShared(&kept) = 4;
  EXPECT_EQ(kept.get(), place);
  EXPECT_EQ(*kept, 4);
}

}  // namespace
}  // namespace espalier
