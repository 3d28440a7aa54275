// Rows of logits that draw for themselves, against verification on the host.
#include "executor/selection_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "executor/host/select_all.h"
#include "tests/few_cases.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kSelectionVocab = 24;

// A plan of selections of samples: with drafts, of different lengths, or
// neither; with processors that read histories or not, allowed tokens, and
// log-probabilities. Only selections and logits matter.
class AnyDraftedPlan {
 public:
  explicit AnyDraftedPlan(uint32_t seed) : random_(seed) {
    const int num_selections = 1 + Below(4);
    for (int i = 0; i < num_selections; ++i) AddSelection(i);
    std::normal_distribution<float> normal(0, 3);
    logits.resize(plan.num_logits * kSelectionVocab);
    for (float& logit : logits) logit = normal(random_);
    DraftSomeTokensThatAreDrawn();
  }

  std::vector<SelectionResult> Select(const StepPlan& asked) const {
    return SelectAll(asked, logits, kSelectionVocab, *testing::MakePool(1));
  }

  StepPlan plan;
  std::vector<float> logits;

 private:
  int Below(int end) { return static_cast<int>(random_() % end); }
  std::vector<TokenId> AnyTokens(int count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = Below(kSelectionVocab);
    return tokens;
  }

  std::shared_ptr<const SelectionParams> AnyParams() {
    auto params = std::make_shared<SelectionParams>();
    params->verify_mode = VerifyMode::kCoupled;
    params->domain = ScoreDomain::kLogits;
    params->sampling.seed = random_();
    params->sampling.temperature = Below(3) == 0 ? 0.0f : 0.8f;
    if (Below(3) == 0) params->sampling.top_k = 3;
    if (Below(2) == 0) params->processors.frequency_penalty = 0.5f;
    if (Below(3) == 0) params->processors.repetition_penalty = 1.5f;
    if (Below(3) == 0) params->processors.bad_words = {{1}, {2, 3}};
    if (Below(2) == 0) {
      params->processors.eos_token_ids = {0, 4};
      params->processors.min_new_tokens = 1 + Below(12);
    }
    params->num_logprobs = Below(4) - 1;
    params->edits =
        std::make_shared<const ScoreEdits>(params->processors, AnyTokens(5));
    return params;
  }

  void AddSelection(int request) {
    PlanSelection selection;
    selection.request = RequestId{request};
    selection.first_logits = plan.num_logits;
    selection.params = AnyParams();
    selection.num_rows = 1 + Below(4);
    selection.num_slots = selection.num_rows;
    selection.num_generated = 1 + Below(9);
    DrawSelection& draws = selection.Choose<DrawSelection>();
    const bool differs = Below(2) == 0;
    const bool has_drafts = Below(4) > 0;
    const bool is_restricted = Below(4) == 0;
    for (int row = 0; row < selection.num_rows; ++row) {
      draws.samples.push_back(2 * row + Below(2));
      selection.slots.push_back(row);
      selection.cum_log_probs.push_back(-0.3f * Below(40));
      if (differs) draws.row_num_generated.push_back(1 + Below(9));
      if (has_drafts) draws.drafts.tokens.push_back(AnyTokens(Below(6)));
    }
    if (selection.params->processors.needs_history()) {
      for (int row = 0; row < selection.num_rows; ++row) {
        selection.histories.push_back(
            AnyTokens(selection.num_generated_of(row)));
      }
    }
    plan.num_logits += selection.num_logits();
    for (int i = 0; is_restricted && i < selection.num_logits(); ++i) {
      selection.allowed.push_back(AllowedTokens());
    }
    plan.selections.push_back(std::move(selection));
  }

  std::span<const TokenId> AllowedTokens() {
    std::vector<TokenId> tokens = AnyTokens(6);
    std::ranges::sort(tokens);
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    allowed_.push_back(
        std::make_shared<const std::vector<TokenId>>(std::move(tokens)));
    return *allowed_.back();
  }

  // So that runs of every length come up.
  void DraftSomeTokensThatAreDrawn() {
    for (int i = 0; i < 5; ++i) {
      const std::vector<SelectionResult> answers = Select(plan);
      for (size_t s = 0; s < answers.size(); ++s) {
        std::vector<std::vector<TokenId>>& drafts =
            plan.selections.Edit(s).EditDraws().drafts.tokens;
        size_t first = 0;
        for (size_t row = 0; row < drafts.size(); ++row) {
          const size_t last = answers[s].num_tokens[row] - 1;
          std::vector<TokenId>& draft = drafts[row];
          const TokenId token = answers[s].candidates[first + last].token;
          if (last < draft.size() && token >= 0 && Below(4) > 0) {
            draft[last] = token;
          }
          first += last + 1;
        }
      }
    }
  }

