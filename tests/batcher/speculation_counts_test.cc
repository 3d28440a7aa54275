// A scheduler's speculation counters, step by step: they are recomputed from
// the drafts in plans and the accepted tokens in results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "batcher/prometheus_text.h"
#include "batcher/scheduler/scheduler.h"
#include "executor/drafts/draft_model.h"
#include "tests/batcher/blended_model.h"
#include "tests/batcher/toy_requests.h"
#include "tests/prometheus_checker.h"
#include "tests/status_matchers.h"
#include "tests/toy_model.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

ToyModelOptions RepeatingModel() {
  ToyModelOptions options;
  options.num_tokens_read = 2;
  options.num_pages = 2000;
  options.has_shareable_pages = true;
  options.eos_boost = -1;
  return options;
}

class SpeculationCountsTest : public ::testing::Test {
 protected:
  SpeculationCountsTest() : model_(RepeatingModel()) {
    // It disagrees with the model now and then.
    const ToyModelOptions draft = RepeatingModel();
    draft_ = *DraftModel::Create(
        std::make_shared<BlendedModel>(draft, /*other_seed=*/4, 0.2f),
        *ThreadPool::Create(1));
    ModelDescription description = model_.description();
    description.limits.max_drafted_length = std::numeric_limits<int>::max();
    description_ = description;
    scheduler_ = std::make_unique<Scheduler>(description, SchedulerOptions());
  }

  void Submit(Request request) {
    ASSERT_OK(ValidateRequest(description_, &request));
    speculates_.push_back(request.params.speculate.has_value());
    ends_by_eos_.push_back(!request.params.ignore_eos);
    scheduler_->Submit(
        RequestId{num_submitted_++}, PreparedRequest(std::move(request)),
        [this](const absl::StatusOr<Result>& result) {
          if (!result.ok()) return;
          num_accepted_of_results_ += result->usage.num_accepted_tokens;
          num_drafted_of_results_ += result->usage.num_drafted_tokens;
        });
  }

  // False if there is nothing to run.
  bool Step() {
    StepPlan plan = scheduler_->Plan();
    if (plan.is_noop()) return false;
    if (!plan.rows.empty()) ++num_steps_;
    if (plan.rows.empty() && !plan.drafting.empty()) ++num_draft_steps_;
    num_fed_ += std::ssize(plan.tokens);  // as planned: drafts may end early
    for (const PlanSelection& selection : plan.selections) {
      for (const std::vector<TokenId>& draft : selection.drafts()) {
        if (selection.as_draws() == nullptr) break;
        num_planned_ += std::ssize(draft);
      }
    }
    absl::StatusOr<StepResult> result = RunPlan(model_, &plan, draft_.get());
    EXPECT_OK(result);
    Count(plan, *result);
    scheduler_->Advance(std::move(result));
    return true;
  }

  // Tokens of a run up to an EOS id that ends its sample, if one does.
  static int NumUntilEnd(std::span<const Candidate> run, bool ends_by_eos) {
    const auto is_end = [&](const Candidate& drawn) {
      return ends_by_eos && drawn.token == 0;
    };
    const auto end = std::ranges::find_if(run, is_end);
    const auto num_tokens = static_cast<int>(end - run.begin());
    return end == run.end() ? num_tokens : num_tokens + 1;
  }

  // Counts samples' drafts and accepted tokens from a plan and its result.
  void Count(const StepPlan& plan, const StepResult& result) {
    for (size_t i = 0; i < plan.selections.size(); ++i) {
      const PlanSelection& selection = plan.selections[i];
      const bool is_counted = speculates_[selection.request.value] &&
                              selection.kind() == SelectionKind::kDraws;
      if (!is_counted || selection.num_generated == 0) continue;
      const SelectionResult& answer = result.selections[i];
      std::span<const Candidate> left = answer.candidates;
      for (int row = 0; row < selection.num_rows; ++row) {
        const int num_drafted =
            selection.drafts().empty()
                ? 0
                : static_cast<int>(selection.drafts()[row].size());
        const int num_drawn =
            selection.drafts().empty() ? 1 : answer.num_tokens[row];
        const int num_given = NumUntilEnd(
            left.first(num_drawn), ends_by_eos_[selection.request.value]);
        num_ends_in_drafts_ += num_given < num_drawn;
        expected_.Record(num_drafted, std::min(num_drawn - 1, num_given),
                         num_given);
        left = left.subspan(num_drawn);
      }
    }
  }

