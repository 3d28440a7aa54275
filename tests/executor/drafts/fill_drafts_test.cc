// Plans that are filled with drafts are those that would have been written had
// the drafts been known.
#include "executor/drafts/fill_drafts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/page_count.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kFillPageSize = 4;

std::shared_ptr<const SelectionParams> ParamsOf(VerifyMode mode) {
  auto params = std::make_shared<SelectionParams>();
  params->verify_mode = mode;
  return params;
}

// Plans of groups of samples, each with room for its longest draft, or filled
// with its drafts. Only the former have rows of samples that have ended.
class DraftedPlans {
 public:
  explicit DraftedPlans(uint32_t seed) : random_(seed) {
    const int num_groups = 1 + Below(5);
    for (int request = 0; request < num_groups; ++request) {
      if (Below(3) == 0) AddPrompt();
      AddGroup(request);
    }
  }

  StepPlan planned;
  StepPlan written;
  std::vector<DraftedTokens> drafts;
  std::vector<int> ended_rows;

 private:
  int Below(int end) { return static_cast<int>(random_() % end); }

  void AddRow(int first_position, std::span<const TokenId> tokens,
              int num_logits, StepPlan* plan) {
    plan->rows.push_back({.first_token = static_cast<int>(plan->tokens.size()),
                          .num_tokens = static_cast<int>(tokens.size()),
                          .first_position = first_position,
                          .num_logits = num_logits,
                          .first_logits = plan->num_logits});
    plan->num_logits += num_logits;
    plan->tokens.insert(plan->tokens.end(), tokens.begin(), tokens.end());
    const int64_t num_pages = NumPages(
        first_position + static_cast<int>(tokens.size()), kFillPageSize);
    for (int page = 0; page < num_pages; ++page) {
      plan->page_indices.push_back(PageId{first_position + page});
    }
    plan->page_indptr.push_back(static_cast<int>(plan->page_indices.size()));
  }

  // With a scoring, or only fed.
  void AddPrompt() {
    const std::vector<TokenId> tokens(1 + Below(9), 3);
    const int num_logits = Below(static_cast<int>(tokens.size()) + 1);
    for (StepPlan* const plan : {&planned, &written}) {
      if (num_logits > 0) {
        plan->scorings.push_back(
            {.request = {},
             .first_logits = plan->num_logits,
             .tokens = std::vector<TokenId>(num_logits, 3)});
      }
      AddRow(8, tokens, num_logits, plan);
    }
  }

  void AddGroup(int request) {
    const auto params =
        ParamsOf(Below(2) == 0 ? VerifyMode::kRejection : VerifyMode::kCoupled);
    const bool have_all_ended = Below(5) == 0;
    const int num_rows = have_all_ended ? 0 : 1 + Below(3);
    PlanSelection asked = {.request = RequestId{request}, .params = params};
    asked.num_rows = num_rows;
    asked.eos_token_ids = {0};
    std::vector<std::vector<TokenId>>& planned_drafts =
        asked.Choose<DrawSelection>().drafts.tokens;
    PlanSelection known = asked;
    std::vector<std::vector<TokenId>>& known_drafts =
        known.EditDraws().drafts.tokens;
    asked.first_logits = planned.num_logits;
    known.first_logits = written.num_logits;
    const auto add_ended = [&] {
      ended_rows.push_back(static_cast<int>(planned.rows.size()));
      AddRow(Below(20), std::vector<TokenId>(2, 8), 2, &planned);
    };
    if (have_all_ended || Below(5) == 0) add_ended();
    for (int rank = 0; rank < num_rows; ++rank) {
      const int count = Below(4);
      const int position = Below(20);
      std::vector<TokenId> tokens(1 + count);
      tokens[0] = 10 + rank;
      const DraftTarget target = {
          .plan_row = static_cast<int>(planned.rows.size()),
          .selection = static_cast<int>(planned.selections.size()),
          .rank = rank};
      AddRow(position, tokens, 1 + count, &planned);
      planned_drafts.emplace_back(count);
      std::vector<TokenId> draft(count == 0 ? 0 : Below(count + 1));
      for (TokenId& token : draft) token = 1 + Below(9);
      if (count > 0) {
        planned.drafting.push_back({.request = RequestId{request},
                                    .prompt = nullptr,
                                    .num_tokens = count,
                                    .params = params,
                                    .verified_by = target});
        drafts.push_back({.tokens = draft});
      }
      tokens.resize(1);
      tokens.insert(tokens.end(), draft.begin(), draft.end());
      AddRow(position, tokens, static_cast<int>(tokens.size()), &written);
      known_drafts.push_back(std::move(draft));
      if (Below(5) == 0) add_ended();
    }
    planned.selections.push_back(std::move(asked));
    if (!have_all_ended) written.selections.push_back(std::move(known));
  }

