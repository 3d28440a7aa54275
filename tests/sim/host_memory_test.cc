// Preempted groups go to host memory and come back: tokens that are fed again,
// and the fate of slots when other events happen meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "tests/batcher/toy_requests.h"
#include "tests/sim/sim_model.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

Request SearchOf(std::vector<TokenId> prompt, int64_t num_beams,
                 int64_t max_new_tokens) {
  Request request{std::move(prompt), {}};
  request.params.num_beams = num_beams;
  request.params.num_return_sequences = num_beams;
  request.params.max_new_tokens = max_new_tokens;
  request.params.ignore_eos = true;
  return request;
}

// Samples do not share their generated tokens.
Request SamplesOf(std::vector<TokenId> prompt, int64_t num_samples,
                  int64_t max_new_tokens) {
  Request request = SearchOf(std::move(prompt), 1, max_new_tokens);
  request.params.do_sample = true;
  request.params.num_return_sequences = num_samples;
  request.params.seed = 7;
  return request;
}

std::vector<TokenId> Prompt(int length, int first = 1) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < length; ++i) prompt.push_back(1 + (i * i + first) % 9);
  return prompt;
}

// Two requests that do not fit together to their ends: the second is preempted.
// Without a prefix tree, so that nothing else brings its pages back.
class HostMemoryTest : public ::testing::Test {
 protected:
  HostMemoryTest() {
    options_.vocab_size = 40;
    options_.page_size = 4;
    options_.num_pages = 40;
    options_.num_host_slots = 100;
    scheduling_.prefix_cache = false;
    scheduling_.preempted_pages = PreemptedPages::kHost;
    scheduling_.validate_steps = true;
    requests_ = {SearchOf(Prompt(30), 3, 40), SearchOf(Prompt(22, 5), 3, 40)};
  }

  void Start() {
    scheduler_.reset();
    model_ = std::make_unique<SimModel>(
        options_, [](RequestId) { return SimModel::Asker{}; });
    scheduler_ =
        std::make_unique<Scheduler>(model_->description(), scheduling_);
    runner_ = std::make_unique<PlanRunner>(model_.get());
    answers_.clear();
    for (int i = 0; i < std::ssize(requests_); ++i) {
      Request request = requests_[i];
      ASSERT_OK(ValidateRequest(model_->description(), &request));
      scheduler_->Submit(
          RequestId{i}, PreparedRequest(request),
          [this, i](auto result) { answers_[i] = std::move(result); });
    }
  }

  // Runs until `wanted` accepts a plan, which is returned without being run.
  StepPlan RunUntil(const std::function<bool(const StepPlan&)>& wanted) {
    while (true) {
      StepPlan plan = scheduler_->Plan();
      if (wanted(plan) || plan.is_noop()) return plan;
      scheduler_->Advance(runner_->Run(std::move(plan)));
    }
  }
  StepPlan RunUntilSaved() {
    return RunUntil([](const StepPlan& p) { return !p.page_saves.empty(); });
  }
  StepPlan RunUntilLoaded() {
    return RunUntil([](const StepPlan& p) { return !p.page_loads.empty(); });
  }
  void Run(StepPlan plan) {
    scheduler_->Advance(runner_->Run(std::move(plan)));
  }
  void Lose(const StepPlan& plan) {
    model_->Lose(plan);
    scheduler_->Advance(absl::DataLossError("the device is gone"));
  }
  void RunToTheEnd(int plans_in_flight = 1) {
    RunToEnd(
        *scheduler_, *model_, [](int) {}, plans_in_flight);
    ExpectNothingHeld(*scheduler_);
    EXPECT_EQ(scheduler_->host_pool().num_held(), 0);
  }

  void ExpectAsAlone(int i) {
    ASSERT_OK(answers_[i].status()) << i;
    SimModelOptions roomy = options_;
    roomy.num_pages = 4000;
    SimModel model(roomy, [](RequestId) { return SimModel::Asker{}; });
    Scheduler scheduler(model.description(), {.prefix_cache = false});
    Request request = requests_[i];
    ASSERT_OK(ValidateRequest(model.description(), &request));
    absl::StatusOr<Result> alone;
    scheduler.Submit(RequestId{0}, PreparedRequest(request),
                     [&](auto result) { alone = std::move(result); });
    RunToEnd(scheduler, model);
    EXPECT_TRUE(SameResult(*answers_[i], *alone)) << i;
  }

  const SchedulerStats& stats() const { return scheduler_->stats(); }
  int64_t NumPromptTokens() const {
    int64_t count = 0;
    for (const Request& request : requests_) {
      count += std::ssize(request.prompt_tokens);
    }
    return count;
  }

