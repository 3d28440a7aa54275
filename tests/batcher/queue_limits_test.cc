#include "batcher/queue_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/batcher/stream_fixture.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

std::shared_ptr<QueueLimits> MakeLimits(std::optional<int> max_waiting,
                                        int64_t max_waiting_tokens) {
  EngineOptions options;
  options.scheduler.max_running = 2;
  options.max_waiting = max_waiting;
  options.max_waiting_tokens = max_waiting_tokens;
  return std::make_shared<QueueLimits>(options);
}

TEST(QueueLimitsTest, OneRequestTooManyIsRefusedUntilAPlaceIsGivenBack) {
  const auto limits = MakeLimits(1, 0);
  std::vector<std::shared_ptr<QueueLimits::Place>> places;
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(places.emplace_back(), limits->Take(1000));
  }
  places[0]->LeaveQueue();  // it runs, and is open
  EXPECT_THAT(limits->Take(1),
              StatusIs(kExhausted,
                       "too many requests are open: 3, of which max_waiting, "
                       "1, wait until one of max_running, 2, ends; try again "
                       "later, or raise max_waiting"));
  places[0]->GiveBack();
  places[0]->GiveBack();
  EXPECT_EQ(limits->num_open(), 2);
  EXPECT_OK(limits->Take(1));  // and back
  places.clear();
  EXPECT_EQ(limits->num_open(), 0);
  EXPECT_EQ(limits->num_waiting_tokens(), 0);
}

TEST(QueueLimitsTest, BackgroundRequestsWaitBehindOthers) {
  const auto limits = MakeLimits(10, 0);
  ASSERT_OK_AND_ASSIGN(const auto behind, limits->Take(1, "a", true));
  EXPECT_EQ(limits->num_waiting(), 1);
  EXPECT_EQ(limits->num_foreground_waiting(), 0);
  ASSERT_OK_AND_ASSIGN(const auto before, limits->Take(1, "a"));
  EXPECT_EQ(limits->num_foreground_waiting(), 1);
  behind->LeaveQueue();
  EXPECT_EQ(limits->num_foreground_waiting(), 1);
  before->LeaveQueue();
  EXPECT_EQ(limits->num_foreground_waiting(), 0);
}

TEST(QueueLimitsTest, PromptTokensCountUntilTheirRequestStarts) {
  const auto limits = MakeLimits(std::nullopt, 100);
  ASSERT_OK_AND_ASSIGN(const auto first, limits->Take(60));
  ASSERT_OK_AND_ASSIGN(const auto second, limits->Take(40));
  EXPECT_THAT(limits->Take(1),
              StatusIs(kExhausted,
                       "too many prompt tokens wait: 100, and 1 more would be "
                       "above max_waiting_tokens, 100; try again later, or "
                       "raise max_waiting_tokens"));
  EXPECT_EQ(limits->num_waiting(), 2);
  first->LeaveQueue();
  first->LeaveQueue();
  EXPECT_EQ(limits->num_waiting_tokens(), 40);
  EXPECT_EQ(limits->num_waiting(), 1);
  second->GiveBack();
  EXPECT_EQ(limits->num_waiting(), 0);
  EXPECT_OK(limits->Take(100));
  EXPECT_THAT(limits->Take(101),
              StatusIs(kExhausted,
                       "the prompt has 101 tokens, and max_waiting_tokens "
                       "lets at most 100 wait; raise it, or shorten the "
                       "prompt"));
}

// However many an owner submits, another finds places.
TEST(QueueLimitsTest, OwnersShareThePlaces) {
  for (const int max_waiting : {0, 1, 6, 7, 98, 1022}) {
    const int num_places = 2 + max_waiting;
    const auto limits = MakeLimits(max_waiting, 0);
    std::vector<std::shared_ptr<QueueLimits::Place>> places;
    const auto flood = [&](const std::string& owner) {
      int64_t num_taken = 0;
      for (int i = 0; i < 2 * num_places; ++i) {
        auto place = limits->Take(1, owner);
        if (!place.ok()) continue;
        ++num_taken;
        places.push_back(*std::move(place));
      }
      return num_taken;
    };
    EXPECT_EQ(flood("a"), QueueLimits::MaxOfOwner(num_places));
    const int64_t num_free = num_places - limits->num_open();
    const int64_t num_of_b = flood("b");
    EXPECT_EQ(num_of_b > 0, num_free > 0) << num_places;
    // Requests without an owner take any place.
    EXPECT_EQ(flood(""), num_free - num_of_b) << num_places;
    EXPECT_EQ(limits->num_open(), num_places);
    places.clear();
    EXPECT_EQ(limits->num_open(), 0);
    EXPECT_EQ(flood("b"), QueueLimits::MaxOfOwner(num_places));
  }
}

