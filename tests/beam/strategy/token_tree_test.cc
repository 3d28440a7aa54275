#include "beam/strategy/token_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(TokenTreeTest, APathIsTheTokensFromTheRoot) {
  TokenTree tree;
  const TokenTree::Node a = tree.Append(TokenTree::kRoot, 7);
  const TokenTree::Node b = tree.Append(a, 8);
  const TokenTree::Node c = tree.Append(b, 7);
  EXPECT_THAT(tree.Path(c), ElementsAre(7, 8, 7));
  EXPECT_THAT(tree.Path(a), ElementsAre(7));
  EXPECT_THAT(tree.Path(TokenTree::kRoot), IsEmpty());
  EXPECT_EQ(tree.parent(c), b);
  EXPECT_EQ(tree.parent(a), TokenTree::kRoot);
  EXPECT_EQ(tree.token(b), 8);
  EXPECT_EQ(tree.num_nodes(), 3);
}

TEST(TokenTreeTest, AForkLeavesItsSiblingsAlone) {
  TokenTree tree;
  const TokenTree::Node trunk = tree.Append(TokenTree::kRoot, 1);
  const TokenTree::Node left = tree.Append(trunk, 2);
  const TokenTree::Node right = tree.Append(trunk, 3);
  const TokenTree::Node twin = tree.Append(trunk, 2);
  EXPECT_THAT(tree.Path(left), ElementsAre(1, 2));
  EXPECT_THAT(tree.Path(right), ElementsAre(1, 3));
  EXPECT_THAT(tree.Path(twin), ElementsAre(1, 2));
  EXPECT_NE(left, twin);
}

TEST(TokenTreeTest, AppendPathKeepsWhatIsThere) {
  TokenTree tree;
  const TokenTree::Node node = tree.Append(tree.Append(-1, 5), 6);
  std::vector<TokenId> tokens = {1, 2};
  tree.AppendPath(node, &tokens);
  EXPECT_THAT(tokens, ElementsAre(1, 2, 5, 6));
}

TEST(TokenTreeDeathTest, AParentExists) {
  TokenTree tree;
  EXPECT_DEATH(tree.Append(0, 1), "no node 0");
}

}  // namespace
}  // namespace espalier
