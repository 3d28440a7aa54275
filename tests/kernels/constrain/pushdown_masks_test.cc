// Masks and places with stacks from tables, against the constraint that offers
// them: the same tokens, bit for bit, wherever legal tokens lead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/constraint_state.h"
#include "kernels/constrain/token_masks.h"
#include "tests/few_cases.h"
#include "tests/kernels/constrain/continuing_masks.h"
#include "tests/kernels/constrain/random_pushdown_constraints.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::ContinuingMaskOf;
using ::espalier::testing::PushdownConstraintOf;
using ::espalier::testing::PushdownGrammars;
using ::espalier::testing::PushdownSchemas;
using ::espalier::testing::RandomPushdownConstraint;
using ::espalier::testing::RandomSyntaxVocabulary;

constexpr int32_t kManyTokens = 1'000'000;

std::vector<uint32_t> MaskOf(const Constraint& constraint, int vocab_size,
                             int32_t state, int32_t room) {
  std::vector<uint32_t> mask(NumMaskWords(vocab_size));
  for (const TokenId token : constraint.LegalTokens(state, room).tokens) {
    mask[token / 32] |= uint32_t{1} << (token % 32);
  }
  return mask;
}

void ExpectSamePlace(const PushdownPlace& place, const PushdownPlace& other) {
  EXPECT_EQ(place.state, other.state);
  EXPECT_EQ(place.count, other.count);
  ASSERT_EQ(place.height, other.height);
  for (int i = 0; i < place.height; ++i) {
    EXPECT_EQ(place.frames[i].state, other.frames[i].state);
    EXPECT_EQ(place.frames[i].cost, other.frames[i].cost);
    EXPECT_EQ(place.frames[i].more, other.frames[i].more);
    EXPECT_EQ(place.frames[i].accepts, other.frames[i].accepts);
  }
}

// With a similar count the same tokens are legal, and continue, in any room,
// and no more of them in less.
void ExpectSimilarCount(const ConstraintTables& tables,
                        const PushdownPlace& place, int* num_similar) {
  PushdownPlace similar = place;
  similar.count = SimilarCount(
      tables.stacks, AutomatonState(tables, place.state), place.count);
  if (similar.count == place.count) return;
  ++*num_similar;
  EXPECT_EQ(reference::TokenMask(tables, similar, INT32_MAX),
            reference::TokenMask(tables, place, INT32_MAX));
  EXPECT_EQ(reference::ContinuingMask(tables, similar, INT32_MAX),
            reference::ContinuingMask(tables, place, INT32_MAX));
  for (const int32_t room : {1, 3, 9, 20, 40}) {
    const auto few = reference::TokenMask(tables, similar, room);
    const auto many = reference::TokenMask(tables, place, room);
    for (size_t w = 0; w < few.size(); ++w) EXPECT_EQ(few[w] & ~many[w], 0u);
  }
}

