// Statistics of the scheduler: nothing is lost, and nothing is counted twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "batcher/engine_stats.h"
#include "batcher/scheduler/scheduler.h"
#include "tests/batcher/toy_requests.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

// A model whose pages can be shared between requests.
class SharedPagesModel : public ToyModel {
 public:
  explicit SharedPagesModel(const ToyModelOptions& options)
      : ToyModel(options), shared_(ToyModel::description()) {
    shared_.has_shareable_pages = true;
  }
  const ModelDescription& description() const override { return shared_; }

 private:
  ModelDescription shared_;
};

class EngineStatsTest : public ::testing::Test {
 protected:
  void Make(const ToyModelOptions& options, SchedulerOptions scheduling = {}) {
    scheduling.validate_steps = true;
    model_.emplace(options);
    runner_.emplace(&*model_);
    scheduler_.emplace(model_->description(), scheduling);
  }

  void Submit(Request request) {
    const absl::Status valid = ValidateRequest(model_->description(), &request);
    ASSERT_OK(valid);
    num_prompt_tokens_ += std::ssize(request.prompt_tokens);
    scheduler_->Submit(RequestId{num_submitted_++},
                       PreparedRequest(std::move(request)),
                       [this](const absl::StatusOr<Result>&) { ++num_ended_; });
  }

  // False if there is nothing to run.
  bool Step() {
    StepPlan plan = scheduler_->Plan();
    if (plan.is_noop()) return false;
    num_fed_ += std::ssize(plan.tokens);
    scheduler_->Advance(runner_->Run(std::move(plan)));
    return true;
  }

  EngineStats Stats() const {
    EngineStats stats;
    static_cast<SchedulerStats&>(stats) = scheduler_->stats();
    scheduler_->CountNow(&stats);
    return stats;
  }

  // Holds at any moment.
  void ExpectAllAccountedFor() const {
    const EngineStats stats = Stats();
    EXPECT_EQ(stats.num_requests, num_submitted_);
    EXPECT_EQ(stats.num_ended(), num_ended_);
    EXPECT_EQ(stats.num_waiting + stats.num_running + stats.num_preempted +
                  num_ended_,
              num_submitted_);
    EXPECT_EQ(stats.num_prompt_tokens + stats.num_tokens_fed_again +
                  stats.num_decode_rows,
              num_fed_);
    EXPECT_EQ(
        stats.num_pages_free + stats.num_pages_held + stats.num_pages_idle,
        stats.num_pages);
    EXPECT_GE(stats.num_pages_unshared, stats.num_pages_held);
    EXPECT_GE(stats.num_rows_waiting, stats.num_waiting + stats.num_preempted);
    EXPECT_GE(stats.num_rows_running, stats.num_running);
    EXPECT_LE(stats.num_resumptions, stats.num_preemptions);
    EXPECT_LE(stats.num_cached_tokens, stats.num_queried_tokens);
  }

  std::optional<SharedPagesModel> model_;
  std::optional<PlanRunner> runner_;
  std::optional<Scheduler> scheduler_;
  int num_submitted_ = 0;
  int num_ended_ = 0;
  int64_t num_prompt_tokens_ = 0;
  int64_t num_fed_ = 0;
};

TEST_F(EngineStatsTest, EveryRequestAndTokenIsAccountedForAtEveryStep) {
  for (const uint32_t seed : {1, 2, 3, 4}) {
    SCOPED_TRACE(seed);
    num_submitted_ = num_ended_ = 0;
    num_fed_ = 0;
    Make({.num_pages = 120}, {.max_running = 6, .max_step_tokens = 20});
    std::mt19937 random(seed);
    for (int step = 0; step < 60 || Stats().num_ended() < num_submitted_;
         ++step) {
      if (step < 60) Submit(RandomRequest(random, model_->description()));
      if (step % 7 == 0) {
        scheduler_->Cancel(RequestId{step / 2}, absl::CancelledError(""));
      }
      Step();
      ExpectAllAccountedFor();
      if (HasFailure()) return;
    }
    const EngineStats stats = Stats();
    EXPECT_GT(stats.num_failed_by(absl::StatusCode::kCancelled), 0);
    EXPECT_GT(stats.num_finished_by(FinishReason::kLength), 0);
    EXPECT_EQ(stats.num_rows_running + stats.num_rows_waiting, 0);
    EXPECT_EQ(stats.num_prompt_tokens_waiting, 0);
    EXPECT_EQ(stats.num_pages_unshared, 0);
    EXPECT_EQ(stats.request_time.count(), stats.queue_time.count());
  }
}

TEST_F(EngineStatsTest, TokensFedAgainAreNoPromptTokens) {
  for (const bool shares : {false, true}) {
    SCOPED_TRACE(shares);
    num_submitted_ = num_ended_ = 0;
    num_prompt_tokens_ = num_fed_ = 0;
    Make({.page_size = 4, .num_pages = 20}, {.prefix_cache = shares});
    for (const TokenId first : {1, 2, 3}) {
      Request request{{first, 4, 5, 6, 7, 8, 9}, {}};
      request.params.num_beams = 2;
      request.params.max_new_tokens = 30;
      request.params.ignore_eos = true;
      Submit(request);
    }
    while (Step()) ExpectAllAccountedFor();
    const EngineStats stats = Stats();
    EXPECT_EQ(num_ended_, 3);
    EXPECT_GT(stats.num_preemptions, 0);
    EXPECT_EQ(stats.num_resumptions, stats.num_preemptions);
    EXPECT_EQ(stats.num_prompt_tokens + stats.num_cached_tokens,
              num_prompt_tokens_);
    EXPECT_GT(stats.num_tokens_fed_again, 0);
    EXPECT_EQ(stats.num_tokens_shared_again > 0, shares);
    EXPECT_EQ(stats.num_queried_tokens, shares ? num_prompt_tokens_ : 0);
  }
}