  SimModelOptions options_;
  SchedulerOptions scheduling_;
  std::vector<Request> requests_;
  std::unique_ptr<SimModel> model_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<PlanRunner> runner_;
  std::map<int, absl::StatusOr<Result>> answers_;
};

TEST_F(HostMemoryTest, WhatIsLoadedIsNotFedAgain) {
  for (const int plans_in_flight : {1, 2}) {
    Start();
    RunToTheEnd(plans_in_flight);
    EXPECT_GT(stats().num_preemptions, 0);
    EXPECT_GT(stats().num_swapped_pages_out, 10);
    EXPECT_EQ(stats().num_swapped_pages_in, stats().num_swapped_pages_out);
    EXPECT_EQ(stats().num_prompt_tokens, NumPromptTokens());
    EXPECT_EQ(stats().num_tokens_fed_again, 0);
    EXPECT_GT(stats().num_tokens_loaded_again, 0);
    ExpectAsAlone(0);
    ExpectAsAlone(1);
  }
  scheduling_.preempted_pages = PreemptedPages::kDrop;
  Start();
  RunToTheEnd();
  EXPECT_EQ(stats().num_swapped_pages_out, 0);
  EXPECT_GT(stats().num_tokens_fed_again, 0);
  ExpectAsAlone(1);
}

TEST_F(HostMemoryTest, APromptThatIsHalfFedComesBack) {
  scheduling_.max_step_tokens = 5;
  requests_ = {SamplesOf(Prompt(30), 3, 40), SearchOf(Prompt(70, 5), 2, 3)};
  Start();
  RunToTheEnd();
  EXPECT_GT(stats().num_swapped_pages_out, 0);
  EXPECT_EQ(stats().num_prompt_tokens, NumPromptTokens());
  EXPECT_EQ(stats().num_tokens_fed_again, 0);
  EXPECT_GT(stats().num_tokens_loaded_again, 0);
  ExpectAsAlone(0);
  ExpectAsAlone(1);
}

TEST_F(HostMemoryTest, WhereSlotsRunOutTheLastTokensAreFedAgain) {
  for (const int num_slots : {1, 3, 6, 9}) {
    options_.num_host_slots = num_slots;
    Start();
    RunToTheEnd();
    EXPECT_EQ(stats().num_swapped_pages_in, num_slots);
    EXPECT_GT(stats().num_tokens_fed_again, 0);
    ExpectAsAlone(0);
    ExpectAsAlone(1);
  }
}

// Pages have 4 tokens. If a page loads in the time of 2.5 tokens, pages of 3
// and 4 tokens go to the host; if it takes the time of 5, no page does.
TEST_F(HostMemoryTest, PagesThatAreFedSoonerThanLoadedAreDropped) {
  scheduling_.preempted_pages = PreemptedPages::kAuto;
  for (const double load_time : {0.0, 2.5, 5.0}) {
    options_.load_time = load_time;
    Start();
    // The previous steps fed prompts, from which the scheduler learns the time
    // of a token.
    const auto run_timed = [&](StepPlan plan) {
      const absl::Duration time = SimModel::TimeOf(plan);
      absl::StatusOr<StepResult> result = runner_->Run(std::move(plan));
      ASSERT_OK(result.status());
      result->forward_time = time;
      scheduler_->Advance(std::move(result));
    };
    while (stats().num_preemptions == 0) run_timed(scheduler_->Plan());
    const int num_held = scheduler_->host_pool().num_held();
    if (load_time == 5.0) {
      EXPECT_EQ(num_held, 0);
    } else {
      EXPECT_GT(num_held, 0);
    }
    RunToTheEnd();
    ExpectAsAlone(1);
  }
}

TEST_F(HostMemoryTest, OneThatIsCancelledWhilePreemptedGivesItsSlotsBack) {
  Start();
  Run(RunUntilSaved());
  EXPECT_GT(scheduler_->host_pool().num_held(), 0);
  EXPECT_EQ(scheduler_->num_preempted(), 1);
  scheduler_->Cancel(RequestId{1}, absl::CancelledError("stop"));
  EXPECT_EQ(scheduler_->host_pool().num_held(), 0);
  RunToTheEnd();
  ExpectAsAlone(0);
}

TEST_F(HostMemoryTest, OneThatIsCancelledWhileItIsSavedGivesItsSlotsBack) {
  Start();
  StepPlan plan = RunUntilSaved();
  scheduler_->Cancel(RequestId{1}, absl::CancelledError("stop"));
  EXPECT_EQ(scheduler_->host_pool().num_held(), 0);
  Run(std::move(plan));
  RunToTheEnd();
  ExpectAsAlone(0);
}

