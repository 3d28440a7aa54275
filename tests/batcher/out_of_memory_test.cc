// An engine that runs out of memory ends the requests that the memory was for,
// and no others; it never ends the program, and holds nothing. Every
// allocation on its strand fails once, in turn.
//
// A program of its own, because it replaces operator new.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "batcher/answer.h"
#include "batcher/engine.h"
#include "batcher/scheduler/scheduler.h"
#include "beam/sequence_group.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/stream_log.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/replace_operator_new.h"
#include "tests/status_matchers.h"

namespace {

// Allocations of this thread until some fail; negative: none do.
thread_local int64_t allocations_left = -1;
thread_local int failures_left = 0;
// Called once, before this thread's next allocation; or null.
thread_local const std::function<void()>* at_allocation = nullptr;

}  // namespace

void espalier::testing::OnAllocation() {
  if (const auto* const call = std::exchange(at_allocation, nullptr)) {
    (*call)();
  }
  if (allocations_left > 0) --allocations_left;
  if (allocations_left == 0 && failures_left > 0) {
    --failures_left;
    throw std::bad_alloc();
  }
}

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT

// Takes events and drops them.
class AllocatingSink : public TraceSink {
 public:
  void On(const TraceEvent& event) override { last_ = event; }

 private:
  std::optional<TraceEvent> last_;
};

asio::awaitable<absl::StatusOr<Result>> Ask(Engine& engine, Request request,
                                            bool as_stream) {
  if (!as_stream) co_return co_await engine.Generate(std::move(request));
  auto stream = co_await engine.Stream(std::move(request), {.beams = true});
  if (!stream.ok()) co_return stream.status();
  absl::StatusOr<Result> answer = absl::UnknownError("no result");
  while (true) {
    auto event = co_await stream->Next();
    if (!event.ok()) co_return event.status();
    if (!event->has_value()) co_return answer;
    if (auto* result = std::get_if<Result>(&**event)) {
      answer = std::move(*result);
    }
  }
}

class OutOfMemoryTest : public ::testing::TestWithParam<int> {
 protected:
  OutOfMemoryTest() {
    for (const Request& request :
         RandomStreamRequests(4, 17, model_.description())) {
      requests_.push_back(request);
      alone_.push_back(RunAlone(ByteModel(1), request, SharedEnFrTokenizer()));
    }
  }

  // Runs all requests, half of them as streams, while the allocation on the
  // strand after `num_good` fails `num_failures` times. Returns whether one
  // did.
  bool Run(int64_t num_good, int num_failures);

  ToyModel model_{ByteModel(GetParam())};
  std::vector<Request> requests_;
  std::vector<absl::StatusOr<Result>> alone_;
  int num_ended_ = 0;  // for lack of memory
};

INSTANTIATE_TEST_SUITE_P(PlansInFlight, OutOfMemoryTest,
                         ::testing::Values(1, 2));

bool OutOfMemoryTest::Run(int64_t num_good, int num_failures) {
  asio::io_context strand;
  asio::io_context callers;
  const auto steps = std::make_shared<ManualExecutor>(&model_, GetParam());
  EngineOptions options = Validated(3);
  options.tokenizer = SharedEnFrTokenizer();
  options.scheduler.trace = std::make_shared<AllocatingSink>();
  Engine engine = MakeEngine(strand.get_executor(), steps, options);
  std::vector<std::optional<absl::StatusOr<Result>>> answers(requests_.size());
  for (size_t i = 0; i < requests_.size(); ++i) {
    asio::co_spawn(
        callers,
        [&, i]() -> asio::awaitable<void> {
          answers[i] = co_await Ask(engine, requests_[i], i % 2 != 0);
        },
        asio::detached);
  }
  int64_t left = num_good;
  int failures = num_failures;
  const auto poll = [&] {
    callers.restart();
    callers.poll();
    strand.restart();
    allocations_left = left;
    failures_left = failures;
    strand.poll();
    left = std::exchange(allocations_left, -1);
    failures = failures_left;
    callers.restart();
    callers.poll();
    strand.restart();
  };
  for (int i = 0; i < 3; ++i) poll();
  while (steps->num_started() > 0) {
    steps->RunStep();
    for (int i = 0; i < 3; ++i) poll();
  }
  for (size_t i = 0; i < requests_.size(); ++i) {
    EXPECT_TRUE(answers[i].has_value()) << i;
    if (!answers[i].has_value()) continue;
    if (answers[i]->ok() && alone_[i].ok()) {
      EXPECT_TRUE(SameResult(**answers[i], *alone_[i])) << i;
    } else if (answers[i]->status() != alone_[i].status()) {
      ++num_ended_;
      EXPECT_THAT(*answers[i],
                  StatusIs(absl::StatusCode::kResourceExhausted,
                           ::testing::HasSubstr("not enough memory")));
    }
  }
  auto stats = asio::co_spawn(callers, engine.Stats(), asio::use_future);
  for (int i = 0; i < 3; ++i) poll();
  callers.restart();
  callers.poll();
  const EngineStats held = stats.get();
  EXPECT_EQ(held.num_pages_held, 0);
  EXPECT_EQ(held.num_running, 0);
  EXPECT_EQ(held.num_waiting, 0);
  if (GetParam() == 1) {  // checks plans that were written
    EXPECT_EQ(held.num_prompt_tokens + held.num_tokens_fed_again +
                  held.num_decode_rows,
              steps->num_tokens());
  }
  EXPECT_EQ(model_.num_sequences(), 0);
  EXPECT_EQ(steps->num_groups(), 0);
  return failures < num_failures;
}

