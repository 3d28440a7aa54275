#include "beam/pages/source_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "pages/validate.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Pages of 4 tokens.
class SourcePagesTest : public ::testing::Test {
 protected:
  SourcePages OfLength(int length) {
    return SourcePages(
        std::make_shared<const EncoderInput>(std::vector<TokenId>(length, 7)),
        &pool_);
  }
  //   others  pages that the test holds
  void Validate(const SourcePages& source,
                std::span<const PageRef* const> others = {}) {
    const PageTable* const tables[] = {&source.table()};
    EXPECT_OK(ValidatePages(pool_, tables, {}, {}, others));
    const std::vector<const HostSlot*> slots = source.saved().Slots();
    EXPECT_OK(ValidateHostSlots(host_, slots));
  }

  PagePool pool_{6, 4};
  HostPool host_{8};
};

TEST_F(SourcePagesTest, WithoutASourceNothingIsMissing) {
  const SourcePages source(nullptr, &pool_);
  EXPECT_FALSE(source.has_source());
  EXPECT_EQ(source.length(), 0);
  EXPECT_EQ(source.num_missing(), 0);
}

TEST_F(SourcePagesTest, ASourceIsReadOnceAndHoldsItsPagesInOnePiece) {
  for (const int length : {1, 3, 4, 5, 8, 24}) {
    SourcePages source = OfLength(length);
    EXPECT_EQ(source.num_missing(), (length + 3) / 4);
    ASSERT_OK(source.TakeMissing());
    Validate(source);
    const PlanSource first = source.Describe(5, 1);
    EXPECT_TRUE(first.is_read());
    EXPECT_EQ(first.num_stored, 0);
    EXPECT_EQ(first.first_row, 5);
    EXPECT_EQ(std::ssize(*first.pages), source.num_pages());
    const PlanSource second = source.Describe(0, 3);
    EXPECT_FALSE(second.is_read());
    EXPECT_EQ(second.num_stored, length);
    EXPECT_EQ(second.pages, first.pages);  // one list for all plans
    source.Release();
    Validate(source);
    EXPECT_EQ(pool_.num_free(), 6);
  }
}

TEST_F(SourcePagesTest, OnlyTheRestIsStoredAfterAdoptedPages) {
  SourcePages source = OfLength(9);
  std::vector<PageRef> adopted;
  adopted.push_back(*pool_.Allocate());
  source.Adopt(adopted);
  EXPECT_EQ(source.NumPositions(), 4);
  EXPECT_EQ(source.num_missing(), 2);
  ASSERT_OK(source.TakeMissing());
  const PlanSource described = source.Describe(0, 1);
  EXPECT_EQ(described.num_stored, 4);
  EXPECT_EQ(described.pages->front(), adopted[0].id());
  EXPECT_EQ(source.NumPositions(), 9);
}

TEST_F(SourcePagesTest, ASourceThatIsAdoptedAsAWholeIsNotRead) {
  SourcePages source = OfLength(5);
  std::vector<PageRef> adopted;
  for (int i = 0; i < 2; ++i) adopted.push_back(*pool_.Allocate());
  source.Adopt(std::move(adopted));
  EXPECT_EQ(source.num_missing(), 0);
  EXPECT_FALSE(source.Describe(0, 1).is_read());
}

TEST_F(SourcePagesTest, SavedPagesAreLoadedUpToTheFirstGap) {
  SourcePages source = OfLength(11);
  ASSERT_OK(source.TakeMissing());
  source.Describe(0, 1);
  StepPlan plan;
  // Another holder keeps the last page, so it is not saved.
  const PageRef last = source.table().pages()[2];
  EXPECT_TRUE(source.Save({.pool = &host_}, &plan));
  EXPECT_THAT(plan.page_saves, SizeIs(2));
  source.Release();
  const PageRef* const others[] = {&last};
  Validate(source, others);
  source.Load(&plan);
  Validate(source, others);
  EXPECT_THAT(plan.page_loads, SizeIs(2));
  EXPECT_EQ(plan.page_loads[0].slot, plan.page_saves[0].slot);
  EXPECT_EQ(plan.page_loads[1].slot, plan.page_saves[1].slot);
  EXPECT_EQ(source.NumPositions(), 8);
  ASSERT_OK(source.TakeMissing());
  EXPECT_EQ(source.Describe(0, 1).num_stored, 8);
  source.DropSaved();
  EXPECT_EQ(host_.num_held(), 0);
}