TEST(QueueLimitsTest, ConcurrentCallersNeverExceedALimitTogether) {
  const auto limits = MakeLimits(3, 50);
  std::atomic<int> num_open = 0;
  std::atomic<int> num_tokens = 0;
  std::atomic<int> num_refused = 0;
  std::vector<std::jthread> callers;
  for (int t = 0; t < 8; ++t) {
    callers.emplace_back([&, t] {
      for (int i = 0; i < 5000; ++i) {
        const int size = 1 + (t * 7 + i) % 20;
        const auto place = limits->Take(size);
        if (!place.ok()) {
          ++num_refused;
          continue;
        }
        EXPECT_LE(++num_open, 5);
        EXPECT_LE(num_tokens += size, 50);
        std::this_thread::yield();
        num_tokens -= size;
        if (i % 2 == 0) (*place)->LeaveQueue();
        --num_open;
        (*place)->GiveBack();
      }
    });
  }
  callers.clear();
  EXPECT_GT(num_refused, 0);
  EXPECT_EQ(limits->num_open(), 0);
  EXPECT_EQ(limits->num_waiting_tokens(), 0);
}

TEST(QueueLimitsTest, BadOptionsAreNamed) {
  ToyModel model(SmallModel());
  ManualExecutor steps(&model, 1);
  asio::io_context context;
  const auto create = [&](const EngineOptions& options) {
    return Engine::Create(context.get_executor(), Unowned(&steps), options)
        .status();
  };
  EXPECT_THAT(create({.max_waiting = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "max_waiting must be at least 0, got -1"));
  EXPECT_THAT(create({.max_waiting_tokens = -5}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "max_waiting_tokens must be at least 0, no limit, got "
                       "-5"));
}

// Requests of both fronts, of 4 prompt tokens each.
TEST(QueueLimitsTest, AnEngineRefusesOneTooManyOfWhateverFront) {
  ToyModel model(SmallModel());
  ManualExecutor steps(&model, 1);
  asio::io_context context;
  EngineOptions options = Validated(1);
  options.max_waiting = 2;
  options.max_waiting_tokens = 8;
  Engine engine = MakeEngine(context.get_executor(), &steps, options);
  std::vector<std::optional<absl::StatusOr<Result>>> answers(5);
  std::vector<std::unique_ptr<asio::cancellation_signal>> signals;
  const auto start = [&](int i, const Request& request) {
    signals.push_back(std::make_unique<asio::cancellation_signal>());
    asio::co_spawn(
        context, engine.Generate(request),
        asio::bind_cancellation_slot(
            signals.back()->slot(),
            [&, i](std::exception_ptr, absl::StatusOr<Result> result) {
              answers[i] = std::move(result);
            }));
    context.restart();
    context.poll();
  };
  const auto open_stream = [&] {
    std::optional<absl::StatusOr<ResultStream>> opened;
    asio::co_spawn(
        context, engine.Stream(LongRequest(3)),
        [&](std::exception_ptr, absl::StatusOr<ResultStream> stream) {
          opened = std::move(stream);
        });
    context.restart();
    context.poll();
    return *std::move(opened);
  };
  start(0, LongRequest(3));  // runs
  start(1, LongRequest(3));
  absl::StatusOr<ResultStream> stream = open_stream();
  ASSERT_OK(stream);
  start(2, LongRequest(3));
  ASSERT_TRUE(answers[2].has_value());
  EXPECT_THAT(*answers[2], StatusIs(kExhausted, HasSubstr("max_waiting, 2")));
  EXPECT_THAT(open_stream(), StatusIs(kExhausted, HasSubstr("max_waiting, 2")));
  // Its place in the queue is free when its caller is notified.
  signals[1]->emit(asio::cancellation_type::terminal);
  context.restart();
  context.poll();
  Request longer = LongRequest(3);
  longer.prompt_tokens.push_back(1);
  start(3, longer);
  ASSERT_TRUE(answers[3].has_value());
  EXPECT_THAT(*answers[3],
              StatusIs(kExhausted, HasSubstr("max_waiting_tokens, 8")));
  start(4, LongRequest(3));
  stream = absl::CancelledError("read no more");
  context.poll();
  while (steps.num_started() > 0) {
    steps.RunStep();
    context.restart();
    context.poll();
  }
  EXPECT_OK(*answers[0]);
  EXPECT_OK(*answers[4]);
  EXPECT_OK(open_stream());  // ended streams leave no trace
}

}  // namespace
}  // namespace espalier
