#include "constrain/item_catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "constrain/rank_bits.h"
#include "tests/constrain/token_lists.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using Node = ItemCatalogue::Node;
constexpr Node kRoot = ItemCatalogue::kRoot;
constexpr Node kNone = ItemCatalogue::kNone;

TEST(RankBitsTest, RanksAndSelectsAsByCounting) {
  std::mt19937 random(1);
  for (const int64_t size : {1, 63, 64, 65, 511, 512, 513, 5000, 70000}) {
    for (const uint32_t one_of : {1, 2, 7, 900}) {
      RankBits bits(size);
      std::vector<int64_t> places;
      std::vector<int64_t> ranks = {0};
      for (int64_t i = 0; i < size; ++i) {
        const bool is_set = random() % one_of == 0;
        if (is_set) bits.Set(i);
        if (is_set) places.push_back(i);
        ranks.push_back(std::ssize(places));
      }
      bits.Finish();
      ASSERT_EQ(bits.num_ones(), std::ssize(places));
      for (int64_t i = 0; i <= size; ++i) ASSERT_EQ(bits.Rank(i), ranks[i]);
      for (int64_t i = 0; i < bits.num_ones(); ++i) {
        ASSERT_EQ(bits.Select(i), places[i]) << i << " of " << size;
        ASSERT_TRUE(bits[places[i]]);
        ASSERT_EQ(bits.view().SelectNext(places[i], i), bits.Select(i + 1));
      }
      EXPECT_EQ(bits.Select(bits.num_ones()), size);
    }
  }
}

TEST(ItemCatalogueTest, ItemsThatEndBySomeTokensAreCountedByRange) {
  std::mt19937 random(7);
  const Lists lists = RandomLists(random, 300, 5, 6);
  const ItemCatalogue items(ListsOf(lists));
  const std::vector<std::vector<TokenId>> ends = {{2}, {0, 5}, {1, 3, 9}, {7}};
  for (int round = 0; round < 3; ++round) {
    for (const std::vector<TokenId>& tokens : ends) {
      for (int length = 0; length <= items.max_length() + 1; ++length) {
        // A node's own count, by its path.
        std::vector<int64_t> counts(items.num_nodes(), 0);
        for (const std::vector<TokenId>& list : lists) {
          if (list.empty() || std::ssize(list) != length) continue;
          counts[items.Find(list)] =
              std::ranges::binary_search(tokens, list.back()) ? 1 : 0;
        }
        const auto ended = items.EndedBy(tokens, length);
        const bool has_any = std::ranges::count(counts, 1) > 0;
        ASSERT_EQ(ended != nullptr, has_any);
        if (!has_any) continue;
        // One of the latest is not made again.
        EXPECT_EQ(items.EndedBy(tokens, length), ended);
        for (int i = 0; i < 200; ++i) {
          const auto begin = static_cast<Node>(random() % items.num_nodes());
          const auto end = static_cast<Node>(
              begin + random() % (items.num_nodes() - begin + 1));
          ASSERT_EQ(
              ended->NumEnds({begin, end}),
              std::count(counts.begin() + begin, counts.begin() + end, 1));
        }
      }
    }
  }
  EXPECT_EQ(items.EndedBy({}, 2), nullptr);
}

TEST(ItemCatalogueTest, TheExampleOfItsHeader) {
  const ItemCatalogue items(ListsOf({{5, 7}, {5, 8, 2}, {9}}));
  EXPECT_EQ(items.num_nodes(), 6);
  EXPECT_EQ(items.num_items(), 3);
  EXPECT_EQ(items.max_length(), 3);
  EXPECT_EQ(items.min_leaf_length(), 1);
  EXPECT_THAT(items.Next(kRoot), ElementsAre(5, 9));
  EXPECT_EQ(items.Child(kRoot, 5), 1);
  EXPECT_EQ(items.Child(kRoot, 9), 2);
  EXPECT_EQ(items.NumLeaves(items.Children(kRoot)), 1);
  EXPECT_THAT(items.Next(1), ElementsAre(7, 8));
  EXPECT_TRUE(items.is_end(2));
  EXPECT_TRUE(items.is_end(3));
  EXPECT_THAT(items.Next(3), IsEmpty());
  EXPECT_FALSE(items.is_end(4));
  EXPECT_THAT(items.Next(4), ElementsAre(2));
  EXPECT_TRUE(items.is_end(5));
  EXPECT_EQ(items.LevelOf(0), 0);
  EXPECT_EQ(items.LevelOf(2), 1);
  EXPECT_EQ(items.LevelOf(3), 2);
  EXPECT_EQ(items.LevelOf(5), 3);
  EXPECT_TRUE(items.has_before_last(5));
  EXPECT_TRUE(items.has_before_last(8));
  for (const TokenId token : {0, 2, 7, 9, 10, 1000}) {
    EXPECT_FALSE(items.has_before_last(token));
  }
}

TEST(ItemCatalogueTest, ANodeHasItsPathAndATokenAnItem) {
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    const Lists lists = RandomLists(random, 40, 5, 6);
    const ItemCatalogue items(ListsOf(lists));
    for (ItemCatalogue::Node node = 0; node < items.num_nodes(); ++node) {
      EXPECT_EQ(items.Find(items.PathTo(node)), node);
    }
    for (TokenId token = 0; token < 6; ++token) {
      if (!items.has_before_last(token)) continue;
      const std::vector<TokenId> item = items.ItemWithBeforeLast(token);
      EXPECT_TRUE(std::ranges::count(lists, item) > 0);
      EXPECT_NE(std::find(item.begin(), item.end() - 1, token), item.end() - 1);
    }
  }
}

