// Work runs in order, one item at a time; an item that is too large, too late
// or throws fails alone.
#include "serve/worker_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/status_matchers.h"

namespace espalier::serve {
namespace {

namespace asio = boost::asio;

using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

using Answers = std::vector<absl::StatusOr<std::string>>;
using Work = std::function<absl::StatusOr<std::string>()>;

asio::awaitable<void> Ask(WorkerThread* worker, Work work, Answers* answers,
                          std::string owner = {}) {
  absl::StatusOr<std::string> answer =
      co_await worker->Run<std::string>(std::move(work), std::move(owner));
  answers->push_back(std::move(answer));
}

Work Named(const std::string& name) {
  return [name] { return name; };
}

class WorkerThreadTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(worker_.Start()); }
  void TearDown() override { LetGo(); }

  void Spawn(Work work) {
    asio::co_spawn(context_, Ask(&worker_, std::move(work), &answers_),
                   asio::detached);
  }
  // Work that takes until LetGo. Returns once it has begun.
  void Hold() {
    Spawn([this] {
      has_begun_ = true;
      has_begun_.notify_all();
      may_end_.wait(false);
      return std::string("held");
    });
    context_.poll();
    has_begun_.wait(false);
  }
  void LetGo() {
    may_end_ = true;
    may_end_.notify_all();
  }

  std::atomic<bool> has_begun_ = false;
  std::atomic<bool> may_end_ = false;
  asio::io_context context_;
  Answers answers_;
  WorkerThread worker_{"draw traces"};
};

TEST_F(WorkerThreadTest, AnswersInOrderAndWhatIsThrownIsAnError) {
  Spawn(Named("a"));
  Spawn([]() -> absl::StatusOr<std::string> { throw std::bad_alloc(); });
  Spawn([]() -> absl::StatusOr<std::string> {
    throw std::length_error("too long");
  });
  Spawn([]() -> absl::StatusOr<std::string> { return NotFound("none"); });
  Spawn(Named("b"));
  context_.run();
  ASSERT_EQ(answers_.size(), 5u);
  ASSERT_OK(answers_[0]);
  EXPECT_EQ(*answers_[0], "a");
  EXPECT_THAT(answers_[1].status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("memory")));
  EXPECT_THAT(answers_[2].status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("too long")));
  EXPECT_THAT(answers_[3].status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  ASSERT_OK(answers_[4]);
  EXPECT_EQ(*answers_[4], "b");
}

TEST_F(WorkerThreadTest, MoreThanMayWaitAreRefusedAtOnce) {
  Hold();
  for (int i = 0; i <= WorkerThread::kMaxWaiting; ++i) Spawn(Named("later"));
  context_.poll();
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_THAT(answers_[0].status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("cannot draw traces now: 16 calls wait")));
  LetGo();
  context_.run();
  EXPECT_EQ(answers_.size(), 2u + WorkerThread::kMaxWaiting);
}

// The work of one owner never has all threads, and what it leaves goes to the
// owner with the least that runs.
TEST(WorkerThreadOwnersTest, OneLeavesAThreadToOthers) {
  constexpr int kThreads = 3;
  WorkerThread worker("draw traces");
  ASSERT_OK(worker.Start(kThreads));
  asio::io_context context;
  Answers answers;
  std::atomic<int> num_begun = 0;
  std::atomic<bool> may_end = false;
  const auto spawn = [&](Work work, const std::string& owner) {
    asio::co_spawn(context, Ask(&worker, std::move(work), &answers, owner),
                   asio::detached);
    context.poll();
  };
  for (int i = 0; i < 5; ++i) {
    spawn(
        [&] {
          ++num_begun;
          num_begun.notify_all();
          may_end.wait(false);
          return std::string("a");
        },
        "a");
  }
  for (const char* const owner : {"b", "c", "b"}) spawn(Named(owner), owner);
  while (answers.size() < 3) context.run_one();
  EXPECT_EQ(num_begun, kThreads - 1);
  for (const auto& answer : answers) {
    ASSERT_OK(answer);
    EXPECT_NE(*answer, "a");
  }
  may_end = true;
  may_end.notify_all();
  context.run();
  EXPECT_EQ(answers.size(), 8u);
  EXPECT_EQ(num_begun, 5);
}

