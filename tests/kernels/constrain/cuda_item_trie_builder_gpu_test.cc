// Tries of items that a device builds, against those of the host: equal arrays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "constrain/item_trie_builder.h"
#include "kernels/constrain/cuda_item_trie_builder.h"
#include "tests/constrain/token_lists.h"
#include "tests/few_cases.h"
#include "tests/kernels/constrain/random_items.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::RandomItems;
using ::espalier::testing::StatusIs;

class CudaItemTrieBuilderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(CudaDevice::Open(0).status());
    auto stream = CudaStream::Create();
    ASSERT_OK(stream.status());
    stream_ = *std::move(stream);
  }

  absl::StatusOr<ItemTrieArrays> Build(const TokenLists& items) const {
    return CudaBuildItemTrie(items.tokens, items.ends, stream_.get());
  }

  void ExpectAsOnTheHost(const TokenLists& items) const {
    const auto trie = Build(items);
    ASSERT_OK(trie.status());
    const ItemTrieArrays host = BuildItemTrie(items);
    // The last says all; the first say where.
    ASSERT_EQ(trie->tokens, host.tokens);
    ASSERT_EQ(trie->inner, host.inner);
    ASSERT_EQ(trie->first, host.first);
    ASSERT_EQ(trie->ends, host.ends);
    ASSERT_EQ(trie->before_last, host.before_last);
    ASSERT_EQ(trie->levels, host.levels);
    ASSERT_TRUE(*trie == host);
  }

  CudaStream stream_;
};

TEST_F(CudaItemTrieBuilderTest, RandomItemsHaveTheTrieOfTheHost) {
  std::mt19937 random(1);
  for (int i = 0; i < Cases(60, 8); ++i) {
    // From one token to several keys an item; few tokens make duplicates and
    // items that begin others.
    const int vocab_sizes[] = {4, 40, 1 << 13, 1 << 17};
    const int max_length = 1 + random() % (i % 7 == 0 ? 30 : 6);
    Lists lists = RandomItems(vocab_sizes[i % 4], 1 + random() % 3000,
                              max_length, i % 2 == 0, random);
    if (i % 3 == 0) lists.emplace_back();  // empty
    if (i % 5 == 0) lists.insert(lists.end(), lists.begin(), lists.end());
    std::ranges::shuffle(lists, random);
    ExpectAsOnTheHost(ListsOf(lists));
    if (HasFatalFailure()) FAIL() << i;
  }
}

TEST_F(CudaItemTrieBuilderTest, SmallAndLongItemsHaveTheTrieOfTheHost) {
  ExpectAsOnTheHost({});
  ExpectAsOnTheHost(ListsOf({{}, {}}));
  ExpectAsOnTheHost(ListsOf({{0}}));
  ExpectAsOnTheHost(ListsOf({{7}, {7}, {}, {7, 0}}));
  ExpectAsOnTheHost(ListsOf({{(1 << 24) - 1, 0}, {(1 << 24) - 1}}));
  Lists lists = {std::vector<TokenId>(kMaxCudaItemTokens, 5)};
  for (int length = 1; length < kMaxCudaItemTokens; ++length) {
    lists.push_back(lists[0]);
    lists.back()[length] = 4;
    lists.emplace_back(length, 5);
  }
  ExpectAsOnTheHost(ListsOf(lists));
  lists.emplace_back(kMaxCudaItemTokens + 1, 5);
  EXPECT_THAT(Build(ListsOf(lists)),
              StatusIs(absl::StatusCode::kOutOfRange, ::testing::_));
}

TEST_F(CudaItemTrieBuilderTest, ManyItemsHaveTheTrieOfTheHost) {
  std::mt19937 random(2);
  TokenLists items;
  for (int i = 0; i < Cases(1'000'000, 20'000); ++i) {
    for (int j = 0; j < 4; ++j) {
      items.tokens.push_back(static_cast<TokenId>(random() % (1 << 13)));
    }
    items.EndList();
  }
  ExpectAsOnTheHost(items);
}

}  // namespace
}  // namespace espalier
