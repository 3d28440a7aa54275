// Requests that speculate, of every kind, cancelled at any moment: each is
// answered once, and in the end nothing is left of any in the scheduler, its
// pool, what an executor keeps of groups, and the draft model.
//
// With ESPALIER_MANY_CASES=1 ten times as many.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "executor/drafts/draft_model.h"
#include "tests/batcher/blended_model.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "tests/toy_model.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

int NumRequests() {
  const char* const value = std::getenv("ESPALIER_MANY_CASES");
  const bool is_long = value != nullptr && std::string(value) == "1";
  return is_long ? 100000 : Cases(10000, 500);
}

struct LifetimeCase {
  int num_pages = 0;
  int num_draft_pages = 0;
  int max_step_tokens = 0;
  int plans_in_flight = 1;
  int cancel_percent = 0;  // steps followed by a cancellation
};

// Requests come while others run, up to a number of them.
class SpeculationLifetimes {
 public:
  explicit SpeculationLifetimes(const LifetimeCase& c)
      : case_(c),
        model_(OptionsOf(c.num_pages, 3)),
        draft_(*DraftModel::Create(
            std::make_shared<BlendedModel>(OptionsOf(c.num_draft_pages, 5),
                                           /*other_seed=*/2,
                                           /*distance=*/0.3f),
            *ThreadPool::Create(1))),
        random_(c.num_pages) {
    description_ = model_.description();
    description_.limits.max_drafted_length = std::numeric_limits<int>::max();
    scheduler_ = std::make_unique<Scheduler>(
        description_, SchedulerOptions{.max_running = 12,
                                       .max_step_tokens = c.max_step_tokens,
                                       .validate_steps = true});
  }

  // RunToEnd aborts if the executor still holds a group in the end.
  void Run(int num_requests) {
    RunToEnd(
        *scheduler_, model_,
        [&](int) {
          const int num_wanted = 1 + static_cast<int>(random_() % 20);
          while (num_submitted_ < num_requests && live_.size() < num_wanted) {
            Submit();
          }
          if (random_() % 100 < case_.cancel_percent) CancelSomebody();
        },
        case_.plans_in_flight, draft_.get());
  }

  void ExpectNothingLeft() {
    EXPECT_THAT(live_, ::testing::IsEmpty());
    EXPECT_EQ(num_answers_, num_submitted_);
    ExpectNothingHeld(*scheduler_);
    EXPECT_EQ(scheduler_->num_preempted(), 0);
    EXPECT_EQ(scheduler_->pool().num_held(), scheduler_->tree().num_pages());
    EXPECT_EQ(draft_->num_sequences(), 0);
    EXPECT_EQ(draft_->pages().num_held(), 0);
  }

  int num_cancelled() const { return num_cancelled_; }
  int64_t num_accepted() const { return num_accepted_; }

 private:
  static ToyModelOptions OptionsOf(int num_pages, int page_size) {
    return {.eos_boost = -1,
            .num_tokens_read = 2,
            .page_size = page_size,
            .num_pages = num_pages,
            .has_shareable_pages = true};
  }

  void Submit() {
    Request request = RandomRequest(random_, description_);
    GenerationParams& params = request.params;
    if (!params.allowed_sequences.has_value()) {
      params.max_new_tokens = 2 + random_() % 24;
    }
    if (CanSpeculate(params)) {
      constexpr SpeculationMethod kMethods[] = {SpeculationMethod::kNgram,
                                                SpeculationMethod::kSuffix,
                                                SpeculationMethod::kDraft};
      params.speculate = {kMethods[random_() % 3],
                          1 + static_cast<int>(random_() % 8),
                          random_() % 2 == 0 ? SpeculationMode::kCoupled
                                             : SpeculationMode::kRejection};
    }
    EXPECT_OK(ValidateRequest(description_, &request));
    const RequestId id{num_submitted_++};
    live_[id] = false;
    scheduler_->Submit(id, PreparedRequest(std::move(request)),
                       [this, id](auto result) { OnDone(id, result); });
  }

  void CancelSomebody() {
    if (live_.empty()) return;
    const auto live = std::next(live_.begin(), random_() % live_.size());
    const RequestId id = live->first;
    live->second = true;
    scheduler_->Cancel(id, absl::CancelledError("stop"));
    EXPECT_EQ(live_.count(id), 0);
  }

  void OnDone(RequestId id, const absl::StatusOr<Result>& result) {
    const auto live = live_.find(id);
    ASSERT_NE(live, live_.end()) << "answered twice";
    EXPECT_EQ(live->second, absl::IsCancelled(result.status()));
    live_.erase(live);
    ++num_answers_;
    num_cancelled_ += absl::IsCancelled(result.status());
    if (result.ok()) num_accepted_ += result->usage.num_accepted_tokens;
  }

  const LifetimeCase case_;
  ToyModel model_;
  std::unique_ptr<DraftModel> draft_;
  ModelDescription description_;
  std::unique_ptr<Scheduler> scheduler_;
  std::mt19937 random_;
  std::map<RequestId, bool> live_;  // whether it is being cancelled
  int num_submitted_ = 0;
  int num_answers_ = 0;
  int num_cancelled_ = 0;
  int64_t num_accepted_ = 0;
};

TEST(SpeculationLifetimesTest, NothingIsLeftOfRequestsThatAreCancelled) {
  const LifetimeCase cases[] = {
      {.num_pages = 400,
       .num_draft_pages = 200,
       .max_step_tokens = 128,
       .cancel_percent = 15},
      {.num_pages = 70,
       .num_draft_pages = 25,
       .max_step_tokens = 30,
       .cancel_percent = 40},
      {.num_pages = 90,
       .num_draft_pages = 60,
       .max_step_tokens = 60,
       .plans_in_flight = 2,
       .cancel_percent = 30},
  };
  const int num_requests = NumRequests() / static_cast<int>(std::size(cases));
  for (const LifetimeCase& c : cases) {
    SCOPED_TRACE("pages " + std::to_string(c.num_pages));
    SpeculationLifetimes lifetimes(c);
    lifetimes.Run(num_requests + 1);
    lifetimes.ExpectNothingLeft();
    EXPECT_GT(lifetimes.num_cancelled(), num_requests / 20);
    EXPECT_GT(lifetimes.num_accepted(), num_requests / testing::Cases(2, 8));
  }
}

}  // namespace
}  // namespace espalier
