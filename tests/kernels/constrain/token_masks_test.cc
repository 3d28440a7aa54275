// States and masks from tables, against the constraint that offers them.
#include "kernels/constrain/token_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "base/constraint_state.h"
#include "tests/few_cases.h"
#include "tests/kernels/constrain/continuing_masks.h"
#include "tests/kernels/constrain/random_constraints.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::ContinuingMaskOf;
using ::espalier::testing::RandomTextConstraint;
using ::espalier::testing::RandomTokenVocabulary;

constexpr int32_t kAnyRoom = 1'000'000;

std::vector<uint32_t> MaskOf(const TextConstraint& constraint, int32_t state,
                             int32_t room) {
  std::vector<uint32_t> mask(NumMaskWords(constraint.texts().vocab_size()));
  for (const TokenId token : constraint.LegalTokens(state, room).tokens) {
    mask[token / 32] |= uint32_t{1} << (token % 32);
  }
  return mask;
}

// Every state that exists, with room for few tokens and for many.
TEST(TokenMasksTest, MasksAndStatesAreThoseOfTheConstraint) {
  std::mt19937_64 random(11);
  int num_masks = 0;
  int num_near = 0;
  for (int i = 0; i < Cases(200, 40); ++i) {
    const int vocab_size = 20 + static_cast<int>(random() % 30);
    const auto constraint =
        RandomTextConstraint(RandomTokenVocabulary(vocab_size, random), random);
    if (constraint == nullptr) continue;
    const auto tables = constraint->tables();
    ASSERT_TRUE(tables.has_value());
    ASSERT_EQ(tables->vocab_size, vocab_size);
    // The last one is after an end id.
    for (int32_t s = 0; s <= constraint->texts().num_states(); ++s) {
      std::vector<uint32_t> before;
      for (const int32_t room : {0, 1, 2, 3, 5, kAnyRoom, INT32_MAX}) {
        const std::vector<uint32_t> mask =
            reference::TokenMask(*tables, {s, room});
        EXPECT_EQ(mask, MaskOf(*constraint, s, room)) << "state " << s;
        EXPECT_EQ(reference::ContinuingMask(*tables, {s, room}),
                  ContinuingMaskOf(*constraint, mask, s, room))
            << "state " << s;
        ++num_masks;
        num_near += before.empty() || before == mask ? 0 : 1;
        before = mask;
      }
      for (TokenId token = 0; token < vocab_size; ++token) {
        EXPECT_EQ(AdvanceState(*tables, s, token),
                  constraint->Advance(s, token))
            << "state " << s << ", token " << token;
      }
    }
  }
  EXPECT_GT(num_masks, Cases(5000, 1000));
  EXPECT_GT(num_near, Cases(1000, 200));
}

TEST(TokenMasksTest, MasksAreWholeTiles) {
  EXPECT_EQ(NumMaskWords(1), 32);
  EXPECT_EQ(NumMaskWords(1024), 32);
  EXPECT_EQ(NumMaskWords(1025), 64);
  EXPECT_EQ(NumMaskWords(128256), 126 * 32);
  const uint32_t mask[] = {0x80000001u, 0x2u};
  EXPECT_TRUE(IsInMask(mask, 0) && IsInMask(mask, 31) && IsInMask(mask, 33));
  EXPECT_FALSE(IsInMask(mask, 1) || IsInMask(mask, 32));
}

}  // namespace
}  // namespace espalier
