// An engine that runs out of memory ends the requests that the memory was for,
// and nobody else's; it never ends the program, and holds nothing. Every
// allocation on its strand fails once, in turn.
//
// A program of its own, because it replaces operator new.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "batcher/engine.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/stream_story.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace {

// Allocations of this thread until some fail; negative: none do.
thread_local int64_t allocations_left = -1;
thread_local int failures_left = 0;

void* Allocate(std::size_t size) {
  if (allocations_left > 0) --allocations_left;
  if (allocations_left == 0 && failures_left > 0) {
    --failures_left;
    throw std::bad_alloc();
  }
  void* const memory = std::malloc(size > 0 ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size); }
void* operator new[](std::size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT

// Takes what it is told and forgets it.
class AllocatingSink : public TraceSink {
 public:
  void On(const TraceEvent& event) override { last_ = event; }

 private:
  std::optional<TraceEvent> last_;
};

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
  int num_ended_ = 0;  // for want of memory
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
          if (i % 2 == 0) {
            answers[i] = co_await engine.Generate(requests_[i]);
            co_return;
          }
          auto stream = co_await engine.Stream(requests_[i], {.beams = true});
          if (!stream.ok()) {
            answers[i] = stream.status();
            co_return;
          }
          while (true) {
            auto event = co_await stream->Next();
            if (!event.ok()) answers[i] = event.status();
            if (!event.ok() || !event->has_value()) co_return;
            if (auto* result = std::get_if<Result>(&**event)) {
              answers[i] = std::move(*result);
            }
          }
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
  auto figures = asio::co_spawn(callers, engine.Figures(), asio::use_future);
  for (int i = 0; i < 3; ++i) poll();
  callers.restart();
  callers.poll();
  const EngineFigures held = figures.get();
  EXPECT_EQ(held.num_pages_held, 0);
  EXPECT_EQ(held.num_running, 0);
  EXPECT_EQ(held.num_waiting, 0);
  EXPECT_EQ(model_.num_sequences(), 0);
  EXPECT_EQ(steps->num_groups(), 0);
  return failures < num_failures;
}

TEST_P(OutOfMemoryTest, AFailedAllocationEndsWhatItWasForAndNothingElse) {
  ASSERT_FALSE(Run(1 << 30, 1));
  EXPECT_EQ(num_ended_, 0);
  const int stride = Cases(1, 41);
  int64_t num_good = 1;
  while (Run(num_good, 1)) {
    ASSERT_FALSE(HasFailure()) << "allocation " << num_good;
    num_good += num_good < 200 ? 1 : stride;
  }
  EXPECT_GT(num_good, 1000);
  std::printf("%d requests ended by %d failures\n", num_ended_,
              static_cast<int>(num_good));
  // Of four requests that run; most failures are of one alone.
  EXPECT_LT(num_ended_, 3 * num_good);
}

// What waits for memory gets it in the end.
TEST_P(OutOfMemoryTest, SeveralFailuresInARowAreSurvivedToo) {
  for (int64_t num_good = 1; Run(num_good, 7); num_good += Cases(37, 409)) {
    ASSERT_FALSE(HasFailure()) << "allocation " << num_good;
  }
}

}  // namespace
}  // namespace espalier
