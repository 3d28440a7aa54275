// Calls wait for their languages, each of which a test lets end.
#include "serve/compile_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "beam/constraint_cache.h"
#include "tests/status_matchers.h"

namespace espalier::serve {
namespace {

namespace asio = boost::asio;

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CompileQueueTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(queue_.Start(1)); }
  void TearDown() override { LetAllGo(); }

  std::shared_ptr<ConstraintLanguage> Language(const std::string& name) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<ConstraintLanguage>& language = languages_[name];
    if (language == nullptr) {
      language = std::make_shared<ConstraintLanguage>(
          ConstraintLanguage::Key{.language = name, .end_ids = {}},
          ConstraintParams(), /*start_after=*/"");
    }
    return language;
  }

  // A call for a language, which is its tenant's.
  void Spawn(const std::string& name, const std::string& tenant = "",
             std::optional<std::chrono::milliseconds> timeout = {},
             int64_t priority = 0) {
    CompileQueue::Work work = {
        .language = Language(name), .tenant = tenant, .priority = priority};
    if (timeout) work.deadline = std::chrono::steady_clock::now() + *timeout;
    asio::co_spawn(context_, Call(name, std::move(work)),
                   asio::bind_cancellation_slot(
                       signals_[name].emplace_back().slot(), asio::detached));
    context_.restart();
    context_.poll();
  }
  // Returns once the compilation of a language has begun.
  void AwaitBegin(const std::string& name) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock,
                  [&] { return !begun_.empty() && begun_.back() == name; });
  }
  void LetGo(int count = 1) {
    const std::lock_guard lock(mutex_);
    num_may_end_ += count;
    changed_.notify_all();
  }
  void LetAllGo() { LetGo(1'000); }
  void RunAll() {
    context_.restart();
    context_.run();
  }

  asio::awaitable<void> Call(std::string name, CompileQueue::Work work) {
    const absl::Status status = co_await queue_.Wait(std::move(work));
    ended_.emplace_back(name, status);
  }
  void Compile(ConstraintLanguage* language) {
    std::unique_lock lock(mutex_);
    for (const auto& [name, of_name] : languages_) {
      if (of_name.get() == language) begun_.push_back(name);
    }
    changed_.notify_all();
    changed_.wait(lock, [&] { return num_may_end_ > 0; });
    --num_may_end_;
    if (begun_.back() == "large") throw std::bad_alloc();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<ConstraintLanguage>> languages_;
  std::vector<std::string> begun_;  // in order
  int num_may_end_ = 0;
  asio::io_context context_;
  // One for each call.
  std::map<std::string, std::deque<asio::cancellation_signal>> signals_;
  std::vector<std::pair<std::string, absl::Status>> ended_;
  CompileQueue queue_{
      {.compile = [this](ConstraintLanguage* language) { Compile(language); },
       .is_compiled = [](const ConstraintLanguage&) { return false; }}};
};

TEST_F(CompileQueueTest, TenantsTakeTurns) {
  Spawn("a1", "a");
  AwaitBegin("a1");
  for (const char* const name : {"a2", "a3", "a4"}) Spawn(name, "a");
  for (const char* const name : {"b1", "b2"}) Spawn(name, "b");
  EXPECT_EQ(queue_.stats().num_waiting, 6);
  LetAllGo();
  RunAll();
  EXPECT_THAT(begun_, ElementsAre("a1", "a2", "b1", "a3", "b2", "a4"));
  EXPECT_EQ(ended_.size(), 6u);
  for (const auto& [name, status] : ended_) EXPECT_OK(status) << name;
  const CompileQueue::Stats stats = queue_.stats();
  EXPECT_EQ(stats.num_waiting, 0);
  EXPECT_EQ(stats.num_compiled, 6);
  EXPECT_GT(stats.time_compiled, absl::ZeroDuration());
  EXPECT_EQ(stats.num_waits, 6);
  EXPECT_GT(stats.time_waited, absl::ZeroDuration());
}

TEST_F(CompileQueueTest, LaterPrioritiesWait) {
  Spawn("first");
  AwaitBegin("first");
  Spawn("batch", "", {}, kBackgroundPriority);
  Spawn("call");
  LetAllGo();
  RunAll();
  EXPECT_THAT(begun_, ElementsAre("first", "call", "batch"));
}

// Its first turn is the earliest of theirs; those that come while it runs wait
// for its end alone.
TEST_F(CompileQueueTest, ALanguageIsCompiledOnceForAllThatWait) {
  Spawn("a1", "a");
  AwaitBegin("a1");
  for (const char* const name : {"a2", "a3", "both"}) Spawn(name, "a");
  Spawn("both", "b");
  LetGo(2);
  AwaitBegin("both");
  Spawn("both", "c");
  Spawn("c1", "c");
  EXPECT_EQ(queue_.stats().num_waiting, 5);
  LetGo();
  context_.restart();
  while (ended_.size() < 5) context_.run_one();
  EXPECT_EQ(queue_.stats().num_waiting, 2);
  LetAllGo();
  RunAll();
  begun_.resize(3);
  EXPECT_THAT(begun_, ElementsAre("a1", "a2", "both"));
  EXPECT_EQ(queue_.stats().num_compiled, 5);
}

TEST_F(CompileQueueTest, ACallThatEndsLeavesTheQueue) {
  Spawn("held");
  AwaitBegin("held");
  Spawn("late", "", std::chrono::milliseconds(1));
  Spawn("gone");
  signals_["gone"].back().emit(asio::cancellation_type::terminal);
  context_.restart();
  while (ended_.size() < 2) context_.run_one();
  EXPECT_EQ(queue_.stats().num_waiting, 1);
  for (const auto& [name, status] : ended_) {
    EXPECT_THAT(status,
                StatusIs(name == "late" ? absl::StatusCode::kDeadlineExceeded
                                        : absl::StatusCode::kCancelled,
                         HasSubstr("")));
  }
  Spawn("next");
  LetAllGo();
  RunAll();
  EXPECT_THAT(begun_, ElementsAre("held", "next"));
}

TEST_F(CompileQueueTest, ADeadlineEndsACallWhoseLanguageIsBeingCompiled) {
  Spawn("late", "", std::chrono::milliseconds(1));
  AwaitBegin("late");
  Spawn("late");
  context_.restart();
  // It may have ended while the second call was spawned.
  while (ended_.empty()) context_.run_one();
  EXPECT_THAT(ended_[0].second, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                         HasSubstr("deadline")));
  LetAllGo();
  RunAll();
  EXPECT_OK(ended_[1].second);
}

TEST_F(CompileQueueTest, LackOfMemoryEndsOneLanguage) {
  Spawn("large");
  Spawn("small");
  LetAllGo();
  RunAll();
  EXPECT_THAT(ended_[0].second,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("memory")));
  EXPECT_OK(ended_[1].second);
}

// A running compilation ends by itself; a waiting one is not begun.
TEST_F(CompileQueueTest, AStopEndsAllThatWaitBeforeWhatRunsHasEnded) {
  Spawn("held");
  AwaitBegin("held");
  Spawn("waits");
  std::thread stopping([&] { queue_.Stop(); });
  RunAll();
  ASSERT_EQ(ended_.size(), 2u);
  for (const auto& [name, status] : ended_) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                                 HasSubstr("shutting down")));
  }
  LetAllGo();
  stopping.join();
  EXPECT_THAT(begun_, ElementsAre("held"));
  Spawn("later");
  EXPECT_EQ(ended_.back().first, "later");
  EXPECT_THAT(ended_.back().second, StatusIs(absl::StatusCode::kUnavailable,
                                             HasSubstr("shutting down")));
}

}  // namespace
}  // namespace espalier::serve