  void ExpectCounted() {
    const SchedulerStats& stats = scheduler_->stats();
    EXPECT_EQ(stats.speculation, expected_);
    EXPECT_EQ(stats.num_drafted_tokens, expected_.num_drafted_tokens);
    EXPECT_EQ(stats.num_draft_tokens_fed, num_planned_);
    EXPECT_EQ(stats.num_prompt_tokens + stats.num_decode_rows +
                  stats.num_draft_tokens_fed,
              num_fed_);
    EXPECT_EQ(stats.num_accepted_tokens, expected_.num_accepted_tokens);
    EXPECT_EQ(stats.num_steps, num_steps_);
    EXPECT_EQ(stats.num_draft_steps, num_draft_steps_);
  }

  static Request Samples(SpeculationMethod method, int num_samples,
                         SpeculationMode mode = SpeculationMode::kCoupled) {
    Request request = LongRequest(40);
    request.params.do_sample = true;
    request.params.temperature = 0.6;
    request.params.seed = 7;
    request.params.num_return_sequences = num_samples;
    request.params.speculate = {method, 6, mode};
    return request;
  }

  ToyModel model_;
  std::unique_ptr<DraftModel> draft_;
  ModelDescription description_;
  std::unique_ptr<Scheduler> scheduler_;
  SpeculationFigures expected_;
  std::vector<bool> speculates_;  // by request
  std::vector<bool> ends_by_eos_;
  int num_ends_in_drafts_ = 0;
  int num_submitted_ = 0;
  int64_t num_fed_ = 0;
  int64_t num_planned_ = 0;  // drafts of samples
  int64_t num_steps_ = 0;
  int64_t num_draft_steps_ = 0;
  int64_t num_accepted_of_results_ = 0;
  int64_t num_drafted_of_results_ = 0;
};

TEST_F(SpeculationCountsTest, EveryStepOfSamplesIsCountedWhenItIsAnswered) {
  Submit(Samples(SpeculationMethod::kNgram, 4));
  Submit(Samples(SpeculationMethod::kSuffix, 3));
  Submit(Samples(SpeculationMethod::kDraft, 4));
  Submit(Samples(SpeculationMethod::kDraft, 2, SpeculationMode::kRejection));
  Submit(LongRequest(9));
  for (int step = 0; Step(); ++step) {
    ExpectCounted();
    if (HasFailure()) return;
    // Accepted tokens of cancelled requests still count.
    for (int64_t id = 0; step == 15 && id < 2; ++id) {
      scheduler_->Cancel(RequestId{id}, absl::CancelledError(""));
    }
  }
  EXPECT_GT(expected_.num_accepted_tokens, 40);
  EXPECT_LT(expected_.num_accepted_tokens, expected_.num_drafted_tokens);
  EXPECT_GT(expected_.num_accepted_at[2], 0);
  EXPECT_GT(num_accepted_of_results_, 0);
  EXPECT_LT(num_accepted_of_results_, expected_.num_accepted_tokens);
}

// A sampled draft may end in an EOS id. The model's token after it is not
// counted.
TEST_F(SpeculationCountsTest, NothingIsCountedAfterTheEndOfASample) {
  for (int i = 0; i < 10; ++i) {
    Request request =
        Samples(SpeculationMethod::kDraft, 4, SpeculationMode::kRejection);
    request.params.ignore_eos = false;
    request.params.seed = i;
    Submit(request);
  }
  while (Step()) {
    ExpectCounted();
    if (HasFailure()) return;
  }
  EXPECT_GT(num_ends_in_drafts_, 3);
}

