#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "tests/std_hash_collisions.h"

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

// Collisions made for one key are not collisions for other keys.
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

// Neither do keys of a caller's JSON that someone made to share a slot.
TEST(HashTest, WhatSharesAStdHashDoesNotShareSlots) {
  const auto strings = testing::StringsOfOneStdHash(2000);
  if (strings.empty()) GTEST_SKIP() << "std::hash is not that of libstdc++";
  const std::unordered_set<std::string, KeyedHash> set(strings.begin(),
                                                       strings.end());
  ASSERT_EQ(set.size(), strings.size());
  size_t largest = 0;
  for (size_t i = 0; i < set.bucket_count(); ++i) {
    largest = std::max(largest, set.bucket_size(i));
  }
  EXPECT_LT(largest, 20);
}

TEST(HashTest, TheEmptyStringOfNowhereIsTheEmptyString) {
  EXPECT_EQ(HashOf(std::string_view()), HashOf(std::string_view("")));
}

}  // namespace
}  // namespace espalier