// Whatever pages of sequences are worth saving: without its last page the whole
// source would be read again.
TEST_F(SourcePagesTest, AllPagesAreSavedOrNoneHoweverFewPositionsTheLastHas) {
  for (const int length : {1, 4, 5, 7, 8, 9}) {
    for (const int min_tokens : {1, 2, 4, 5}) {
      SourcePages source = OfLength(length);
      ASSERT_OK(source.TakeMissing());
      source.Describe(0, 1);
      StepPlan plan;
      const bool is_saved = min_tokens < 5;  // no page has 5 tokens
      EXPECT_EQ(source.Save({.pool = &host_, .min_tokens = min_tokens}, &plan),
                is_saved);
      source.Release();
      source.Load(&plan);
      EXPECT_EQ(source.num_missing(), is_saved ? 0 : source.num_pages());
      EXPECT_EQ(source.NumPositions(), is_saved ? length : 0);
      Validate(source);
    }
  }
}

TEST_F(SourcePagesTest, TooFewPagesAreAnError) {
  SourcePages source = OfLength(25);
  EXPECT_THAT(source.TakeMissing(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "need 7 pages, 6 available"));
  source.Release();
  EXPECT_EQ(pool_.num_free(), 6);
}

// Rows 0 and 1 have a source, 3 to 5 another one, which is read.
TEST(PlanSourceTest, EachRowHasTheSourceOfItsGroup) {
  StepPlan plan;
  EXPECT_EQ(plan.source_of(0), nullptr);
  EXPECT_EQ(plan.NumSourceTokens(), 0);
  const auto input =
      std::make_shared<const EncoderInput>(std::vector<TokenId>(9, 7));
  plan.sources = {{.first_row = 0,
                   .num_rows = 2,
                   .input = input,
                   .pages = nullptr,
                   .num_stored = 9},
                  {.first_row = 3,
                   .num_rows = 3,
                   .input = input,
                   .pages = nullptr,
                   .num_stored = 4}};
  std::vector<int> found;
  for (int row = 0; row < 7; ++row) {
    const PlanSource* const source = plan.source_of(row);
    found.push_back(
        source == nullptr ? -1 : static_cast<int>(source - &plan.sources[0]));
  }
  EXPECT_THAT(found, ElementsAre(0, 0, -1, 1, 1, 1, -1));
  EXPECT_EQ(plan.NumSourceTokens(), 9);
  EXPECT_EQ(plan.NumSourceTokens(2), 0);
}

TEST(EncoderInputTest, EqualTokensHaveOneHash) {
  const EncoderInput input({5, 6, 7});
  EXPECT_EQ(input.length(), 3);
  EXPECT_THAT(input.content_hash(), SizeIs(32));
  EXPECT_EQ(input.content_hash(), EncoderInput({5, 6, 7}).content_hash());
  EXPECT_NE(input.content_hash(), EncoderInput({5, 6, 7, 0}).content_hash());
  EXPECT_NE(input.content_hash(), EncoderInput({6, 5, 7}).content_hash());
}

TEST(EncoderInputTest, EqualFeaturesHaveOneHash) {
  const auto input = [](FeatureShape shape, std::vector<float> values) {
    return EncoderInput(std::make_shared<const FeatureMatrix>(FeatureMatrix{
                            .shape = shape, .values = std::move(values)}),
                        /*length=*/2);
  };
  const EncoderInput features = input({4, 1}, {1, 2, 3, 4});
  EXPECT_EQ(features.length(), 2);
  EXPECT_THAT(features.tokens(), IsEmpty());
  EXPECT_THAT(features.features()->values, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(EncoderInput({5}).features(), nullptr);
  EXPECT_THAT(features.content_hash(), SizeIs(32));
  const auto hash = [](const EncoderInput& of) { return of.content_hash(); };
  EXPECT_EQ(hash(features), hash(input({4, 1}, {1, 2, 3, 4})));
  EXPECT_NE(hash(features), hash(input({4, 1}, {1, 2, 3, 5})));
  EXPECT_NE(hash(features), hash(input({2, 2}, {1, 2, 3, 4})));
}

}  // namespace
}  // namespace espalier
