// What is kept of sequences from run to run, and who loses pages to whom.
#include "executor/host/draft_sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Tokens = std::vector<TokenId>;

constexpr int kDraftPageSize = 2;

class DraftSequencesTest : public ::testing::Test {
 protected:
  DraftText Text(const Tokens& generated) const {
    return DraftText(prompt_, generated);
  }
  // Begins the sequence and feeds all of its text; returns the tokens fed.
  Tokens Feed(const DraftSequences::Key& key, const Tokens& generated) {
    const DraftText text = Text(generated);
    sequences_.Begin(key, text);
    StepPlan step;
    EXPECT_TRUE(sequences_.AddRow(key, text, text.size(), 1, &step));
    return step.tokens;
  }

  const std::shared_ptr<const Tokens> prompt_ =
      std::make_shared<const Tokens>(Tokens{1, 2, 3});
  DraftSequences sequences_{/*num_pages=*/6, kDraftPageSize};
};

TEST_F(DraftSequencesTest, FeedsWhatIsNotCommonAndTheLastToken) {
  const DraftSequences::Key key = {RequestId{7}, 0};
  sequences_.BeginRun();
  EXPECT_THAT(Feed(key, {4, 5}), ElementsAre(1, 2, 3, 4, 5));
  sequences_.BeginRun();
  EXPECT_THAT(Feed(key, {4, 6, 7}), ElementsAre(6, 7));
  EXPECT_THAT(Feed(key, {4, 6, 7}), ElementsAre(7));
  sequences_.SetFed(key, Text({4, 6, 7}), 4);
  EXPECT_EQ(sequences_.num_fed(key), 4u);
  EXPECT_THAT(Feed(key, {4, 6, 7}), ElementsAre(6, 7));
  sequences_.Forget(RequestId{7});
  EXPECT_EQ(sequences_.size(), 0);
  EXPECT_EQ(sequences_.pool().num_free(), 6);
}

TEST_F(DraftSequencesTest, BeamsBeginWithTheLongestOfTheirRequest) {
  const RequestId request{7};
  sequences_.BeginRun();
  Feed({request, 0}, {4});
  sequences_.Fork({request, 0}, {request, 5});
  Feed({request, 5}, {4, 5, 6});
  const DraftText a = Text({4, 5, 9}), b = Text({4, 8}), c = Text({7});
  sequences_.BeginBeams(request, std::vector<const DraftText*>{&a, &b, &c});
  EXPECT_EQ(sequences_.size(), 3);
  EXPECT_EQ(sequences_.num_fed({request, 0}), 5u);
  EXPECT_EQ(sequences_.num_fed({request, 1}), 4u);
  EXPECT_EQ(sequences_.num_fed({request, 2}), 3u);
  // They share pages: 1 2, 3 4 and 5 alone.
  EXPECT_EQ(sequences_.pool().num_free(), 3);
}

TEST_F(DraftSequencesTest, TheLeastRecentLosesItsPages) {
  sequences_.BeginRun();
  Feed({RequestId{1}, 0}, {4});  // two pages each
  sequences_.BeginRun();
  Feed({RequestId{2}, 0}, {4});
  sequences_.BeginRun();
  Feed({RequestId{1}, 0}, {4});
  sequences_.BeginRun();
  Feed({RequestId{3}, 0}, {4, 5, 6});
  EXPECT_EQ(sequences_.size(), 2);
  EXPECT_EQ(sequences_.num_fed({RequestId{1}, 0}), 4u);
}

// One that cannot fit takes nothing from the others.
TEST_F(DraftSequencesTest, OneThatNeverFitsEvictsNobody) {
  sequences_.BeginRun();
  Feed({RequestId{1}, 0}, {4});
  sequences_.BeginRun();
  Feed({RequestId{2}, 0}, {4});
  const DraftSequences::Key key = {RequestId{3}, 0};
  const DraftText text = Text({4, 5, 6, 7, 8, 9});
  sequences_.Begin(key, text);
  StepPlan step;
  EXPECT_FALSE(sequences_.AddRow(key, text, text.size(), 1, &step));
  EXPECT_THAT(step.rows, IsEmpty());
  EXPECT_THAT(step.tokens, IsEmpty());
  EXPECT_EQ(sequences_.num_fed(key), 0u);
  EXPECT_EQ(sequences_.num_fed({RequestId{1}, 0}), 4u);
  EXPECT_EQ(sequences_.num_fed({RequestId{2}, 0}), 4u);
  // Where one of this run gives up, it fits.
  sequences_.GiveUp({RequestId{2}, 0});
  EXPECT_TRUE(sequences_.AddRow(key, text, text.size(), 1, &step));
}

}  // namespace
}  // namespace espalier
