#include "beam/strategy/allowed_sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Sequences = std::vector<std::vector<int64_t>>;

GenerationParams Allowing(Sequences sequences) {
  GenerationParams params;
  params.max_new_tokens = 10;
  params.eos_token_id = {2};
  params.allowed_sequences = std::move(sequences);
  return params;
}

// Returns the node of `tokens`.
SequenceTrie::Node After(const SequenceTrie& trie,
                         const std::vector<int64_t>& tokens) {
  SequenceTrie::Node node = SequenceTrie::kRoot;
  for (const int64_t token : tokens) {
    if (node == SequenceTrie::kNone) return node;
    node = trie.Child(node, static_cast<TokenId>(token));
  }
  return node;
}

TEST(AllowedSequencesTest, TheExampleOfItsHeader) {
  const auto trie = AllowedSequencesOf(Allowing({{5, 7}, {5, 8, 2}, {9}}));
  EXPECT_EQ(trie->num_nodes(), 6);
  EXPECT_THAT(trie->Next(SequenceTrie::kRoot), ElementsAre(5, 9));
  EXPECT_EQ(trie->Child(SequenceTrie::kRoot, 5), 1);
  EXPECT_EQ(trie->Child(SequenceTrie::kRoot, 9), 2);
  EXPECT_EQ(trie->num_leaf_children(SequenceTrie::kRoot), 1);
  EXPECT_THAT(trie->Next(1), ElementsAre(7, 8));
  EXPECT_TRUE(trie->is_end(2));
  EXPECT_TRUE(trie->is_end(3));
  EXPECT_THAT(trie->Next(3), IsEmpty());
  EXPECT_FALSE(trie->is_end(4));
  EXPECT_THAT(trie->Next(4), ElementsAre(2));
  EXPECT_TRUE(trie->is_end(5));
}

TEST(AllowedSequencesTest, ATokenThatMayNotFollowLeadsNowhere) {
  const auto trie = AllowedSequencesOf(Allowing({{5, 7}, {9}}));
  EXPECT_EQ(trie->Child(SequenceTrie::kRoot, 7), SequenceTrie::kNone);
  EXPECT_EQ(trie->Child(SequenceTrie::kRoot, 10), SequenceTrie::kNone);
  EXPECT_EQ(trie->Child(trie->Child(SequenceTrie::kRoot, 9), 9),
            SequenceTrie::kNone);
}

TEST(AllowedSequencesTest, APrefixOfAnotherIsAnEndThatGoesOn) {
  const auto trie = AllowedSequencesOf(Allowing({{5, 7}, {5}, {5, 7}}));
  const SequenceTrie::Node five = After(*trie, {5});
  EXPECT_TRUE(trie->is_end(five));
  EXPECT_EQ(trie->num_children(five), 1);
  EXPECT_EQ(trie->num_leaf_children(SequenceTrie::kRoot), 0);
  EXPECT_EQ(trie->num_leaf_children(five), 1);
  EXPECT_EQ(trie->num_nodes(), 3);  // equal ones are one
}

TEST(AllowedSequencesTest, ThereIsNoneWhereEverythingIsAllowed) {
  EXPECT_EQ(AllowedSequencesOf(GenerationParams()), nullptr);
}

TEST(AllowedSequencesTest, WhatMinNewTokensRulesOutIsLeftOut) {
  GenerationParams params =
      Allowing({{5}, {6, 2}, {5, 7}, {6, 7, 2}, {8, 9, 4}, {8, 9, 3, 2}});
  params.min_new_tokens = 2;
  params.stop_token_ids = {4};
  const auto trie = AllowedSequencesOf(params);
  EXPECT_FALSE(trie->is_end(After(*trie, {5})));
  EXPECT_EQ(After(*trie, {6, 2}), SequenceTrie::kNone);
  EXPECT_TRUE(trie->is_end(After(*trie, {5, 7})));
  EXPECT_TRUE(trie->is_end(After(*trie, {6, 7, 2})));
  EXPECT_TRUE(trie->is_end(After(*trie, {8, 9, 4})));
  EXPECT_TRUE(trie->is_end(After(*trie, {8, 9, 3, 2})));
}

// Against sets of prefixes.
TEST(AllowedSequencesTest, HasJustThePrefixesOfItsSequences) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    Sequences sequences;
    std::map<std::vector<int64_t>, std::set<TokenId>> next;
    std::set<std::vector<int64_t>> ends;
    const int count = 1 + static_cast<int>(random() % 60);
    for (int i = 0; i < count; ++i) {
      std::vector<int64_t> sequence(1 + random() % 5);
      for (int64_t& token : sequence) token = random() % 4;
      for (size_t n = 0; n < sequence.size(); ++n) {
        const std::vector<int64_t> prefix(sequence.begin(),
                                          sequence.begin() + n);
        next[prefix].insert(static_cast<TokenId>(sequence[n]));
      }
      ends.insert(sequence);
      next.try_emplace(sequence);
      sequences.push_back(std::move(sequence));
    }
    GenerationParams params = Allowing(sequences);
    params.ignore_eos = true;
    const auto trie = AllowedSequencesOf(params);
    ASSERT_EQ(trie->num_nodes(), next.size());
    for (const auto& [prefix, tokens] : next) {
      const SequenceTrie::Node node = After(*trie, prefix);
      ASSERT_NE(node, SequenceTrie::kNone);
      EXPECT_THAT(trie->Next(node), ::testing::ElementsAreArray(tokens));
      EXPECT_EQ(trie->is_end(node), ends.contains(prefix));
      int num_leaf_children = 0;
      for (const TokenId token : tokens) {
        std::vector<int64_t> child = prefix;
        child.push_back(token);
        if (next.at(child).empty()) ++num_leaf_children;
      }
      EXPECT_EQ(trie->num_leaf_children(node), num_leaf_children);
    }
  }
}

TEST(SequenceTrieTest, RequestsOfOneListShareATrie) {
  const GenerationParams call = Allowing({{5, 7}, {5, 8, 2}, {9}});
  GenerationParams later = call;
  later.max_new_tokens = 9;
  EXPECT_EQ(AllowedSequencesOf(call), AllowedSequencesOf(later));
  // Others may be too short for another one.
  later.min_new_tokens = 2;
  EXPECT_EQ(AllowedSequencesOf(later)->num_sequences(), 2);
  EXPECT_EQ(AllowedSequencesOf(call)->num_sequences(), 3);
}

}  // namespace
}  // namespace espalier
