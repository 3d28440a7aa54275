#include "executor/host/model_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <vector>

#include "executor/host/select_all.h"
#include "kernels/select/merge_candidates.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using ::espalier::testing::MakeExecutor;
using ::espalier::testing::MakePool;
using ::espalier::testing::StatusIs;
using ::espalier::testing::Unowned;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kVocabSize = 50;

// Fills logits with its step number, and fails in the requested way.
class CountingModel : public Model {
 public:
  const ModelDescription& description() const override { return description_; }
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    steps.push_back(plan.tokens.at(0));
    if (plan.tokens[0] == 1) return absl::DataLossError("bad page");
    if (plan.tokens[0] == 2) throw std::runtime_error("no idea");
    if (plan.tokens[0] == 3) throw std::bad_alloc();
    std::fill(logits.begin(), logits.end(), 0.0f);
    return absl::OkStatus();
  }

  std::vector<TokenId> steps;

 private:
  const ModelDescription description_{
      .vocab_size = kVocabSize, .max_context = 64, .num_pages = 4};
};

StepPlan PlanOf(TokenId token) {
  StepPlan plan;
  plan.tokens = {token};
  plan.rows = {{.num_tokens = 1}};
  return plan;
}

TEST(ModelExecutorTest, PlansRunInOrderAndAllReportBeforeItEnds) {
  CountingModel model;
  std::vector<TokenId> reported;
  {
    const auto executor = MakeExecutor(&model);
    for (const TokenId token : {10, 11, 12, 13}) {
      executor->Execute(PlanOf(token), [&reported, token](auto result) {
        EXPECT_OK(result);
        reported.push_back(token);
      });
    }
  }
  EXPECT_THAT(model.steps, ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(reported, ElementsAre(10, 11, 12, 13));
}

TEST(ModelExecutorTest, WhateverTheModelDoesIsAStatusAndTheNextPlanRuns) {
  CountingModel model;
  const auto executor = MakeExecutor(&model);
  const auto run = [&](TokenId token) {
    std::promise<absl::StatusOr<StepResult>> answer;
    executor->Execute(PlanOf(token), [&](auto result) {
      answer.set_value(std::move(result));
    });
    return answer.get_future().get();
  };
  EXPECT_THAT(run(1), StatusIs(absl::StatusCode::kDataLoss, "bad page"));
  EXPECT_THAT(run(2), StatusIs(absl::StatusCode::kInternal,
                               "the model threw: no idea"));
  EXPECT_THAT(run(3), StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("not enough memory")));
  EXPECT_OK(run(4));
}

// Keeps how many tokens each step fed.
class DraftingModel : public Model {
 public:
  const ModelDescription& description() const override { return description_; }
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    num_fed.push_back(static_cast<int>(plan.tokens.size()));
    std::fill(logits.begin(), logits.end(), 0.0f);
    return absl::OkStatus();
  }

  std::vector<int> num_fed;

 private:
  const ModelDescription description_{.vocab_size = kVocabSize,
                                      .max_context = 64,
                                      .num_pages = 4,
                                      .has_shareable_pages = true};
};

// The tokens that the draft model feeds next show what it has kept of a
// request.
TEST(ModelExecutorTest, TheDraftModelForgetsWhoEndsInAPlanThatFails) {
  CountingModel model;
  DraftingModel draft;
  const auto executor =
      MakeExecutor(&model, 1, {.draft_model = Unowned(&draft)});
  const auto run = [&](StepPlan plan) {
    std::promise<absl::Status> answer;
    executor->Execute(std::move(plan),
                      [&](auto result) { answer.set_value(result.status()); });
    return answer.get_future().get();
  };
  const auto prompt =
      std::make_shared<const std::vector<TokenId>>(std::vector{5, 6, 7});
  StepPlan drafts = PlanOf(10);
  drafts.drafting = {{.request = RequestId{3},
                      .prompt = prompt,
                      .generated = {8},
                      .params = PlanSelection::DefaultParams()}};
  EXPECT_OK(run(drafts));
  EXPECT_OK(run(drafts));
  for (const TokenId fault : {1, 2, 3}) {
    StepPlan fails = PlanOf(fault);
    fails.ended = {RequestId{3}};
    EXPECT_FALSE(run(fails).ok());
    EXPECT_OK(run(drafts));
  }
  EXPECT_THAT(draft.num_fed, ElementsAre(4, 1, 4, 4, 4));
}

// Runs until it is cancelled.
class EndlessModel : public Model {
 public:
  const ModelDescription& description() const override { return description_; }
  absl::Status Forward(const StepPlan& plan, std::span<float>) override {
    started.set_value();
    while (!plan.stop.stop_requested()) std::this_thread::yield();
    return absl::OkStatus();  // as if it had not looked
  }

  std::promise<void> started;

 private:
  const ModelDescription description_{
      .vocab_size = kVocabSize, .max_context = 8, .num_pages = 1};
};

