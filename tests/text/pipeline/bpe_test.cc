// BPE against its definition, and where it could take long.
#include "text/pipeline/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;

struct MadeUpBpe {
  Vocabulary vocabulary;
  std::vector<BpeModel::Merge> merges;
};

// Letters, and random merges of what there is.
MadeUpBpe RandomBpe(int num_merges, std::mt19937* random) {
  std::vector<std::pair<std::string, TokenId>> entries;
  for (const char letter : {'a', 'b', 'c'}) {
    entries.emplace_back(std::string(1, letter), entries.size());
  }
  std::vector<BpeModel::Merge> merges;
  while (std::ssize(merges) < num_merges) {
    const TokenId left = (*random)() % entries.size();
    const TokenId right = (*random)() % entries.size();
    const std::string joined = entries[left].first + entries[right].first;
    const auto known = std::ranges::find(
        entries, joined, &std::pair<std::string, TokenId>::first);
    TokenId id = static_cast<TokenId>(entries.size());
    if (known != entries.end()) {
      id = known->second;
    } else {
      entries.emplace_back(joined, id);
    }
    const bool is_new = std::ranges::none_of(merges, [&](const auto& merge) {
      return merge.left == left && merge.right == right;
    });
    if (is_new) merges.push_back({left, right, id});
  }
  return {Vocabulary::Create(entries).value(), merges};
}

// Merge by merge, from the first of the list that joins any two.
std::vector<TokenId> EncodeByDefinition(const MadeUpBpe& bpe,
                                        std::string_view text) {
  std::vector<TokenId> parts;
  for (const char letter : text) parts.push_back(letter - 'a');
  for (size_t rank = 0; rank < bpe.merges.size();) {
    const BpeModel::Merge& merge = bpe.merges[rank];
    size_t i = 0;
    while (i + 1 < parts.size() &&
           (parts[i] != merge.left || parts[i + 1] != merge.right)) {
      ++i;
    }
    if (i + 1 >= parts.size()) {
      ++rank;
      continue;
    }
    parts[i] = merge.joined;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    rank = 0;
  }
  return parts;
}

TEST(BpeModelTest, ShortAndLongPiecesFollowTheDefinition) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const MadeUpBpe bpe = RandomBpe(1 + random() % 20, &random);
    const BpeModel model(bpe.vocabulary, bpe.merges, {});
    SubwordScratch scratch;
    for (const int length : {1, 2, 3, 8, 23, 24, 25, 26, 60, 200}) {
      std::string text;
      for (int i = 0; i < length; ++i) text += "abc"[random() % 3];
      std::vector<TokenId> tokens;
      ASSERT_OK(model.Encode(text, &scratch, &tokens));
      ASSERT_EQ(tokens, EncodeByDefinition(bpe, text)) << text;
    }
  }
}

TEST(BpeModelTest, WhatIsUnknownIsOneOrManyOrNothing) {
  const auto vocabulary = Vocabulary::Create({{"<unk>", 0}, {"a", 1}}).value();
  const auto encode = [&](const BpeOptions& options) {
    SubwordScratch scratch;
    std::vector<TokenId> tokens;
    EXPECT_OK(
        BpeModel(vocabulary, {}, options).Encode("xéaa🎈", &scratch, &tokens));
    return tokens;
  };
  BpeOptions options;
  EXPECT_THAT(encode(options), ElementsAre(1, 1));
  options.unk = 0;
  EXPECT_THAT(encode(options), ElementsAre(0, 0, 1, 1, 0));
  options.fuse_unk = true;
  EXPECT_THAT(encode(options), ElementsAre(0, 1, 1, 0));
}

TEST(BpeModelTest, WordsArePartedOnlyWhereNoTokenJoinsThem) {
  const auto apart =
      Vocabulary::Create({{"▁", 0}, {"a", 1}, {"▁a", 2}, {"▁▁", 3}}).value();
  EXPECT_EQ(BpeModel(apart, {}, {}).FirstPartSize("▁▁a▁a"),
            std::string("▁▁a").size());
  const auto joined =
      Vocabulary::Create({{"▁", 0}, {"a", 1}, {"a▁", 2}}).value();
  EXPECT_EQ(BpeModel(joined, {}, {}).FirstPartSize("▁a▁a"),
            std::string("▁a▁a").size());
}

}  // namespace
}  // namespace espalier
