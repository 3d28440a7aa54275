// A coroutine that races an engine's answer with something else, on contexts of
// several threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <future>
#include <vector>

#include "base/check.h"
#include "batcher/engine.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT

// Asio does not allow two threads to run a coroutine that can be cancelled.
TEST(RaceTest, WaitsThatCouldBeCancelledElsewhereAreRefusedWithoutAStrand) {
  ToyModel model(SmallModel());
  asio::thread_pool threads(2);
  Engine engine =
      MakeEngine(threads.get_executor(), MakeExecutor(&model), Validated());
  asio::cancellation_signal signal;
  const auto run = [&](const asio::any_io_executor& executor) {
    return asio::co_spawn(
               executor, engine.Generate(LongRequest(1)),
               asio::bind_cancellation_slot(signal.slot(), asio::use_future))
        .get();
  };
  EXPECT_THAT(run(threads.get_executor()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::HasSubstr("asio::make_strand")));
  EXPECT_OK(run(asio::make_strand(threads)));
  // Asio counts the owners of a strand's executor by fences, which
  // ThreadSanitizer does not see.
  threads.join();
}

TEST(RaceTest, OnAStrandARaceIsSafeHoweverItEnds) {
  using namespace asio::experimental::awaitable_operators;
  ToyModel model(SmallModel());
  asio::thread_pool threads(3);
  Engine engine =
      MakeEngine(threads.get_executor(), MakeExecutor(&model), Validated());
  std::atomic<int> num_late = 0;
  const auto race = [&](int microseconds) -> asio::awaitable<void> {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    auto stream = co_await engine.Stream(LongRequest(30));
    CHECK(stream.ok());
    while (true) {
      timer.expires_after(std::chrono::microseconds(microseconds));
      auto first =
          co_await (stream->Next() || timer.async_wait(asio::use_awaitable));
      if (first.index() == 1) {
        ++num_late;
      } else if (!std::get<0>(first).ok() || !std::get<0>(first)->has_value()) {
        co_return;
      }
    }
  };
  std::vector<std::future<void>> races;
  for (int i = 0; i < Cases(200, 60); ++i) {
    races.push_back(asio::co_spawn(asio::make_strand(threads),
                                   race(50 + i % 50 * 20), asio::use_future));
  }
  for (auto& one : races) one.get();
  EXPECT_GT(num_late, 0);
}

}  // namespace
}  // namespace espalier