// Runs out of memory before it reads a plan, if requested.
class ForgetfulModel : public Model {
 public:
  const ModelDescription& description() const override {
    if (fails) throw std::bad_alloc();
    return description_;
  }
  absl::Status Forward(const StepPlan& plan, std::span<float>) override {
    forks.insert(forks.end(), plan.forks.begin(), plan.forks.end());
    finished.insert(finished.end(), plan.finished.begin(), plan.finished.end());
    return absl::OkStatus();
  }

  bool fails = false;
  std::vector<SequenceFork> forks;
  std::vector<SequenceId> finished;

 private:
  const ModelDescription description_{
      .vocab_size = kVocabSize, .max_context = 64, .num_pages = 4};
};

TEST(ModelExecutorTest, WhatTheModelWasNotToldTheNextPlanSaysFirst) {
  ForgetfulModel model;
  const auto executor = MakeExecutor(&model);
  std::vector<SequenceFork> forks;
  std::vector<SequenceId> finished;
  for (int i = 0; i < 6; ++i) {
    model.fails = i % 3 != 2;
    StepPlan plan = PlanOf(10);
    plan.forks = {{SequenceId{i}, SequenceId{i + 10}}};
    plan.finished = {SequenceId{i + 20}, SequenceId{i + 30}};
    forks.insert(forks.end(), plan.forks.begin(), plan.forks.end());
    finished.insert(finished.end(), plan.finished.begin(), plan.finished.end());
    std::promise<absl::Status> answer;
    executor->Execute(std::move(plan),
                      [&](auto result) { answer.set_value(result.status()); });
    EXPECT_EQ(answer.get_future().get().ok(), !model.fails);
  }
  EXPECT_EQ(model.forks, forks);
  EXPECT_EQ(model.finished, finished);
}

TEST(ModelExecutorTest, APlanIsGivenUpOnceAStopIsRequested) {
  EndlessModel model;
  const auto executor = MakeExecutor(&model);
  std::stop_source stop;
  StepPlan plan = PlanOf(10);
  plan.stop = stop.get_token();
  std::promise<absl::StatusOr<StepResult>> answer;
  executor->Execute(std::move(plan),
                    [&](auto result) { answer.set_value(std::move(result)); });
  model.started.get_future().wait();
  stop.request_stop();
  EXPECT_THAT(answer.get_future().get(),
              StatusIs(absl::StatusCode::kCancelled, "the step was given up"));
}

// A bound is never 0, and never above the model's own.
TEST(ModelExecutorTest, EveryBoundIsFiniteAndTheLowerOneHolds) {
  class Sized : public CountingModel {
   public:
    explicit Sized(const ModelDescription& description)
        : description_(description) {}
    const ModelDescription& description() const override {
      return description_;
    }

   private:
    const ModelDescription description_;
  };
  const auto limits_of = [](int vocab_size, const ModelExecutorOptions& options,
                            const StepLimits& of_model) {
    Sized model({.vocab_size = vocab_size,
                 .max_context = 8,
                 .num_pages = 1,
                 .limits = of_model});
    return MakeExecutor(&model, 1, options)->description().limits;
  };
  EXPECT_EQ(limits_of(6000, {}, {}).max_beams, 8192);
  EXPECT_EQ(limits_of(1 << 16, {}, {}).max_beams, 4096);
  EXPECT_EQ(limits_of(1 << 30, {}, {}).max_beams, 1);
  EXPECT_EQ(limits_of(1 << 16, {.max_beams = 9000}, {}).max_beams, 9000);
  EXPECT_EQ(limits_of(50, {}, {.max_beams = 3}).max_beams, 3);
  const StepLimits set =
      limits_of(50, {.max_candidates = 70, .max_score_edits = 80}, {});
  EXPECT_EQ(set.max_candidates, 70);
  EXPECT_EQ(set.max_best_tokens, 70);
  EXPECT_EQ(set.max_score_edits, 80);
  const StepLimits of_model = limits_of(
      50, {},
      {.max_score_edits = 8, .max_candidates = 7, .max_best_tokens = 6});
  EXPECT_EQ(of_model.max_candidates, 7);
  EXPECT_EQ(of_model.max_best_tokens, 6);
  EXPECT_EQ(of_model.max_score_edits, 8);
}

