// States and masks from tables of items, against the constraint that offers
// them: its lists are made in another way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/constrain/token_masks.h"
#include "tests/few_cases.h"
#include "tests/kernels/constrain/continuing_masks.h"
#include "tests/kernels/constrain/random_items.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::ContinuingMaskOf;
using ::espalier::testing::RandomItemConstraint;
using ::espalier::testing::TablesOf;

std::vector<uint32_t> ItemMaskOf(const ItemConstraint& constraint,
                                 int vocab_size, int32_t state, int32_t room) {
  std::vector<uint32_t> mask(NumMaskWords(vocab_size));
  for (const TokenId token : constraint.LegalTokens(state, room).tokens) {
    mask[token / 32] |= uint32_t{1} << (token % 32);
  }
  return mask;
}

// Every node, with room for each length of an item and around it.
TEST(ItemMasksTest, MasksAreTheListsOfTheConstraint) {
  std::mt19937 random(17);
  int num_masks = 0;
  int num_near = 0;
  for (int i = 0; i < Cases(120, 20); ++i) {
    const int vocab_size = 3 + static_cast<int>(random() % 70);
    const auto constraint = RandomItemConstraint(vocab_size, random);
    const ItemTables& tables = constraint->item_tables();
    ASSERT_EQ(tables.trie.num_nodes, constraint->items().num_nodes());
    // The last one is after an end id.
    for (int32_t state = 0; state <= tables.trie.num_nodes; ++state) {
      std::vector<uint32_t> before;
      for (const int32_t room : {0, 1, 2, 3, 4, 5, 6, 7, 8, INT32_MAX}) {
        const std::vector<uint32_t> mask = reference::TokenMask(
            TablesOf(*constraint, vocab_size), {state, room});
        ASSERT_EQ(mask, ItemMaskOf(*constraint, vocab_size, state, room))
            << "state " << state << ", room " << room;
        ASSERT_EQ(reference::ContinuingMask(TablesOf(*constraint, vocab_size),
                                            {state, room}),
                  ContinuingMaskOf(*constraint, mask, state, room))
            << "state " << state << ", room " << room;
        for (TokenId token = 0; token < vocab_size; ++token) {
          if (!IsInMask(mask.data(), token)) continue;
          ASSERT_GE(tables.Advance(state, token), 0);
        }
        ++num_masks;
        num_near += before.empty() || before == mask ? 0 : 1;
        before = mask;
      }
    }
  }
  EXPECT_GT(num_masks, Cases(50'000, 5000));
  EXPECT_GT(num_near, Cases(3000, 300));
}

// A state that is none has no token, and leads nowhere.
TEST(ItemMasksTest, NoStateHasNoTokens) {
  const ItemConstraint constraint(
      std::make_shared<const ItemCatalogue>(ListsOf({{1, 2}, {3}})));
  const ItemTables& tables = constraint.item_tables();
  const std::vector<uint32_t> none(NumMaskWords(5));
  EXPECT_EQ(
      reference::TokenMask(TablesOf(constraint, 5), {ItemTables::kNoState, 3}),
      none);
  EXPECT_EQ(tables.Advance(ItemTables::kNoState, 1), ItemTables::kNoState);
  EXPECT_EQ(tables.Advance(tables.ended(), 1), ItemTables::kNoState);
}

}  // namespace
}  // namespace espalier
