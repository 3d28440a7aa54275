#include "beam/strategy/stable_prefix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace espalier {
namespace {

using Node = TokenTree::Node;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(StablePrefixTest, GrowsWhenTheLastOneThatDiffersDropsOut) {
  TokenTree tree;
  StablePrefix prefix;
  const Node the = tree.Append(TokenTree::kRoot, 1);
  const Node a = tree.Append(TokenTree::kRoot, 2);
  const Node cat = tree.Append(the, 3);
  const Node dog = tree.Append(the, 4);
  const Node mouse = tree.Append(a, 5);
  const Node sat = tree.Append(cat, 6);
  const Node lay = tree.Append(cat, 7);
  EXPECT_THAT(prefix.Update(tree, std::vector<Node>{the, a}), IsEmpty());
  EXPECT_THAT(prefix.Update(tree, std::vector<Node>{cat, mouse}), IsEmpty());
  EXPECT_THAT(prefix.Update(tree, std::vector<Node>{cat, dog}), ElementsAre(1));
  EXPECT_THAT(prefix.Update(tree, std::vector<Node>{sat, lay}), ElementsAre(3));
  EXPECT_FALSE(prefix.is_everything());
  EXPECT_THAT(prefix.Update(tree, std::vector<Node>{lay}), ElementsAre(7));
  EXPECT_TRUE(prefix.is_everything());
}

TEST(StablePrefixTest, AFinishedSequenceHoldsItBack) {
  TokenTree tree;
  StablePrefix prefix;
  const Node cat = tree.Append(TokenTree::kRoot, 3);
  const Node end = tree.Append(cat, 0);
  const Node sat = tree.Append(cat, 6);
  const Node down = tree.Append(sat, 8);
  EXPECT_THAT(prefix.Update(tree, std::vector<Node>{sat, end}), ElementsAre(3));
  EXPECT_THAT(prefix.Update(tree, std::vector<Node>{down, end}), IsEmpty());
  EXPECT_THAT(prefix.Update(tree, std::vector<Node>{end}), ElementsAre(0));
  EXPECT_TRUE(prefix.is_everything());
}

TEST(StablePrefixTest, ASequenceThatGoesOnAfterOneThatEndsAgreesUpToThere) {
  TokenTree tree;
  StablePrefix prefix;
  const Node cat = tree.Append(TokenTree::kRoot, 3);
  const Node sat = tree.Append(cat, 6);
  EXPECT_THAT(prefix.Update(tree, std::vector<Node>{cat}), ElementsAre(3));
  EXPECT_THAT(prefix.Update(tree, std::vector<Node>{cat, sat}), IsEmpty());
  EXPECT_FALSE(prefix.is_everything());
}

TEST(StablePrefixTest, NothingIsNoNews) {
  TokenTree tree;
  StablePrefix prefix;
  EXPECT_THAT(prefix.Update(tree, {}), IsEmpty());
  EXPECT_TRUE(prefix.is_everything());
}

// A search may be watched from a late step on, or its beams may share a prefix
// as long as a context.
TEST(StablePrefixTest, APathOfAnyLengthMayBeNew) {
  constexpr int kNumTokens = 1000000;
  TokenTree tree;
  Node node = TokenTree::kRoot;
  for (int i = 0; i < kNumTokens; ++i) node = tree.Append(node, i % 7);
  StablePrefix prefix;
  EXPECT_EQ(prefix.Update(tree, std::vector<Node>{node}), tree.Path(node));
  EXPECT_TRUE(prefix.is_everything());
}

std::vector<TokenId> CommonPrefix(const TokenTree& tree,
                                  const std::vector<Node>& nodes) {
  std::vector<TokenId> common = tree.Path(nodes[0]);
  for (const Node node : nodes) {
    const std::vector<TokenId> path = tree.Path(node);
    common.erase(std::ranges::mismatch(common, path).in1, common.end());
  }
  return common;
}

// Searches without a model: some sequences go on, twice or as equals by nodes
// of their own, some stay as they are, some drop out.
std::vector<Node> RandomStep(const std::vector<Node>& nodes,
                             std::mt19937& random, TokenTree* tree) {
  std::vector<Node> next;
  const int num_tokens = 1 + random() % 3;
  for (const Node node : nodes) {
    const int way = random() % 8;
    if (way == 0) next.push_back(node);
    for (int i = way < 3 ? 0 : way < 7 ? 1 : 2; i > 0; --i) {
      next.push_back(tree->Append(node, random() % num_tokens));
    }
  }
  if (next.empty()) next.push_back(nodes[random() % nodes.size()]);
  if (next.size() > 20) next.resize(20);
  std::ranges::shuffle(next, random);
  return next;
}

TEST(StablePrefixTest, IsTheLongestCommonPrefixAfterEveryStep) {
  std::mt19937 random(7);
  int num_grown = 0;
  for (int search = 0; search < 2000; ++search) {
    TokenTree tree;
    StablePrefix prefix;
    std::vector<Node> nodes(1 + random() % 3, TokenTree::kRoot);
    std::vector<TokenId> agreed;
    for (int step = 0; step < 20; ++step) {
      nodes = RandomStep(nodes, random, &tree);
      const std::vector<TokenId> grown = prefix.Update(tree, nodes);
      agreed.insert(agreed.end(), grown.begin(), grown.end());
      num_grown += !grown.empty();
      ASSERT_EQ(agreed, CommonPrefix(tree, nodes));
      const bool everything = std::ranges::all_of(
          nodes, [&](Node node) { return tree.Path(node) == agreed; });
      ASSERT_EQ(prefix.is_everything(), everything);
    }
  }
  EXPECT_GT(num_grown, 5000);
}

}  // namespace
}  // namespace espalier
