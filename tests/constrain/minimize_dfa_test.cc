#include "constrain/minimize_dfa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace espalier {
namespace {

// A deterministic automaton whose states all lead to an accepting one, as
// MinimizeDfa takes it.
struct Dfa {
  DfaEdges edges;
  std::vector<int32_t> first = {};
  std::vector<int32_t> distances = {};
  std::vector<int32_t> order = {};
};

Dfa WithDistances(DfaEdges edges) {
  Dfa dfa = {.edges = std::move(edges)};
  const int num_states = dfa.edges.num_states();
  dfa.first.assign(num_states + 1, 0);
  for (const auto& edge : dfa.edges.edges) ++dfa.first[edge.from + 1];
  for (int s = 0; s < num_states; ++s) dfa.first[s + 1] += dfa.first[s];
  dfa.distances.assign(num_states, num_states);
  for (int s = 0; s < num_states; ++s) {
    if (dfa.edges.accepts[s] != 0) dfa.distances[s] = 0;
  }
  for (int round = 0; round < num_states; ++round) {
    for (const auto& edge : dfa.edges.edges) {
      dfa.distances[edge.from] =
          std::min(dfa.distances[edge.from], dfa.distances[edge.to] + 1);
    }
  }
  for (int s = 0; s < num_states; ++s) dfa.order.push_back(s);
  std::ranges::stable_sort(dfa.order, {},
                           [&](int32_t s) { return dfa.distances[s]; });
  return dfa;
}

// Random states, each with an edge to the one before it, or accepting.
DfaEdges RandomEdges(int num_states, int num_classes, std::mt19937* random) {
  DfaEdges dfa = {.num_classes = num_classes};
  const uint32_t chance = 1 + (*random)() % 6;
  const uint32_t end_chance = 1 + (*random)() % 20;
  for (int s = 0; s < num_states; ++s) {
    dfa.accepts.push_back(s == 0 || (*random)() % end_chance == 0 ? 1 : 0);
    for (int c = 0; c < num_classes; ++c) {
      if (c == 0 && s > 0) {
        dfa.Add(s, c, c, s - 1);
      } else if ((*random)() % chance == 0) {
        dfa.Add(s, c, c, static_cast<int32_t>((*random)() % num_states));
      }
    }
  }
  return dfa;
}

// Moore's algorithm: rounds in which blocks are divided by what their states'
// edges lead to.
std::vector<int32_t> MooreBlocks(const DfaEdges& dfa) {
  std::vector<int32_t> blocks(dfa.accepts.begin(), dfa.accepts.end());
  while (true) {
    std::vector<std::vector<int32_t>> rows(dfa.num_states());
    for (int s = 0; s < dfa.num_states(); ++s) {
      rows[s].assign(dfa.num_classes + 1, -1);
      rows[s].back() = blocks[s];
    }
    for (const auto& edge : dfa.edges) {
      for (int c = edge.first; c <= edge.last; ++c) {
        rows[edge.from][c] = blocks[edge.to];
      }
    }
    std::map<std::vector<int32_t>, int32_t> numbers;
    std::vector<int32_t> next;
    for (const auto& row : rows) {
      next.push_back(
          numbers.try_emplace(row, static_cast<int32_t>(numbers.size()))
              .first->second);
    }
    if (next == blocks) return blocks;
    blocks = std::move(next);
  }
}

void ExpectBlocksOfMoore(const Dfa& dfa, const HashKey& key) {
  const DfaBlocks blocks =
      MinimizeDfa(dfa.edges, dfa.first, dfa.distances, dfa.order, key);
  const std::vector<int32_t> expected = MooreBlocks(dfa.edges);
  std::map<int32_t, int32_t> numbers;  // expected by found
  std::map<int32_t, int32_t> inverse;
  for (int s = 0; s < dfa.edges.num_states(); ++s) {
    numbers.try_emplace(blocks.block_of[s], expected[s]);
    inverse.try_emplace(expected[s], blocks.block_of[s]);
    ASSERT_EQ(numbers[blocks.block_of[s]], expected[s]) << "state " << s;
    ASSERT_EQ(inverse[expected[s]], blocks.block_of[s]) << "state " << s;
  }
  ASSERT_EQ(blocks.members.size(), inverse.size());
  for (size_t b = 0; b < blocks.members.size(); ++b) {
    ASSERT_EQ(blocks.block_of[blocks.members[b]], b);
  }
}

TEST(MinimizeDfaTest, BlocksAreThoseOfMoore) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const int num_states = 1 + static_cast<int>(random() % 60);
    const int num_classes = 1 + static_cast<int>(random() % 3);
    const Dfa dfa =
        WithDistances(RandomEdges(num_states, num_classes, &random));
    ASSERT_NO_FATAL_FAILURE(ExpectBlocksOfMoore(dfa, kHashKey)) << i;
  }
}

// States 1 and 2 lead by classes 2 and 3 to states 4, or 5 and 3, which are in
// blocks of these numbers before blocks are divided.
TEST(MinimizeDfaTest, ClassesAndBlocksOfOneNumberHaveDifferentHashes) {
  DfaEdges edges = {.accepts = {1, 0, 0, 0, 0, 0}, .num_classes = 4};
  edges.Add(1, 0, 0, 0);
  edges.Add(1, 2, 3, 4);
  edges.Add(2, 0, 0, 0);
  edges.Add(2, 2, 2, 5);
  edges.Add(2, 3, 3, 3);
  edges.Add(3, 0, 0, 1);
  edges.Add(4, 0, 0, 3);
  edges.Add(5, 0, 0, 4);
  ExpectBlocksOfMoore(WithDistances(std::move(edges)), kHashKey);
}

// All states are accepting, and only a state far away tells them apart.
TEST(MinimizeDfaTest, AChainOfAcceptingStatesIsMinimal) {
  DfaEdges chain = {.num_classes = 2};
  for (int s = 0; s < 500; ++s) {
    chain.accepts.push_back(1);
    if (s > 0) chain.Add(s, 0, 0, s - 1);
    if (s % 2 == 1) chain.Add(s, 1, 1, s % 250);
  }
  ExpectBlocksOfMoore(WithDistances(std::move(chain)), kHashKey);
}

// A hash that is always 0 tells nothing apart.
TEST(MinimizeDfaTest, CollidingSignaturesChangeNothing) {
  std::mt19937 random(2);
  for (int i = 0; i < 100; ++i) {
    const Dfa dfa = WithDistances(RandomEdges(20, 2, &random));
    ASSERT_NO_FATAL_FAILURE(ExpectBlocksOfMoore(dfa, {0, 0})) << i;
    // One that adds up numbers has some equal sums.
    ASSERT_NO_FATAL_FAILURE(ExpectBlocksOfMoore(dfa, {0, 1})) << i;
  }
}

}  // namespace
}  // namespace espalier