  std::mt19937 random_;
};

TEST(FillDraftsTest, ThePlanIsThatOfKnownDrafts) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    DraftedPlans plans(seed);
    FillDrafts(kFillPageSize, plans.drafts, &plans.planned, plans.ended_rows);
    const StepPlan& filled = plans.planned;
    const StepPlan& written = plans.written;
    EXPECT_EQ(filled.tokens, written.tokens);
    EXPECT_EQ(filled.num_logits, written.num_logits);
    EXPECT_EQ(filled.page_indptr, written.page_indptr);
    EXPECT_EQ(filled.page_indices, written.page_indices);
    ASSERT_EQ(filled.rows.size(), written.rows.size());
    for (size_t i = 0; i < filled.rows.size(); ++i) {
      EXPECT_EQ(filled.rows[i].first_token, written.rows[i].first_token);
      EXPECT_EQ(filled.rows[i].num_tokens, written.rows[i].num_tokens);
      EXPECT_EQ(filled.rows[i].num_logits, written.rows[i].num_logits);
      EXPECT_EQ(filled.rows[i].first_logits, written.rows[i].first_logits);
    }
    ASSERT_EQ(filled.selections.size(), written.selections.size());
    for (size_t i = 0; i < filled.selections.size(); ++i) {
      EXPECT_EQ(filled.selections[i].request, written.selections[i].request);
      EXPECT_EQ(filled.selections[i].first_logits,
                written.selections[i].first_logits);
      const SampleDrafts& verified = filled.selections[i].as_draws()->drafts;
      EXPECT_EQ(verified.tokens,
                written.selections[i].as_draws()->drafts.tokens);
      EXPECT_THAT(verified.logits, IsEmpty());
    }
    for (size_t i = 0; i < filled.scorings.size(); ++i) {
      EXPECT_EQ(filled.scorings[i].first_logits,
                written.scorings[i].first_logits);
    }
  }
}

// A token that ends a sequence is drafted only if verification needs its
// logits; nothing follows it.
TEST(FillDraftsTest, DraftsEndWithTheirSequences) {
  for (const VerifyMode mode : {VerifyMode::kRejection, VerifyMode::kCoupled}) {
    StepPlan plan;
    plan.rows = {{.num_tokens = 4, .num_logits = 4}};
    plan.tokens = {5, 0, 0, 0};
    plan.num_logits = 4;
    plan.page_indptr = {0, 1};
    plan.page_indices = {PageId{7}};
    PlanSelection selection = {.request = RequestId{1},
                               .params = ParamsOf(mode)};
    selection.num_rows = 1;
    selection.eos_token_ids = {2, 9};
    selection.Choose<DrawSelection>().drafts.tokens = {{0, 0, 0}};
    plan.drafting.push_back({.request = RequestId{1},
                             .prompt = nullptr,
                             .num_tokens = 3,
                             .params = selection.params,
                             .verified_by = {0, 0, 0}});
    plan.selections.push_back(std::move(selection));
    std::vector<DraftedTokens> drafts = {{.tokens = {3, 9, 4}}};
    drafts[0].logits = DraftLogits(std::vector<float>(3 * 10));
    FillDrafts(kFillPageSize, drafts, &plan);
    const SampleDrafts& filled = plan.selections[0].as_draws()->drafts;
    if (mode == VerifyMode::kRejection) {
      EXPECT_THAT(plan.tokens, ElementsAre(5, 3, 9));
      EXPECT_THAT(drafts[0].tokens, ElementsAre(3, 9));
      EXPECT_EQ(drafts[0].logits.size(), 20u);
      ASSERT_EQ(filled.logits.size(), 1u);
      EXPECT_EQ(filled.logits[0].size(), 20u);
    } else {
      EXPECT_THAT(plan.tokens, ElementsAre(5, 3));
      EXPECT_THAT(drafts[0].tokens, ElementsAre(3));
    }
    EXPECT_EQ(filled.tokens[0], drafts[0].tokens);
  }
}

}  // namespace
}  // namespace espalier
