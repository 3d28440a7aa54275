// A drafting executor whose thread waits for memory does not block other
// threads.
//
// A program of its own, because it replaces operator new.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "executor/host/draft_model.h"
#include "executor/host/drafting_executor.h"
#include "tests/replace_operator_new.h"
#include "tests/status_matchers.h"
#include "tests/toy_model.h"

namespace {

// Allocations of this thread until it has no memory; negative: it has.
thread_local int allocations_left = -1;
std::atomic<bool> is_waiting = false;  // some thread has none
std::atomic<bool> is_there_memory = true;

}  // namespace

void espalier::testing::OnAllocation() {
  if (allocations_left > 0) {
    --allocations_left;
  } else if (allocations_left == 0 && !is_there_memory) {
    is_waiting = true;
    throw std::bad_alloc();
  }
}

namespace espalier::testing {
namespace {

using ::testing::UnorderedElementsAre;

// Answers each plan at once.
class InstantSteps : public StepExecutor {
 public:
  explicit InstantSteps(ModelDescription description)
      : description_(std::move(description)) {
    description_.verifies_drafts = true;
  }
  const ModelDescription& description() const override { return description_; }
  int max_plans_in_flight() const override { return 2; }
  void Execute(StepPlan, Done done) override { done(StepResult()); }

 private:
  ModelDescription description_;
};

// Sends plans that end a request, and records the ended request's number.
class EndedRequests {
 public:
  EndedRequests() {
    answered_.reserve(2);  // recording an answer must not allocate
    ToyModelOptions options;
    options.has_shareable_pages = true;
    const auto toy = std::make_shared<ToyModel>(options);
    auto draft = DraftModel::Create(toy, *ThreadPool::Create(1));
    EXPECT_OK(draft.status());
    auto executor = DraftingExecutor::Create(
        std::make_shared<InstantSteps>(toy->description()), *std::move(draft));
    EXPECT_OK(executor.status());
    executor_ = *std::move(executor);
  }

  // Its first allocations on this thread succeed, then none until there is
  // memory again.
  void End(int id, int num_allocations = -1) {
    StepPlan plan;
    plan.ended = {RequestId{id}};
    // With an error where the step could not be started. Nothing is expected of
    // it here, which would take memory.
    StepExecutor::Done done = [this, id](const absl::StatusOr<StepResult>&) {
      const std::lock_guard lock(mutex_);
      answered_.push_back(id);
    };
    allocations_left = num_allocations;
    executor_->Execute(std::move(plan), std::move(done));
    allocations_left = -1;
  }
  std::vector<int> answered() {
    const std::lock_guard lock(mutex_);
    return answered_;
  }

 private:
  std::mutex mutex_;
  std::vector<int> answered_;
  std::shared_ptr<DraftingExecutor> executor_;  // waits for those answers
};

TEST(DraftingMemoryTest, WhoWaitsForMemoryHoldsUpNobody) {
  bool has_waited = true;
  int num_allocations = 0;
  for (; has_waited; ++num_allocations) {
    SCOPED_TRACE(num_allocations);
    EndedRequests requests;
    is_waiting = false;
    is_there_memory = false;
    std::atomic<bool> has_ended = false;
    std::thread waits([&] {
      requests.End(0, num_allocations);
      has_ended = true;
    });
    while (!is_waiting && !has_ended) std::this_thread::yield();
    has_waited = is_waiting;
    std::future<void> other =
        std::async(std::launch::async, [&] { requests.End(1); });
    const auto status = other.wait_for(std::chrono::seconds(60));
    is_there_memory = true;
    waits.join();
    other.wait();
    ASSERT_EQ(status, std::future_status::ready);
    EXPECT_THAT(requests.answered(), UnorderedElementsAre(0, 1));
  }
  EXPECT_GT(num_allocations, 5);
}

}  // namespace
}  // namespace espalier::testing
