#include "beam/strategy/allowed_sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;
using Sequences = std::vector<std::vector<int64_t>>;

GenerationParams Allowing(Sequences sequences) {
  GenerationParams params;
  params.max_new_tokens = 10;
  params.eos_token_id = {2};
  params.allowed_sequences = std::move(sequences);
  return params;
}

// Returns true if the sequence is one that is allowed.
bool IsAllowed(const ItemConstraint& constraint, std::vector<TokenId> tokens) {
  const ItemCatalogue::Node node = constraint.items().Find(tokens);
  return node != ItemCatalogue::kNone && constraint.items().is_end(node);
}

TEST(AllowedSequencesTest, APrefixOfAnotherIsAnEndThatGoesOn) {
  const auto allowed = AllowedSequencesOf(Allowing({{5, 7}, {5}, {5, 7}}));
  const Constraint::State five = allowed->Advance(allowed->start(), 5);
  EXPECT_TRUE(allowed->accepts(five, 9));
  EXPECT_FALSE(allowed->ends(five, 9));
  EXPECT_THAT(allowed->LegalTokens(five, 9).tokens, ElementsAre(7));
  EXPECT_EQ(allowed->LegalTokens(five, 9).num_last, 1);
  EXPECT_EQ(allowed->LegalTokens(allowed->start(), 10).num_last, 0);
  EXPECT_EQ(allowed->items().num_nodes(), 3);  // equal ones are one
}

TEST(AllowedSequencesTest, ThereIsNoneWhereEverythingIsAllowed) {
  EXPECT_EQ(AllowedSequencesOf(GenerationParams()), nullptr);
}

TEST(AllowedSequencesTest, WhatMinNewTokensRulesOutIsLeftOut) {
  GenerationParams params =
      Allowing({{5}, {6, 2}, {5, 7}, {6, 7, 2}, {8, 9, 4}, {8, 9, 3, 2}});
  params.min_new_tokens = 2;
  params.stop_token_ids = {4};
  const auto allowed = AllowedSequencesOf(params);
  EXPECT_FALSE(IsAllowed(*allowed, {5}));
  EXPECT_FALSE(IsAllowed(*allowed, {6, 2}));
  EXPECT_TRUE(IsAllowed(*allowed, {5, 7}));
  EXPECT_TRUE(IsAllowed(*allowed, {6, 7, 2}));
  EXPECT_TRUE(IsAllowed(*allowed, {8, 9, 4}));
  EXPECT_TRUE(IsAllowed(*allowed, {8, 9, 3, 2}));
}

TEST(AllowedSequencesTest, RequestsOfOneListShareACatalogue) {
  const GenerationParams call = Allowing({{5, 7}, {5, 8, 2}, {9}});
  GenerationParams later = call;
  later.max_new_tokens = 9;
  EXPECT_EQ(&AllowedSequencesOf(call)->items(),
            &AllowedSequencesOf(later)->items());
  // Others may be too short for another one.
  later.min_new_tokens = 2;
  EXPECT_EQ(AllowedSequencesOf(later)->items().num_items(), 2);
  EXPECT_EQ(AllowedSequencesOf(call)->items().num_items(), 3);
}

}  // namespace
}  // namespace espalier
