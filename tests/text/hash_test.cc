#include "text/hash.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "text/vocabulary.h"

namespace espalier {
namespace {

constexpr uint64_t kSlotMask = 0xFFF;

std::string PieceOf(uint64_t word) {
  std::string piece(sizeof word, '\0');
  std::memcpy(piece.data(), &word, sizeof word);
  return piece;
}

TEST(HashTest, EachKeyIsItsOwn) {
  const HashKey one = HashKey::Random(), other = HashKey::Random();
  EXPECT_NE(one.start, other.start);
  EXPECT_NE(one.multiplier, other.multiplier);
  EXPECT_EQ(one.multiplier % 2, 1);
  EXPECT_NE(kHashKey.start, one.start);
}

// Whoever makes a vocabulary for one key has made an ordinary one for others.
TEST(HashTest, WhatSharesASlotUnderOneKeyDoesNotUnderOthers) {
  const HashKey known = {0, 0x9E3779B97F4A7C15};
  std::vector<uint64_t> words;
  for (uint64_t word = 1; words.size() < 500; ++word) {
    if ((HashOf(PieceOf(word), known) & kSlotMask) == 7) words.push_back(word);
  }
  std::set<uint64_t> of_pieces, of_words;
  for (const uint64_t word : words) {
    of_pieces.insert(HashOf(PieceOf(word)) & kSlotMask);
    of_words.insert(HashOf(word) >> 52);
  }
  EXPECT_GT(of_pieces.size(), 300);
  EXPECT_GT(of_words.size(), 300);
}

TEST(HashTest, AnIndexFindsWhatWasAddedLast) {
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