  std::mt19937 random_;
  std::vector<std::shared_ptr<const std::vector<TokenId>>> allowed_;
};

// A row of logits as a selection of its own, from a prompt's row.
PlanSelection PlainSelection(const PlanSelection& selection,
                             const SelectionRow& logits_row) {
  PlanSelection plain;
  plain.first_logits =
      selection.FirstLogits()[logits_row.row] + logits_row.draft_idx;
  plain.num_rows = 1;
  plain.num_generated = logits_row.num_generated;
  plain.cum_log_probs = {0};
  plain.params = selection.params;
  plain.choice = DrawSelection{.samples = {logits_row.sample}};
  plain.slots = {0};
  if (!selection.histories.empty()) {
    plain.histories = {
        {logits_row.history().begin(), logits_row.history().end()}};
  }
  if (logits_row.allowed != nullptr) plain.allowed = {*logits_row.allowed};
  return plain;
}

SelectionResult SelectByRow(const AnyDraftedPlan& drafted,
                            const PlanSelection& selection, bool verifies) {
  const std::vector<SelectionRow> logits_rows =
      SelectionRowsOf(selection, verifies);
  StepPlan plan;
  plan.num_logits = drafted.plan.num_logits;
  for (const SelectionRow& logits_row : logits_rows) {
    plan.selections.push_back(PlainSelection(selection, logits_row));
  }
  std::vector<Candidate> drawn;
  std::vector<TokenLogProb> logprobs;
  for (const SelectionResult& answer : drafted.Select(plan)) {
    drawn.push_back(answer.candidates.at(0));
    if (!answer.logprobs.empty()) logprobs.push_back(answer.logprobs.at(0));
  }
  return MergeSelectionRows(selection, logits_rows, drawn, logprobs);
}

TEST(SelectionRowsTest, DrawWhatVerificationOnTheHostGives) {
  int num_accepted = 0;
  int num_rejected = 0;
  for (int seed = 1; seed <= testing::Cases(300, 30); ++seed) {
    SCOPED_TRACE(seed);
    const AnyDraftedPlan drafted(seed);
    const std::vector<SelectionResult> expected = drafted.Select(drafted.plan);
    for (size_t s = 0; s < expected.size(); ++s) {
      const PlanSelection& selection = drafted.plan.selections[s];
      const SelectionResult actual = SelectByRow(drafted, selection, true);
      EXPECT_EQ(actual.request, selection.request);
      EXPECT_EQ(actual.num_tokens, expected[s].num_tokens);
      EXPECT_EQ(actual.candidates, expected[s].candidates);
      EXPECT_EQ(actual.logprobs, expected[s].logprobs);
      EXPECT_FALSE(actual.has_unverified_drafts);
      for (size_t row = 0; row < selection.drafts().size(); ++row) {
        num_accepted += actual.num_tokens[row] - 1;
        num_rejected += static_cast<int>(selection.drafts()[row].size()) + 1 -
                        actual.num_tokens[row];
      }
    }
  }
  EXPECT_GT(num_accepted, testing::Cases(500, 50));
  EXPECT_GT(num_rejected, testing::Cases(200, 15));
}

// Rejection may give the token that it rejected, where that is all there is.
TEST(SelectionRowsTest, RunsEndWhereVerificationDid) {
  PlanSelection selection;
  auto params = std::make_shared<SelectionParams>();
  params->verify_mode = VerifyMode::kRejection;
  selection.params = params;
  selection.num_rows = 2;
  selection.cum_log_probs = {-1, -2};
  selection.choice =
      DrawSelection{.samples = {0, 1}, .drafts = {.tokens = {{5, 6, 7}, {8}}}};
  EXPECT_TRUE(IsByRejection(selection));
  EXPECT_FALSE(HasDraftRows(selection));
  const std::vector<SelectionRow> logits_rows = SelectionRowsOf(selection);
  const Candidate behind = {-1, kNoToken, -INFINITY};
  const std::vector<Candidate> drawn = {
      {0, 5, -0.5f}, {1, 6, -0.25f}, behind, behind, {4, 8, -1}, {5, 3, -1}};
  const SelectionResult merged =
      MergeSelectionRows(selection, logits_rows, drawn, {});
  EXPECT_THAT(merged.num_tokens, ElementsAre(2, 2));
  EXPECT_THAT(merged.candidates,
              ElementsAre(Candidate{0, 5, -1.5f}, Candidate{0, 6, -1.75f},
                          Candidate{1, 8, -3}, Candidate{1, 3, -4}));
}