TEST_F(HostMemoryTest, WhatAFailedPlanDidNotSaveIsFedAgain) {
  Start();
  Lose(RunUntilSaved());
  EXPECT_EQ(scheduler_->host_pool().num_held(), 0);
  EXPECT_THAT(answers_[0],
              StatusIs(absl::StatusCode::kDataLoss, "the device is gone"));
  RunToTheEnd();
  EXPECT_EQ(stats().num_swapped_pages_in, 0);
  EXPECT_GT(stats().num_tokens_fed_again, 0);
  ExpectAsAlone(1);
}

// Before that is known it does not come back.
TEST_F(HostMemoryTest, AGroupStaysPreemptedUntilItsPagesAreSaved) {
  Start();
  StepPlan saving = RunUntilSaved();
  scheduler_->Cancel(RequestId{0}, absl::CancelledError("stop"));
  EXPECT_TRUE(scheduler_->Plan().empty());
  EXPECT_EQ(scheduler_->num_preempted(), 1);
  Run(std::move(saving));
  const StepPlan next = scheduler_->Plan();
  EXPECT_FALSE(next.page_loads.empty());
  EXPECT_FALSE(next.rows.empty());
  Run(next);
  RunToTheEnd();
  ExpectAsAlone(1);
}

TEST_F(HostMemoryTest, AGroupEndsWithThePlanThatLoadsIt) {
  Start();
  StepPlan plan = RunUntilLoaded();
  ASSERT_FALSE(plan.page_loads.empty());
  Lose(plan);
  EXPECT_THAT(answers_[1],
              StatusIs(absl::StatusCode::kDataLoss, "the device is gone"));
  EXPECT_EQ(scheduler_->num_running(), 0);
  EXPECT_EQ(scheduler_->host_pool().num_held(), 0);
  RunToTheEnd();
}

TEST_F(HostMemoryTest, OneThatIsCancelledAsItComesBackGivesAllBack) {
  Start();
  StepPlan plan = RunUntilLoaded();
  ASSERT_FALSE(plan.page_loads.empty());
  scheduler_->Cancel(RequestId{1}, absl::CancelledError("stop"));
  EXPECT_EQ(scheduler_->host_pool().num_held(), 0);
  Run(std::move(plan));
  RunToTheEnd();
}

// At a deadline a group ends with its current sequences, even if its pages are
// on the host.
class HostMemoryDeadlineTest : public HostMemoryTest {
 protected:
  HostMemoryDeadlineTest() { requests_[1].params.deadline_ms = 1; }

  void Expire() {
    EXPECT_TRUE(scheduler_->first_deadline().has_value());
    scheduler_->ExpireDeadlines(*scheduler_->first_deadline());
    ASSERT_OK(answers_[1].status());
    ASSERT_FALSE(answers_[1]->hypotheses.empty());
    EXPECT_EQ(answers_[1]->hypotheses[0].finish_reason,
              FinishReason::kDeadline);
    EXPECT_EQ(scheduler_->host_pool().num_held(), 0);
  }
};

TEST_F(HostMemoryDeadlineTest, WhileItIsPreempted) {
  Start();
  Run(RunUntilSaved());
  EXPECT_GT(scheduler_->host_pool().num_held(), 0);
  Expire();
  RunToTheEnd();
  ExpectAsAlone(0);
}

TEST_F(HostMemoryDeadlineTest, WhileItIsSaved) {
  Start();
  StepPlan plan = RunUntilSaved();
  Expire();
  Run(std::move(plan));
  RunToTheEnd();
  ExpectAsAlone(0);
}

TEST_F(HostMemoryDeadlineTest, AsItComesBack) {
  Start();
  StepPlan plan = RunUntilLoaded();
  ASSERT_FALSE(plan.page_loads.empty());
  Expire();
  Run(std::move(plan));
  RunToTheEnd();
  ExpectAsAlone(0);
}

// Pages that other groups share are neither lost nor saved.
TEST_F(HostMemoryTest, PagesThatOthersHoldStayWhereTheyAre) {
  scheduling_.prefix_cache = true;
  requests_ = {SamplesOf(Prompt(30), 3, 40), SamplesOf(Prompt(30), 2, 40)};
  Start();
  const StepPlan plan = RunUntilSaved();
  ASSERT_FALSE(plan.page_saves.empty());
  // Seven full pages of the prompt are held by both.
  const PagePool& pool = scheduler_->pool();
  for (const PageSave& save : plan.page_saves) {
    EXPECT_LE(pool.ref_count(save.page), 1) << save.page;
  }
  Run(plan);
  RunToTheEnd();
  ExpectAsAlone(0);
  ExpectAsAlone(1);
}

}  // namespace
}  // namespace espalier::testing
