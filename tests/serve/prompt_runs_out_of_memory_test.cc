// A call whose requests run out of memory ends, with an error or without an
// answer: it never waits for an event that does not come. Allocations where
// the call's coroutines run fail once, in turn.
//
// A program of its own, because it replaces operator new.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "batcher/engine.h"
#include "serve/prompt_runs.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/toy_requests.h"
#include "tests/replace_operator_new.h"
#include "tests/status_matchers.h"

namespace {

// Allocations of this thread until one fails; negative: none does.
thread_local int64_t allocations_left = -1;

}  // namespace

void espalier::testing::OnAllocation() {
  if (allocations_left < 0) return;
  if (allocations_left-- == 0) throw std::bad_alloc();
}

namespace espalier::serve {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT

constexpr int kNumRequests = 3;

// Outcome of a call.
struct Outcome {
  bool has_ended = false;  // even if its coroutine was destroyed
  int num_results = 0;
  std::optional<absl::Status> error;
};

// Reads the events of a call up to its results or an error.
asio::awaitable<void> ReadAll(PromptRuns* runs, Outcome* outcome) {
  while (outcome->num_results < kNumRequests && !outcome->error) {
    std::optional<RunEvent> event = co_await runs->Next();
    const auto* const result =
        event ? std::get_if<absl::StatusOr<Result>>(&event->what) : nullptr;
    if (result == nullptr) continue;
    if (result->ok()) {
      ++outcome->num_results;
    } else {
      outcome->error = result->status();
    }
  }
}

// Starts `requests`, as streams or not.
asio::awaitable<absl::Status> StartAll(Engine* engine,
                                       std::vector<Request> requests,
                                       bool as_streams, PromptRuns* runs) {
  std::vector<ResultStream> streams;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (as_streams) {
      absl::StatusOr<ResultStream> stream =
          co_await engine->Stream(requests[i]);
      if (!stream.ok()) co_return stream.status();
      streams.push_back(*std::move(stream));
    } else {
      absl::StatusOr<Engine::Prepared> prepared = engine->Prepare(requests[i]);
      if (!prepared.ok()) co_return prepared.status();
      runs->Start(static_cast<int>(i), *engine, *std::move(prepared));
    }
  }
  if (as_streams) {
    runs->Start(0, std::move(streams));
    runs->StartPings();
  }
  co_return absl::OkStatus();
}

// Runs a call of `requests`, as streams or not.
asio::awaitable<void> RunCall(Engine* engine, std::vector<Request> requests,
                              bool as_streams, Outcome* outcome) {
  const auto end = [](Outcome* ended) { ended->has_ended = true; };
  const std::unique_ptr<Outcome, decltype(end)> at_end(outcome, end);
  PromptRuns runs(co_await asio::this_coro::executor);
  const absl::Status started =
      co_await StartAll(engine, std::move(requests), as_streams, &runs);
  if (!started.ok()) {
    outcome->error = started;
    co_return;
  }
  co_await ReadAll(&runs, outcome);
}

class PromptRunsOutOfMemoryTest : public ::testing::TestWithParam<bool> {
 protected:
  // Runs a call while the allocation of its executor after `num_good` fails.
  // Returns whether one did.
  bool Run(int64_t num_good);
  // Destroys the runs of a call after `num_steps` steps, while the allocation
  // after `num_good` fails. Returns whether one did.
  bool DestroyAfter(int num_steps, int64_t num_good);

  std::vector<Request> requests_ = std::vector<Request>(kNumRequests, [] {
    Request request{{1, 2, 3, 4}, {}};
    request.params.max_new_tokens = 3;
    request.params.ignore_eos = true;
    return request;
  }());
  ToyModel model_{{.vocab_size = 100, .num_pages = 100}};
  Outcome outcome_;
};

INSTANTIATE_TEST_SUITE_P(AsStreams, PromptRunsOutOfMemoryTest,
                         ::testing::Bool());

bool PromptRunsOutOfMemoryTest::Run(int64_t num_good) {
  outcome_ = {};
  asio::io_context strand;
  asio::io_context callers;
  const auto steps = std::make_shared<ManualExecutor>(&model_, 1);
  Engine engine = MakeEngine(strand.get_executor(), steps, Validated(3));
  asio::co_spawn(callers, RunCall(&engine, requests_, GetParam(), &outcome_),
                 asio::detached);
  int64_t left = num_good;
  const auto poll = [&] {
    for (int i = 0; i < 4; ++i) {
      strand.restart();
      strand.poll();
      allocations_left = left;
      try {
        callers.restart();
        callers.poll();
      } catch (const std::bad_alloc&) {
        // It failed where no coroutine could catch it. A worker of the server
        // continues.
      }
      left = std::exchange(allocations_left, -1);
    }
  };
  poll();
  while (steps->num_started() > 0) {
    steps->RunStep();
    poll();
  }
  EXPECT_TRUE(outcome_.has_ended);
  return left < 0;
}

bool PromptRunsOutOfMemoryTest::DestroyAfter(int num_steps, int64_t num_good) {
  asio::io_context strand;
  asio::io_context callers;
  const auto steps = std::make_shared<ManualExecutor>(&model_, 1);
  Engine engine = MakeEngine(strand.get_executor(), steps, Validated(3));
  auto runs = std::make_unique<PromptRuns>(callers.get_executor());
  asio::co_spawn(callers, StartAll(&engine, requests_, GetParam(), runs.get()),
                 [](const std::exception_ptr&, const absl::Status& status) {
                   EXPECT_OK(status);
                 });
  const auto poll = [&] {
    for (int i = 0; i < 4; ++i) {
      strand.restart();
      strand.poll();
      callers.restart();
      callers.poll();
    }
  };
  poll();
  for (int i = 0; i < num_steps && steps->num_started() > 0; ++i) {
    steps->RunStep();
    poll();
  }
  bool has_failed = false;
  asio::post(callers, [&] {
    allocations_left = num_good;
    runs.reset();
    has_failed = std::exchange(allocations_left, -1) < 0;
  });
  poll();
  while (steps->num_started() > 0) {
    steps->RunStep();
    poll();
  }
  // No coroutine waits.
  EXPECT_TRUE(callers.stopped());
  EXPECT_EQ(steps->num_groups(), 0);
  return has_failed;
}

TEST_P(PromptRunsOutOfMemoryTest, WhatIsNotCancelledEndsWithItsRequest) {
  int num_failed = 0;
  for (int num_steps = 0; num_steps <= 4; ++num_steps) {
    for (int64_t num_good = 0; DestroyAfter(num_steps, num_good); ++num_good) {
      ASSERT_FALSE(HasFailure()) << num_steps << " steps, " << num_good;
      ++num_failed;
    }
  }
  EXPECT_GT(num_failed, 0);
}

TEST_P(PromptRunsOutOfMemoryTest, NoCallWaitsForAnEventThatDoesNotCome) {
  ASSERT_FALSE(Run(1 << 30));
  EXPECT_EQ(outcome_.num_results, kNumRequests);
  int64_t num_good = 0;
  int num_errors = 0;
  for (; Run(num_good); ++num_good) {
    ASSERT_FALSE(HasFailure()) << "allocation " << num_good;
    if (!outcome_.error) continue;
    ++num_errors;
    EXPECT_THAT(*outcome_.error,
                StatusIs(absl::StatusCode::kResourceExhausted,
                         ::testing::HasSubstr("not enough memory")));
  }
  EXPECT_GT(num_good, 50);
  EXPECT_GT(num_errors, 0);
}

}  // namespace
}  // namespace espalier::serve