TEST(ModelExecutorTest, ABoundThatLeavesNothingIsAnError) {
  CountingModel model;
  const auto create = [&](const ModelExecutorOptions& options) {
    return ModelExecutor::Create(Unowned(&model), MakePool(1), options);
  };
  EXPECT_THAT(create({.max_beams = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "max_beams must be at least 0, got -1"));
  EXPECT_THAT(create({.max_candidates = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "max_candidates must be at least 1, got 0"));
  EXPECT_THAT(create({.max_score_edits = -5}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "max_score_edits must be at least 0, got -5"));
  EXPECT_OK(create({.max_candidates = 1, .max_score_edits = 0}));
}

// An asynchronously scheduled group feeds the tokens that it selected. If its
// state was lost, it gets an empty result instead of waiting, and other groups
// continue.
TEST(ModelExecutorTest, RunningAheadAGroupGoesOnUntilAPlanOfItsFails) {
  CountingModel model;
  const auto executor = MakeExecutor(&model, 1, {.run_ahead = true});
  EXPECT_EQ(executor->max_plans_in_flight(), 2);
  const auto run = [&](StepPlan plan) {
    std::promise<absl::StatusOr<StepResult>> answer;
    executor->Execute(std::move(plan), [&](auto result) {
      answer.set_value(std::move(result));
    });
    return answer.get_future().get();
  };
  StepPlan prompt = PlanOf(10);
  prompt.rows[0].num_logits = 1;
  prompt.num_logits = 1;
  prompt.page_indptr = {0, 1};
  prompt.page_indices = {PageId{0}};
  PlanSelection selection;
  selection.request = RequestId{5};
  selection.num_rows = 1;
  selection.choice = BeamSelection{.num_candidates = 1};
  selection.cum_log_probs = {0};
  selection.slots = {0};
  SelectionParams params;
  params.processors.suppress_tokens = {0, 1, 2, 3};
  selection.params = std::make_shared<const SelectionParams>(params);
  prompt.selections = {selection};
  StepPlan next;
  next.continuations.push_back({.request = RequestId{5},
                                .position = 1,
                                .tail_pages = {PageId{0}},
                                .num_candidates = 1});
  ASSERT_OK(run(prompt));
  absl::StatusOr<StepResult> result = run(next);  // feeds 4, selects 0
  ASSERT_OK(result);
  EXPECT_THAT(result->selections.at(0).candidates, SizeIs(1));
  EXPECT_OK(run(next));
  prompt.tokens = {1};
  EXPECT_THAT(run(prompt), StatusIs(absl::StatusCode::kDataLoss, "bad page"));
  next.rows = {{.num_tokens = 1}};  // a row of another group
  next.tokens = {11};
  next.page_indptr = {0, 0};
  result = run(next);
  ASSERT_OK(result);
  EXPECT_EQ(result->selections.at(0).request, RequestId{5});
  EXPECT_THAT(result->selections.at(0).candidates, IsEmpty());
  EXPECT_THAT(model.steps, ElementsAre(10, 4, 0, 1, 11));
}

// Groups of any width, with and without processors, against the twins.
TEST(SelectAllTest, EveryGroupGetsWhatItsRowsAloneWouldGive) {
  std::mt19937 random(71);
  std::uniform_real_distribution<float> logit(-9, 9);
  StepPlan plan;
  for (int i = 0; i < 12; ++i) {
    PlanSelection selection;
    selection.request = RequestId{i};
    selection.first_logits = plan.num_logits;
    selection.num_rows = 1 + i % 4;
    selection.choice = BeamSelection{.num_candidates = 2 * selection.num_rows};
    SelectionParams params;
    if (i == 4) params.domain = ScoreDomain::kLogits;
    selection.num_generated = i;
    for (int row = 0; row < selection.num_rows; ++row) {
      selection.cum_log_probs.push_back(logit(random));
      selection.histories.push_back({1, 2, 3, row, i});
    }
    if (i % 3 == 0) {
      params.processors.repetition_penalty = 1.7f;
      params.processors.suppress_tokens = {i, 40};
    } else {
      selection.histories.clear();
    }
    selection.params = std::make_shared<const SelectionParams>(params);
    plan.num_logits += selection.num_rows;
    plan.selections.push_back(selection);
  }
  std::vector<float> logits(plan.num_logits * kVocabSize);
  for (float& value : logits) value = logit(random);

  const auto pool = MakePool(3);
  const auto results = SelectAll(plan, logits, kVocabSize, *pool);
  ASSERT_EQ(results.size(), plan.selections.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const PlanSelection& selection = plan.selections[i];
    std::vector<std::vector<TokenScore>> rows;
    for (int row = 0; row < selection.num_rows; ++row) {
      RowOptions options;
      options.domain = selection.params->domain;
      options.num_candidates = selection.num_candidates();
      std::vector<TokenEdit> edits;
      const ScoreProcessors& processors = selection.params->processors;
      if (!selection.histories.empty()) {
        edits = CollectEdits(processors, selection.histories[row],
                             selection.num_generated, kVocabSize)
                    .edits;
        options.edits = edits;
        options.repetition_penalty = processors.repetition_penalty;
      }
      const size_t logits_row = selection.first_logits + row;
      rows.push_back(reference::SelectRow(
          std::span(logits).subspan(logits_row * kVocabSize, kVocabSize),
          options));
    }
    const auto expected = reference::MergeCandidates(
        rows, selection.cum_log_probs, selection.num_candidates());
    EXPECT_EQ(results[i].request, selection.request);
    ASSERT_EQ(results[i].candidates.size(), expected.size());
    for (size_t c = 0; c < expected.size(); ++c) {
      EXPECT_EQ(results[i].candidates[c].beam, expected[c].beam);
      EXPECT_EQ(results[i].candidates[c].token, expected[c].token);
      EXPECT_NEAR(results[i].candidates[c].cum_log_prob,
                  expected[c].cum_log_prob, 1e-5);
    }
  }
}

}  // namespace
}  // namespace espalier