// Follows random legal tokens; returns the number of masks.
int FollowTokens(const PushdownConstraint& constraint,
                 const ConstraintTables& tables, int max_tokens,
                 std::mt19937_64& random, int* max_height, int* num_near,
                 int* num_similar) {
  int num_masks = 0;
  int32_t state = constraint.start();
  PushdownPlace place;
  tables.stacks.places->Find(state, &place);
  for (int i = 0; i < max_tokens; ++i) {
    std::vector<uint32_t> far;
    for (const int32_t room : {kManyTokens, 0, 1, 2, 3, 5, 9, 20}) {
      const auto mask = reference::TokenMask(tables, place, room);
      EXPECT_EQ(mask, MaskOf(constraint, tables.vocab_size, state, room))
          << "room " << room;
      EXPECT_EQ(reference::ContinuingMask(tables, place, room),
                ContinuingMaskOf(constraint, mask, state, room))
          << "room " << room;
      if (room == kManyTokens) far = mask;
      *num_near += mask == far ? 0 : 1;
      ++num_masks;
    }
    if (HasTokens(tables, place.state)) {
      ExpectSimilarCount(tables, place, num_similar);
    }
    const auto legal = constraint.LegalTokens(state, kManyTokens).tokens;
    if (legal.empty()) break;
    const TokenId token = legal[random() % legal.size()];
    PushdownWalk walk =
        WalkFrom(tables, place.state, place.count, place.frames, place.height);
    const int32_t after = ReadToken(tables, place.state, token, &walk);
    const int32_t next = constraint.Advance(state, token);
    EXPECT_GE(after, 0);
    // The state, or none where nothing may follow.
    for (const int32_t room : {1, 3, kManyTokens}) {
      PushdownWalk again = WalkFrom(tables, place.state, place.count,
                                    place.frames, place.height);
      EXPECT_EQ(StateAfterToken(tables, place.state, room, token, &again),
                constraint.ends(next, room) ? -1 : after);
    }
    PushdownPlace moved;
    WritePlace(tables, after, walk, &moved);
    PushdownPlace found;
    tables.stacks.places->Find(next, &found);
    // Different ones may have the same future; those of texts are equal.
    if (found.state == moved.state) ExpectSamePlace(found, moved);
    place = random() % 2 == 0 ? moved : found;
    state = next;
    *max_height = std::max(*max_height, place.height);
    if (::testing::Test::HasFailure()) break;
  }
  return num_masks;
}

TEST(PushdownMasksTest, MasksAndPlacesAreThoseOfTheConstraint) {
  std::mt19937_64 random(15);
  int num_masks = 0;
  int num_near = 0;
  int num_similar = 0;
  int max_height = 0;
  int num_with = 0;
  int num_without = 0;
  for (int i = 0; i < Cases(400, 60) && !HasFailure(); ++i) {
    const auto vocabulary = RandomSyntaxVocabulary(
        random() % 4 == 0 ? 130 : 260 + static_cast<int>(random() % 100),
        random);
    const auto constraint = RandomPushdownConstraint(vocabulary, random);
    if (constraint == nullptr) continue;
    const auto tables = constraint->tables();
    ++(tables ? num_with : num_without);
    if (!tables) continue;
    for (int walk = 0; walk < 3; ++walk) {
      num_masks += FollowTokens(*constraint, *tables, 30, random, &max_height,
                                &num_near, &num_similar);
    }
  }
  EXPECT_GT(num_with, 4 * num_without);
  EXPECT_GT(num_masks, Cases(10'000, 1'000));
  EXPECT_GT(num_near, Cases(2'000, 200));
  EXPECT_GT(num_similar, Cases(100, 10));
  EXPECT_GT(max_height, 8);
}

TEST(PushdownMasksTest, UsualLanguagesHaveTables) {
  std::mt19937_64 random(16);
  const auto vocabulary = RandomSyntaxVocabulary(300, random);
  for (const std::string& grammar : PushdownGrammars()) {
    const auto constraint =
        PushdownConstraintOf(CompileGbnf(grammar), vocabulary, random);
    ASSERT_NE(constraint, nullptr) << grammar;
    EXPECT_TRUE(constraint->tables().has_value()) << grammar;
  }
  for (const std::string& schema : PushdownSchemas()) {
    const auto constraint = PushdownConstraintOf(
        CompileJsonSchemaWithCalls(
            schema, {.max_unrolled_least = 16, .max_unrolled_lengths = 0}),
        vocabulary, random);
    ASSERT_NE(constraint, nullptr) << schema;
    EXPECT_TRUE(constraint->tables().has_value()) << schema;
  }
  const auto constraint = PushdownConstraintOf(
      CompileGbnf("root ::= \"a\" root \"a\" | \"a\""), vocabulary, random);
  ASSERT_NE(constraint, nullptr);
  EXPECT_FALSE(constraint->tables().has_value());
}

}  // namespace
}  // namespace espalier