// As `usage` has them, in tokens on paths; by place they are steps of a search.
TEST_F(SpeculationCountsTest, BeamsCountTokensOnPathsAndStepsByPlace) {
  Request beams = LongRequest(40);
  beams.params.num_beams = 3;
  beams.params.speculate = {SpeculationMethod::kDraft, 6};
  Submit(beams);
  while (Step()) continue;
  const SchedulerStats& stats = scheduler_->stats();
  EXPECT_GT(stats.num_accepted_tokens, 0);
  EXPECT_EQ(stats.num_accepted_tokens, num_accepted_of_results_);
  EXPECT_EQ(stats.num_drafted_tokens, num_drafted_of_results_);
  EXPECT_LE(stats.num_drafted_tokens, stats.num_draft_tokens_fed);
  EXPECT_EQ(stats.num_prompt_tokens + stats.num_decode_rows +
                stats.num_draft_tokens_fed,
            num_fed_);
  EXPECT_EQ(stats.num_steps, num_steps_);
  // 40 tokens: the prompt's step gives the first.
  EXPECT_EQ(stats.speculation.num_tokens, 39);
  EXPECT_EQ(stats.speculation.num_accepted_tokens, 40 - stats.num_steps);
  // All but the prompt's.
  EXPECT_EQ(stats.speculation.num_target_steps, stats.num_steps - 1);
}

// The history of a text that does not repeat itself has a draft now and then.
TEST_F(SpeculationCountsTest, StepsOfBeamsWithoutDraftsCountToo) {
  Request beams = LongRequest(40);
  beams.params.num_beams = 3;
  beams.params.speculate = {SpeculationMethod::kNgram, 6};
  Submit(beams);
  while (Step()) continue;
  const SchedulerStats& stats = scheduler_->stats();
  EXPECT_GT(stats.num_drafted_tokens, 0);
  EXPECT_EQ(stats.speculation.num_tokens, 39);
  EXPECT_EQ(stats.speculation.num_accepted_tokens, 40 - stats.num_steps);
  EXPECT_EQ(stats.speculation.num_target_steps, stats.num_steps - 1);
}

TEST_F(SpeculationCountsTest, PrometheusHasThemByPosition) {
  Submit(Samples(SpeculationMethod::kDraft, 4));
  while (Step()) continue;
  EngineStats stats;
  static_cast<SchedulerStats&>(stats) = scheduler_->stats();
  ASSERT_OK_AND_ASSIGN(const PrometheusSamples samples,
                       ReadPrometheus(PrometheusText(stats)));
  int64_t num_drafted = 0, num_accepted = 0;
  for (int i = 0; i < kMaxDraftTokens; ++i) {
    const std::string place = "{position=\"" + std::to_string(i) + "\"}";
    const double drafted = samples.at(
        "espalier:spec_decode_num_draft_tokens_per_pos_total" + place);
    const double accepted = samples.at(
        "vllm:spec_decode_num_accepted_tokens_per_pos_total" + place);
    EXPECT_EQ(drafted, expected_.num_drafted_at[i]);
    EXPECT_EQ(accepted, expected_.num_accepted_at[i]);
    num_drafted += static_cast<int64_t>(drafted);
    num_accepted += static_cast<int64_t>(accepted);
  }
  EXPECT_EQ(samples.at("vllm:spec_decode_num_draft_tokens_total"), num_drafted);
  EXPECT_EQ(samples.at("vllm:spec_decode_num_accepted_tokens_total"),
            num_accepted);
  EXPECT_EQ(samples.at("vllm:spec_decode_num_drafts_total"),
            expected_.num_drafted_at[0]);
  EXPECT_EQ(samples.at("espalier:spec_decode_num_target_steps_total"),
            expected_.num_target_steps);
  EXPECT_EQ(samples.at("espalier:spec_decode_num_tokens_total"),
            expected_.num_tokens);
  EXPECT_EQ(samples.at("espalier:steps_total"), num_steps_);
  EXPECT_EQ(samples.at("espalier:draft_steps_total"), num_draft_steps_);
  EXPECT_GT(num_accepted, 20);
  EXPECT_EQ(num_draft_steps_, 0);  // samples draft within their steps
}

}  // namespace
}  // namespace espalier
