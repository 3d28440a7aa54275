#include "exec_request/draft_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "exec_request/surviving_candidates.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// As the header draws it, with a beam more.
const DraftTree& HeadersTree() {
  static const std::vector<int> ranks = {0, 0, 1};
  static const std::vector<std::vector<TokenId>> drafts = {{5, 7}, {5, 8}, {}};
  static const auto* const tree = new DraftTree(2, ranks, drafts);
  return *tree;
}

TEST(DraftTreeTest, RowsThatBeginAlikeShareNodes) {
  const DraftTree& tree = HeadersTree();
  EXPECT_EQ(tree.num_nodes(), 5);
  EXPECT_EQ(tree.max_depth(), 2);
  EXPECT_THAT(tree.Roots(), ElementsAre(0, 1));
  const int five = tree.Child(0, 5);
  const int seven = tree.Child(five, 7);
  const int eight = tree.Child(five, 8);
  EXPECT_EQ(tree.Child(0, 7), DraftTree::kNone);
  EXPECT_EQ(tree.Child(1, 5), DraftTree::kNone);
  const auto place = [&](int node) {
    return std::vector<int>{tree.row(node), tree.depth(node),
                            tree.logits_row(node)};
  };
  EXPECT_THAT(place(0), ElementsAre(0, 0, 0));
  EXPECT_THAT(place(five), ElementsAre(0, 1, 1));
  EXPECT_THAT(place(seven), ElementsAre(0, 2, 2));
  EXPECT_THAT(place(eight), ElementsAre(1, 2, 5));
  EXPECT_THAT(place(1), ElementsAre(2, 0, 6));
}

TEST(DraftTreeTest, BeamsAreFollowedWhileAllAreOnPaths) {
  const DraftTree& tree = HeadersTree();
  const std::vector<Candidate> candidates = {
      {0, 5, -1}, {1, 2, -2}, {0, 5, -3}};
  const int five = tree.Child(0, 5);
  EXPECT_THAT(tree.Follow(tree.Roots(), candidates, std::vector<int>{0}),
              ElementsAre(five));
  EXPECT_THAT(tree.Follow(tree.Roots(), candidates, std::vector<int>{0, 1}),
              IsEmpty());
  EXPECT_THAT(tree.Follow(tree.Roots(), candidates, std::vector<int>{}),
              IsEmpty());
}

TEST(SurvivingCandidatesTest, TheFirstThatDoNotEndLive) {
  const std::vector<Candidate> candidates = {
      {0, 5, -1}, {1, 9, -2}, {0, -1, -3}, {1, 2, -4}, {1, 3, -5}};
  const std::vector<TokenId> eos = {9};
  EXPECT_THAT(SurvivingCandidates(candidates, 2, eos), ElementsAre(0, 3));
  EXPECT_THAT(SurvivingCandidates(candidates, 9, eos), ElementsAre(0, 3, 4));
  EXPECT_THAT(SurvivingCandidates(candidates, 2, {}), ElementsAre(0, 1));
}

}  // namespace
}  // namespace espalier