TEST(ItemCatalogueTest, ATokenThatMayNotFollowLeadsNowhere) {
  const ItemCatalogue items(ListsOf({{5, 7}, {9}}));
  EXPECT_EQ(items.Child(kRoot, 7), kNone);
  EXPECT_EQ(items.Child(kRoot, 10), kNone);
  EXPECT_EQ(items.Find({{9, 9}}), kNone);
}

TEST(ItemCatalogueTest, NoItemsAreARootAlone) {
  for (const auto& lists : {Lists{}, Lists{{}, {}}}) {
    const ItemCatalogue items(ListsOf(lists));
    EXPECT_EQ(items.num_nodes(), 1);
    EXPECT_EQ(items.num_items(), 0);
    EXPECT_EQ(items.max_length(), 0);
    EXPECT_THAT(items.Next(kRoot), IsEmpty());
    EXPECT_EQ(items.MaxChildren(9), 0);
  }
}

// Sums the `count` largest.
int64_t SumOfLargest(std::vector<int64_t> numbers, int64_t count) {
  std::ranges::sort(numbers, std::greater<>());
  int64_t sum = 0;
  for (int64_t i = 0; i < std::min(count, std::ssize(numbers)); ++i) {
    sum += numbers[i];
  }
  return sum;
}

// Checks a catalogue against sets of prefixes.
void ExpectItems(const Lists& lists) {
  std::map<std::vector<TokenId>, std::set<TokenId>> next;
  std::set<std::vector<TokenId>> ends;
  for (const std::vector<TokenId>& list : lists) {
    for (size_t n = 0; n < list.size(); ++n) {
      next[{list.begin(), list.begin() + n}].insert(list[n]);
    }
    if (list.empty()) continue;
    ends.insert(list);
    next.try_emplace(list);
  }
  const ItemCatalogue items(ListsOf(lists));
  ASSERT_EQ(items.num_nodes(), next.size());
  ASSERT_EQ(items.num_items(), ends.size());
  std::map<size_t, std::vector<int64_t>> num_children;  // by length
  std::map<size_t, std::vector<int64_t>> num_ends;
  std::set<size_t> only_leaves;
  for (const auto& [prefix, tokens] : next) only_leaves.insert(prefix.size());
  for (const auto& [prefix, tokens] : next) {
    if (!tokens.empty()) only_leaves.erase(prefix.size());
  }
  for (const auto& [prefix, tokens] : next) {
    const Node node = items.Find(prefix);
    ASSERT_NE(node, kNone);
    ASSERT_EQ(items.LevelOf(node), prefix.size());
    ASSERT_THAT(items.Next(node), ElementsAreArray(tokens));
    ASSERT_EQ(items.has_children(node), !tokens.empty());
    ASSERT_EQ(items.is_end(node), ends.contains(prefix));
    int64_t num_leaves = 0;
    int64_t num_ending = 0;
    for (const TokenId token : tokens) {
      std::vector<TokenId> child = prefix;
      child.push_back(token);
      num_leaves += next.at(child).empty() ? 1 : 0;
      num_ending += ends.contains(child) ? 1 : 0;
    }
    ASSERT_EQ(items.NumLeaves(items.Children(node)), num_leaves);
    num_children[prefix.size()].push_back(std::ssize(tokens));
    if (!only_leaves.contains(prefix.size() + 1)) {
      num_ends[prefix.size()].push_back(num_ending);
    }
    // Items below, by their number of further tokens.
    std::map<size_t, int64_t> below;
    for (auto end = ends.lower_bound(prefix); end != ends.end(); ++end) {
      if (!std::equal(prefix.begin(), prefix.end(), end->begin(),
                      end->begin() + std::min(end->size(), prefix.size()))) {
        break;
      }
      ++below[end->size() - prefix.size()];
    }
    ItemCatalogue::Range range = {node, node + 1};
    for (size_t n = 0; !range.empty(); ++n, range = items.Below(range)) {
      ASSERT_EQ(items.NumEnds(range), below[n]);
      below.erase(n);
    }
    ASSERT_THAT(below, IsEmpty());
  }
  for (const int64_t count : {1, 2, 5, 1000000}) {
    int64_t most_children = 0;
    int64_t most_ends = 0;
    for (const auto& [length, numbers] : num_children) {
      most_children = std::max(most_children, SumOfLargest(numbers, count));
    }
    for (const auto& [length, numbers] : num_ends) {
      most_ends = std::max(most_ends, SumOfLargest(numbers, count));
    }
    EXPECT_EQ(items.MaxChildren(count), most_children);
    EXPECT_EQ(items.MaxEnds(count), most_ends);
  }
}

TEST(ItemCatalogueTest, HasJustThePrefixesOfItsItems) {
  std::mt19937 random(1);
  // Short lists fit into keys, long ones do not, and many are sorted by digits.
  for (const auto& [rounds, count, length, num_tokens] :
       {std::tuple(60, 60, 5, 4),
        {30, 60, 5, 200'000},
        {20, 80, 60, 2},
        {1, 2000, 4, 3000},
        {1, 2500, 9, 30},
        {1, 1500, 40, 3'000'000}}) {
    for (int round = 0; round < rounds; ++round) {
      ExpectItems(RandomLists(random, count, length, num_tokens));
    }
  }
}

TEST(ItemCatalogueTest, NodesWithManyChildrenAreCounted) {
  Lists lists;
  for (TokenId token = 0; token < 9000; ++token) lists.push_back({token});
  for (TokenId token = 0; token < 5000; ++token) lists.push_back({7, token});
  for (TokenId token = 0; token < 4096; ++token) lists.push_back({8, token});
  ExpectItems(lists);
}

}  // namespace
}  // namespace espalier