TEST_P(OutOfMemoryTest, AFailedAllocationEndsWhatItWasForAndNothingElse) {
  ASSERT_FALSE(Run(1 << 30, 1));
  EXPECT_EQ(num_ended_, 0);
  const int stride = Cases(1, 41);
  int64_t num_good = 1;
  int num_runs = 0;
  for (; Run(num_good, 1); ++num_runs) {
    ASSERT_FALSE(HasFailure()) << "allocation " << num_good;
    num_good += num_good < 200 ? 1 : stride;
  }
  EXPECT_GT(num_good, 1000);
  std::printf("%d requests ended by %d failures\n", num_ended_, num_runs);
  // Four requests run, and most failures end a single one.
  EXPECT_LT(2 * num_ended_, 3 * num_runs);
}

// Requests that wait for memory get it in the end.
TEST_P(OutOfMemoryTest, SeveralFailuresInARowAreSurvivedToo) {
  for (int64_t num_good = 1; Run(num_good, 7); num_good += Cases(37, 409)) {
    ASSERT_FALSE(HasFailure()) << "allocation " << num_good;
  }
}

struct Ending {
  enum Kind { kCancel, kShutdown, kDestroyEngine, kDestroyContext } kind;
  const char* told;  // what requests are
};

constexpr Ending kEndings[] = {
    {Ending::kCancel, "cancelled by its caller"},
    {Ending::kShutdown, "the engine is shut down"},
    {Ending::kDestroyEngine, "the engine is shut down"},
    {Ending::kDestroyContext, "the engine's context has ended"},
};

// Requests that wait, run and are read, and their end all at once.
class EndOfAll {
 public:
  EndOfAll();

  // While the allocation after `num_good` fails, where the engine's own work
  // is done. Returns whether one did.
  bool Run(const Ending& ending, int64_t num_good);

 private:
  static constexpr int kNumRequests = 4;

  void Poll();
  void Begin(Ending::Kind kind);
  template <typename Work>
  void Count(const Work& work) {
    allocations_left = left_;
    failures_left = failures_;
    work();
    left_ = std::exchange(allocations_left, -1);
    failures_ = failures_left;
  }

  int64_t left_ = -1;
  int failures_ = 0;
  ToyModel model_{ByteModel(1)};
  std::shared_ptr<ManualExecutor> steps_ =
      std::make_shared<ManualExecutor>(&model_, 1);
  std::optional<absl::Status> answers_[kNumRequests];
  asio::cancellation_signal signals_[kNumRequests];
  std::unique_ptr<asio::io_context> strand_ =
      std::make_unique<asio::io_context>();
  asio::io_context callers_;
  std::unique_ptr<Engine> engine_ = std::make_unique<Engine>(
      MakeEngine(strand_->get_executor(), steps_, Validated(2)));
};

EndOfAll::EndOfAll() {
  Request request{{1, 2, 3, 4}, {}};
  request.params.num_beams = 2;
  request.params.max_new_tokens = 8;
  request.params.ignore_eos = true;
  for (int i = 0; i < kNumRequests; ++i) {
    const auto take = [this, i](std::exception_ptr,
                                absl::StatusOr<Result> answer) {
      answers_[i] = answer.status();
    };
    asio::co_spawn(callers_, Ask(*engine_, request, i % 2 != 0),
                   asio::bind_cancellation_slot(signals_[i].slot(), take));
  }
  Poll();
  steps_->RunStep();
  Poll();
}

void EndOfAll::Poll() {
  for (int i = 0; i < 3; ++i) {
    callers_.restart();
    callers_.poll();
    if (strand_ == nullptr) continue;
    strand_->restart();
    Count([this] { strand_->poll(); });
  }
  callers_.restart();
  callers_.poll();
}

void EndOfAll::Begin(Ending::Kind kind) {
  switch (kind) {
    case Ending::kCancel:
      for (auto& signal : signals_) {
        signal.emit(asio::cancellation_type::terminal);
      }
      return;
    case Ending::kShutdown:
      asio::co_spawn(callers_, engine_->Shutdown(), asio::detached);
      return;
    case Ending::kDestroyEngine:
      return Count([this] { engine_.reset(); });
    case Ending::kDestroyContext:
      return Count([this] { strand_.reset(); });
  }
}