TEST_F(WorkerThreadTest, StopEndsWhatWaitsAndWaitsForWhatIsDone) {
  Hold();
  Spawn(Named("never"));
  Spawn(Named("never"));
  context_.poll();
  std::vector<std::jthread> stopping;
  for (int i = 0; i < 3; ++i) {
    stopping.emplace_back([this] { worker_.Stop(); });
  }
  LetGo();
  stopping.clear();
  Spawn(Named("too late"));
  context_.run();
  ASSERT_EQ(answers_.size(), 4u);
  int num_done = 0;
  for (const auto& answer : answers_) {
    num_done += answer.ok();
    if (answer.ok()) continue;
    EXPECT_THAT(answer.status(), StatusIs(absl::StatusCode::kUnavailable,
                                          HasSubstr("shutting down")));
  }
  // The others were done if the first one was before any thread could stop.
  EXPECT_GE(num_done, 1);
  EXPECT_LE(num_done, 3);
}

TEST_F(WorkerThreadTest, WhoHasGoneIsNotWorkedForAndKeepsNoPlace) {
  Hold();
  asio::cancellation_signal leaves;
  bool is_done = false;
  asio::co_spawn(context_,
                 Ask(
                     &worker_,
                     [&is_done]() -> absl::StatusOr<std::string> {
                       is_done = true;
                       return std::string();
                     },
                     &answers_),
                 asio::bind_cancellation_slot(leaves.slot(), asio::detached));
  context_.poll();
  leaves.emit(asio::cancellation_type::terminal);
  context_.poll();
  for (int i = 0; i < WorkerThread::kMaxWaiting; ++i) Spawn(Named("b"));
  context_.poll();
  for (const auto& answer : answers_) {
    EXPECT_NE(answer.status().code(), absl::StatusCode::kResourceExhausted);
  }
  LetGo();
  context_.run();
  EXPECT_FALSE(is_done);
  int num_done = 0;
  for (const auto& answer : answers_) num_done += answer.ok();
  EXPECT_EQ(num_done, 1 + WorkerThread::kMaxWaiting);
}

// Also while every thread is busy, for hours maybe.
TEST_F(WorkerThreadTest, LongWorkWhoseCallerLeavesHoldsNothing) {
  Hold();
  const auto held = std::make_shared<std::string>("what it holds");
  asio::cancellation_signal leaves;
  asio::co_spawn(context_,
                 Ask(
                     &worker_, [held] { return *held; }, &answers_, "a"),
                 asio::bind_cancellation_slot(leaves.slot(), asio::detached));
  context_.poll();
  EXPECT_GT(held.use_count(), 1);
  leaves.emit(asio::cancellation_type::terminal);
  context_.poll();
  EXPECT_EQ(held.use_count(), 1);
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_THAT(answers_[0],
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("gone")));
}

TEST_F(WorkerThreadTest, DestroysWhatIsLargeOnItsThread) {
  std::promise<std::thread::id> destroyed;
  worker_.Destroy(
      std::shared_ptr<int>(new int(),
                           [&](const int* value) {
                             delete value;
                             destroyed.set_value(std::this_thread::get_id());
                           }),
      WorkerThread::kBytesToReturn);
  EXPECT_NE(destroyed.get_future().get(), std::this_thread::get_id());
  // Later work is not queued, but destroyed as well.
  worker_.Stop();
  const auto later = std::make_shared<int>();
  worker_.Destroy(later, 1);
  EXPECT_EQ(later.use_count(), 1);
}

TEST(StoppedWorkerThreadTest, WithoutAThreadItStopsAsWell) {
  WorkerThread worker("work");
  worker.Stop();
  worker.Stop();
}

}  // namespace
}  // namespace espalier::serve