TEST(SelectionRowsTest, WithoutVerificationRunsHaveTheFirstTokenAlone) {
  for (int seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    const AnyDraftedPlan drafted(seed);
    const std::vector<SelectionResult> all = drafted.Select(drafted.plan);
    for (size_t s = 0; s < all.size(); ++s) {
      const PlanSelection& selection = drafted.plan.selections[s];
      const SelectionResult actual = SelectByRow(drafted, selection, false);
      ASSERT_EQ(std::ssize(actual.candidates), selection.num_rows);
      EXPECT_EQ(actual.num_tokens,
                std::vector<int>(selection.drafts().size(), 1));
      EXPECT_EQ(actual.has_unverified_drafts,
                std::ranges::any_of(selection.drafts(), [](const auto& draft) {
                  return !draft.empty();
                }));
      size_t first = 0;
      for (int row = 0; row < selection.num_rows; ++row) {
        EXPECT_EQ(actual.candidates[row], all[s].candidates[first]);
        first += all[s].num_tokens.empty() ? 1 : all[s].num_tokens[row];
      }
    }
  }
}

TEST(SelectionRowsTest, ARowHasWhatItsDraftsAddToTheText) {
  PlanSelection selection;
  auto params = std::make_shared<SelectionParams>();
  params->processors.frequency_penalty = 1;
  params->processors.logit_bias = {{.token = 3, .bias = 1}};
  selection.params = params;
  selection.num_rows = 1;
  DrawSelection& draws = selection.Choose<DrawSelection>();
  draws.samples = {7};
  selection.cum_log_probs = {-1};
  selection.num_generated = 2;
  EXPECT_FALSE(HasDifferentRows(selection));
  selection.histories = {{5, 6}};
  draws.drafts.tokens = {{8, 9}};
  EXPECT_TRUE(HasDifferentRows(selection));
  const std::vector<SelectionRow> logits_rows = SelectionRowsOf(selection);
  ASSERT_EQ(logits_rows.size(), 3u);
  EXPECT_EQ(logits_rows[2].sample, 7);
  EXPECT_EQ(logits_rows[2].draft_idx, 2);
  EXPECT_EQ(logits_rows[2].num_generated, 4);
  EXPECT_THAT(logits_rows[2].history(), ElementsAre(5, 6, 8, 9));
  // One copy of the text.
  EXPECT_EQ(logits_rows[2].history().data(), logits_rows[0].history().data());
  EXPECT_EQ(MaxEditsOf(selection, logits_rows[2], 100), 5);
  EXPECT_EQ(MaxEditsOf(selection, logits_rows[2], 4), 4);
  const std::vector<TokenId> allowed = {1, 2};
  selection.allowed = {allowed, {}, allowed};
  EXPECT_EQ(MaxEditsOf(selection, SelectionRowsOf(selection)[2], 100), 2);
  EXPECT_THAT(*SelectionRowsOf(selection)[1].allowed, IsEmpty());
  // A mask takes no edits.
  selection.allowed.clear();
  selection.places = {{4, 9}, {}, {6, 7}};
  EXPECT_EQ(*SelectionRowsOf(selection)[2].place, (ConstraintPlace{6, 7}));
  EXPECT_EQ(MaxEditsOf(selection, SelectionRowsOf(selection)[2], 100), 5);
  EXPECT_EQ(SelectionRowsOf(selection, false).size(), 1u);
}

// All at once: a selection of many samples is gone through row by row.
TEST(SelectionRowsTest, RowsOfLogitsBeginBehindTheDraftsOfThoseBefore) {
  PlanSelection selection;
  selection.first_logits = 5;
  selection.num_rows = 3;
  EXPECT_THAT(selection.FirstLogits(), ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(selection.num_logits(), 3);
  selection.Choose<DrawSelection>().drafts.tokens = {{1, 2}, {}, {3}};
  EXPECT_THAT(selection.FirstLogits(), ElementsAre(5, 8, 9, 11));
  EXPECT_EQ(selection.num_logits(), 6);
  // Beams have a row for each path.
  selection.num_rows = 2;
  selection.Choose<BeamSelection>().paths = {.ranks = {0, 0, 1},
                                             .drafts = {{1, 2}, {}, {3}}};
  EXPECT_THAT(selection.FirstLogits(), ElementsAre(5, 8, 9, 11));
  selection.num_rows = 0;
  selection.EditBeams().paths = {};
  EXPECT_THAT(selection.FirstLogits(), ElementsAre(5));
  EXPECT_EQ(selection.num_logits(), 0);
}

TEST(SelectionRowsTest, AnEditKeepsTheKind) {
  PlanSelection selection;
  selection.Choose<DrawSelection>().samples = {3};
  EXPECT_EQ(&selection.EditDraws(), selection.as_draws());
  EXPECT_THAT(selection.as_draws()->samples, ElementsAre(3));
  EXPECT_DEATH(selection.EditBeams(), "a selection of kind 2");
  EXPECT_DEATH(selection.EditRows(), "a selection of kind 2");
}

}  // namespace
}  // namespace espalier