bool EndOfAll::Run(const Ending& ending, int64_t num_good) {
  left_ = num_good;
  failures_ = 1;
  Begin(ending.kind);
  Poll();
  while (steps_->num_started() > 0) {
    steps_->RunStep();
    Poll();
  }
  for (const auto& answer : answers_) {
    EXPECT_EQ(answer, absl::CancelledError(ending.told));
  }
  if (strand_ != nullptr) {
    EXPECT_EQ(model_.num_sequences(), 0);
    EXPECT_EQ(steps_->num_groups(), 0);
  }
  engine_.reset();
  Poll();
  EXPECT_EQ(steps_.use_count(), 1);
  return failures_ == 0;
}

TEST(EndOfAllTest, NeedsNoMemoryThatItCannotWaitFor) {
  for (const Ending& ending : kEndings) {
    int64_t num_good = 1;
    while (EndOfAll().Run(ending, num_good)) {
      ASSERT_FALSE(::testing::Test::HasFailure())
          << ending.told << ", allocation " << num_good;
      ++num_good;
    }
    EXPECT_GT(num_good, 5) << ending.told;
  }
}

asio::awaitable<void> AwaitAnswer(std::shared_ptr<Answer<int>> answer) {
  co_await Answer<int>::Await(answer);
}

// The waiter's context ends while the answer is posted to it, which takes
// memory: its end waits until the sender holds nothing of it.
TEST(AnswerTest, AContextDoesNotEndWhileItIsAnswered) {
  auto context = std::make_unique<asio::io_context>();
  const auto answer = std::make_shared<Answer<int>>();
  asio::co_spawn(*context, AwaitAnswer(answer), asio::detached);
  context->poll();
  std::future<void> end;
  bool waits = false;
  const std::function<void()> end_context = [&] {
    end = std::async(std::launch::async, [&] { context.reset(); });
    waits = end.wait_for(std::chrono::milliseconds(200)) ==
            std::future_status::timeout;
  };
  at_allocation = &end_context;
  answer->Give(1);
  EXPECT_EQ(at_allocation, nullptr);
  EXPECT_TRUE(waits);
  end.get();
}

// Returns the allocations of the plan that starts a request and so fills the
// pool.
int64_t AllocationsOfPlan(bool somebody_waits) {
  Request request{{1, 2, 3, 4}, {}};
  request.params.max_new_tokens = 4;
  ToyModelOptions options;
  options.num_pages = GroupPages::WorstCase(request, options.page_size);
  const ToyModel model(options);
  Scheduler scheduler(model.description(), {});
  for (int i = 0; i < (somebody_waits ? 2 : 1); ++i) {
    scheduler.Submit(RequestId{i}, PreparedRequest(request), [](auto) {});
  }
  constexpr int64_t kMany = 1 << 30;
  allocations_left = kMany;
  const StepPlan plan = scheduler.Plan();
  const int64_t count = kMany - std::exchange(allocations_left, -1);
  EXPECT_EQ(scheduler.num_running(), 1);
  return count;
}

TEST(SchedulerTest, WhoWaitsForPagesTakesNoMemoryOfThoseThatRun) {
  EXPECT_EQ(AllocationsOfPlan(true), AllocationsOfPlan(false));
}

// The memory that callers lack for a request, and then for its error.
TEST(CallersTest, WithoutMemoryARequestIsRefusedAllTheSame) {
  asio_allocations_fail = false;  // on their own context
  int num_refused = 0;
  for (int64_t num_good = 1;; ++num_good) {
    ToyModel model(ByteModel(1));
    asio::io_context strand;
    asio::io_context callers;
    Engine engine = MakeEngine(strand.get_executor(),
                               std::make_shared<ManualExecutor>(&model, 1));
    Request request{{1, 2, 3, 4}, {}};
    request.params.max_new_tokens = 4;
    std::optional<absl::Status> answer;
    std::exception_ptr error;
    asio::co_spawn(callers, engine.Generate(request),
                   [&](std::exception_ptr e, absl::StatusOr<Result> result) {
                     allocations_left = -1;
                     error = e;
                     answer = result.status();
                   });
    allocations_left = num_good;
    failures_left = 2;
    callers.poll();
    allocations_left = -1;
    EXPECT_EQ(error, nullptr);
    if (failures_left == 2) break;
    if (!answer.has_value()) continue;  // what it lacked it has waited for
    ++num_refused;
    EXPECT_THAT(*answer, StatusIs(absl::StatusCode::kResourceExhausted,
                                  ::testing::HasSubstr("not enough memory")));
  }
  EXPECT_GT(num_refused, 2);
  asio_allocations_fail = true;
}

}  // namespace
}  // namespace espalier
