// State of sequences between runs, and eviction of their pages.
#include "executor/drafts/draft_sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "tests/few_cases.h"

namespace espalier {
namespace {

using testing::Cases;
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
  // It fits once another sequence of this run is given up.
  sequences_.GiveUp({RequestId{2}, 0});
  EXPECT_TRUE(sequences_.AddRow(key, text, text.size(), 1, &step));
}

// Samples of a few requests in few pages share their prefixes. Compares the
// tokens that steps feed with the contents of pages: a step makes all its
// copies at once, before it writes.
class FedPages {
 public:
  explicit FedPages(int num_pages)
      : tokens_(num_pages, Tokens(kDraftPageSize, TokenId{-1})) {}

  void Run(const StepPlan& step) {
    const std::vector<Tokens> before = tokens_;
    std::set<int> sources, targets;
    for (const PageCopy& copy : step.page_copies) {
      sources.insert(copy.from.value);
      EXPECT_TRUE(targets.insert(copy.to.value).second) << "a target twice";
      std::copy_n(before[copy.from.value].begin(), copy.num_tokens,
                  tokens_[copy.to.value].begin());
    }
    for (const int target : targets) {
      EXPECT_FALSE(sources.contains(target)) << "a target is a source";
    }
    for (size_t i = 0; i < step.rows.size(); ++i) {
      const PlanRow& row = step.rows[i];
      for (int t = 0; t < row.num_tokens; ++t) {
        At(step, i, row.first_position + t) = step.row_tokens(row)[t];
      }
    }
  }
  Tokens TokensOf(const StepPlan& step, size_t i) {
    const PlanRow& row = step.rows[i];
    Tokens tokens;
    for (int t = 0; t < row.first_position + row.num_tokens; ++t) {
      tokens.push_back(At(step, i, t));
    }
    return tokens;
  }

 private:
  TokenId& At(const StepPlan& step, size_t row, int position) {
    const PageId page = step.row_pages(row)[position / kDraftPageSize];
    return tokens_[page.value][position % kDraftPageSize];
  }

  std::vector<Tokens> tokens_;  // [pages][page_size]
};

class DraftSequencesPropertyTest : public ::testing::Test {
 protected:
  static constexpr int kNumPages = 16;
  static constexpr int kNumRequests = 4;

  explicit DraftSequencesPropertyTest() {
    for (int request = 0; request < kNumRequests; ++request) {
      prompts_.push_back(std::make_shared<const Tokens>(AnyTokens(3)));
    }
  }
  int Below(int end) { return static_cast<int>(random_() % end); }
  Tokens AnyTokens(int count) {
    Tokens tokens(count);
    for (TokenId& token : tokens) token = 1 + Below(2);
    return tokens;
  }

  // Some drop their last tokens, and all go on.
  void Grow(Tokens* generated) {
    if (Below(3) == 0) generated->resize(Below(std::ssize(*generated) + 1));
    const Tokens more = AnyTokens(1 + Below(3));
    generated->insert(generated->end(), more.begin(), more.end());
    if (generated->size() > 14) generated->resize(1);
  }
  void BeginSome(std::map<DraftSequences::Key, DraftText>* texts) {
    sequences_.BeginRun();
    for (int request = 0; request < kNumRequests; ++request) {
      for (int sample = 0; sample < 3 && Below(3) > 0; ++sample) {
        const DraftSequences::Key key = {RequestId{request}, sample};
        Grow(&generated_[key]);
        const DraftText text(prompts_[request], generated_[key]);
        sequences_.Begin(key, text);
        texts->emplace(key, text);
      }
    }
  }
  // Shares the common beginning of two sequences of a request.
  void ShareBeginnings(const std::map<DraftSequences::Key, DraftText>& texts) {
    for (const auto& [key, text] : texts) {
      const DraftSequences::Key from = {key.first, Below(3)};
      if (from == key || !texts.contains(from) || Below(4) == 0) continue;
      const size_t count =
          std::min({CommonLength(texts.at(from), text),
                    sequences_.num_fed(from), text.size() - 1});
      if (sequences_.num_fed(key) < count) {
        sequences_.Share(from, key, count);
        ++num_shared_;
      }
    }
  }

  std::mt19937 random_;
  DraftSequences sequences_{kNumPages, kDraftPageSize};
  std::vector<std::shared_ptr<const Tokens>> prompts_;
  std::map<DraftSequences::Key, Tokens> generated_;
  int num_shared_ = 0;
};

TEST_F(DraftSequencesPropertyTest, PagesHaveWhatWasFed) {
  FedPages pages(kNumPages);
  int num_copies = 0, num_failed = 0;
  for (int run = 0; run < Cases(20000, 2000); ++run) {
    SCOPED_TRACE(run);
    std::map<DraftSequences::Key, DraftText> texts;
    BeginSome(&texts);
    ShareBeginnings(texts);
    StepPlan step;
    std::vector<DraftSequences::Key> fed;
    std::set<int> held;
    for (const auto& [key, text] : texts) {
      if (Below(8) == 0) {
        sequences_.GiveUp(key);
        continue;
      }
      if (sequences_.AddRow(key, text, text.size(), 1, &step, Below(3))) {
        fed.push_back(key);
      } else {
        ++num_failed;
      }
    }
    num_copies += static_cast<int>(step.page_copies.size());
    pages.Run(step);
    for (size_t i = 0; i < fed.size(); ++i) {
      const DraftText& text = texts.at(fed[i]);
      Tokens expected;
      text.CopyTo(0, text.size(), &expected);
      ASSERT_EQ(pages.TokensOf(step, i), expected);
      for (const PageId page : step.row_pages(i)) held.insert(page.value);
    }
    // The next step may have what those of this run do not hold.
    const int num_available = kNumPages - static_cast<int>(held.size());
    if (Below(4) == 0) {
      EXPECT_FALSE(sequences_.MakeRoom(num_available + 1, StepPlan()));
      EXPECT_TRUE(sequences_.MakeRoom(num_available, StepPlan()));
    }
    for (const auto& key : fed) {
      sequences_.SetFed(key, texts.at(key), texts.at(key).size());
    }
    if (Below(10) == 0) sequences_.Forget(RequestId{Below(kNumRequests)});
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(num_copies, 100);
  EXPECT_GT(num_failed, 100);
  EXPECT_GT(num_shared_, 100);
}

}  // namespace
}  // namespace espalier