TEST_F(EngineStatsTest, AGroupPreemptedWithinItsPromptFeedsItsBeginningAgain) {
  Make({.page_size = 4, .num_pages = 20},
       {.max_step_tokens = 6, .prefix_cache = false});
  Request first = LongRequest(17);
  first.params.do_sample = true;
  first.params.num_return_sequences = 4;
  first.params.seed = 1;
  Submit(first);
  EXPECT_TRUE(Step());
  // Feeds two tokens a step, while the other comes to need 17 pages.
  Request second{std::vector<TokenId>(26, 5), {}};
  second.params.max_new_tokens = 2;
  Submit(second);
  while (Step()) ExpectAllAccountedFor();
  const EngineStats stats = Stats();
  EXPECT_EQ(num_ended_, 2);
  EXPECT_GT(stats.num_preemptions, 0);
  EXPECT_GT(stats.num_tokens_fed_again, 0);
  EXPECT_LT(stats.num_tokens_fed_again, 26 * stats.num_preemptions);
  EXPECT_EQ(stats.num_prompt_tokens, 4 + 26);
}

TEST_F(EngineStatsTest, AGroupOf64BeamsIs64RowsFromItsArrivalOn) {
  Make({.vocab_size = 100, .num_pages = 4000},
       {.max_running = 1, .max_step_tokens = 128});
  Request wide{std::vector<TokenId>(200, 3), {}};
  wide.params.num_beams = 64;
  wide.params.max_new_tokens = 4;
  wide.params.ignore_eos = true;
  Submit(wide);
  Submit(wide);
  EXPECT_EQ(Stats().num_rows_waiting, 128);
  EXPECT_EQ(Stats().num_prompt_tokens_waiting, 400);
  EXPECT_TRUE(Step());  // the first part of a prompt
  EXPECT_EQ(Stats().num_rows_running, 64);
  EXPECT_EQ(Stats().num_rows_waiting, 64);
  EXPECT_EQ(Stats().num_prompt_tokens_waiting, 200);
  EXPECT_TRUE(Step());
  EXPECT_TRUE(Step());
  EXPECT_EQ(Stats().num_rows_running, 64);
  // 50 pages are full; the last two tokens of the prompt each beam has.
  EXPECT_GT(Stats().sharing_ratio(), 10);
  EXPECT_LT(Stats().sharing_ratio(), 64);
}

TEST_F(EngineStatsTest, TimesAreThoseOfTheClock) {
  constexpr int64_t kSecond = 1'000'000'000;
  Make({}, {.max_running = 1});
  scheduler_->SetTime(10 * kSecond);
  Submit(LongRequest(3));
  Submit(LongRequest(1));
  int64_t now = 11;  // each plan, and a second later its answer
  for (StepPlan plan;; now += 2) {
    scheduler_->SetTime(now * kSecond);
    plan = scheduler_->Plan();
    if (plan.is_noop()) break;
    scheduler_->SetTime((now + 1) * kSecond);
    scheduler_->Advance(runner_->Run(std::move(plan)));
  }
  // Tokens of the first at 12, 14 and 16; it starts at 11. The second starts at
  // 17 and ends at 18.
  const EngineStats stats = Stats();
  const auto expect = [](const Histogram& times, int count, int64_t seconds) {
    EXPECT_EQ(times.count(), count);
    EXPECT_EQ(times.sum(), seconds * kSecond);
  };
  expect(stats.time_to_first_token, 2, 2 + 8);
  expect(stats.time_between_tokens, 2, 2 + 2);
  expect(stats.queue_time, 2, 1 + 7);
  expect(stats.prefill_time, 2, 1 + 1);
  expect(stats.decode_time, 2, 4 + 0);
  expect(stats.request_time, 2, 6 + 8);
  // The bucket of (1, 2.5] s has both.
  EXPECT_EQ(stats.time_between_tokens.counts()[12], 2);
}

TEST_F(EngineStatsTest, EndsAreCountedByReason) {
  Make({.eos_boost = 40, .num_pages = 20});
  Submit(LongRequest(2));
  Request eos{{1, 2}, {}};
  eos.params.max_new_tokens = 30;
  Submit(eos);
  Request stop = eos;
  stop.params.stop_token_ids = {0};
  stop.params.eos_token_id.emplace();
  Submit(stop);
  Submit(LongRequest(200));  // can never fit
  Submit(eos);
  scheduler_->Cancel(RequestId{4}, absl::DeadlineExceededError(""));
  while (Step()) continue;
  Submit(LongRequest(20));
  EXPECT_TRUE(Step());
  Submit(eos);
  scheduler_->CancelAll(absl::CancelledError(""));
  const EngineStats stats = Stats();
  EXPECT_EQ(stats.num_finished_by(FinishReason::kLength), 1);
  EXPECT_EQ(stats.num_finished_by(FinishReason::kEos), 1);
  EXPECT_EQ(stats.num_finished_by(FinishReason::kStop), 1);
  EXPECT_EQ(stats.num_failed_by(absl::StatusCode::kResourceExhausted), 1);
  EXPECT_EQ(stats.num_failed_by(absl::StatusCode::kDeadlineExceeded), 1);
  EXPECT_EQ(stats.num_failed_by(absl::StatusCode::kCancelled), 2);
  EXPECT_EQ(stats.num_ended(), 7);
  EXPECT_EQ(num_ended_, 7);
}

}  // namespace
}  // namespace espalier
