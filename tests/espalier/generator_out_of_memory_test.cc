// A generator that runs out of memory ends the affected request and nothing
// else, least of all the program. Allocations of all threads fail once, in
// turn.
//
// A program of its own, because it replaces operator new.
#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <optional>
#include <thread>

#include "espalier/callback_thread.h"
#include "tests/espalier/generator_fixture.h"
#include "tests/few_cases.h"
#include "tests/replace_operator_new.h"

namespace {

// Allocations until some fail; negative: none do.
std::atomic<int64_t> num_allocations_left = -1;
std::atomic<int> num_failures_left = 0;

// Until there is memory again, threads that are short of it get none.
std::atomic<bool> there_is_memory = true;
thread_local bool is_short_of_memory = false;
thread_local int num_before_shortage = 0;  // allocations that it gets yet

}  // namespace

void espalier::testing::OnAllocation() {
  if (is_short_of_memory && !there_is_memory && num_before_shortage-- <= 0) {
    throw std::bad_alloc();
  }
  if (num_failures_left > 0 && --num_allocations_left <= 0 &&
      num_failures_left-- > 0) {
    throw std::bad_alloc();
  }
}

namespace espalier::testing {
namespace {

void FailAfter(int64_t count, int num_failures) {
  num_allocations_left = count;
  num_failures_left = num_failures;
}

// Known by its pages alone, a model misses nothing of a plan that it never saw.
ToyModelOptions ModelOfPages() {
  ToyModelOptions options = SmallModel();
  options.memory = ToyModelOptions::Memory::kPages;
  return options;
}

class GeneratorOutOfMemoryTest : public GeneratorFixture {
 protected:
  GeneratorOutOfMemoryTest() : GeneratorFixture(ModelOfPages()) {}

  // Returns the status of `run` while up to `num_failures` allocations fail,
  // also if it throws std::bad_alloc to its caller; nothing once it makes fewer
  // than `count` allocations, so that none of them fails.
  template <typename Run>
  std::optional<absl::Status> RunFailing(int64_t count, int num_failures,
                                         const Run& run) {
    FailAfter(count, num_failures);
    std::optional<absl::Status> status;
    try {
      status = run();
    } catch (const std::bad_alloc&) {
      FailAfter(-1, 0);
      return absl::ResourceExhaustedError("");
    }
    const bool has_failed = num_failures_left < num_failures;
    FailAfter(-1, 0);
    if (!has_failed) return std::nullopt;
    return status;
  }

  template <typename Run>
  void TryAll(const Run& run) {
    Make({.num_threads = 1});
    const auto alone = generator_->Generate(Simple());
    ASSERT_OK(alone);
    for (const int num_failures : {1, 3}) {
      asio_allocations_fail = num_failures == 1;
      int64_t num_good = 0;
      int64_t num_refused = 0;
      // Threads take turns as they like, so one run alone is no end.
      for (int64_t count = 1; num_good < 5; count += Cases(1, 7)) {
        const auto status = RunFailing(count, num_failures, run);
        num_good += !status.has_value();
        num_refused += status.has_value() && !status->ok();
        if (count % 10 == 0) {
          ExpectNothingHeld();
          const auto after = generator_->Generate(Simple());
          ASSERT_OK(after);
          EXPECT_TRUE(SameResult(*after, *alone));
        }
      }
      EXPECT_GT(num_refused, 3);
    }
  }

  ~GeneratorOutOfMemoryTest() override { asio_allocations_fail = true; }
};

TEST_F(GeneratorOutOfMemoryTest, Generate) {
  TryAll([&] { return generator_->Generate(Simple()).status(); });
}

TEST_F(GeneratorOutOfMemoryTest, GenerateWithATimeout) {
  TryAll([&] {
    return generator_->Generate(Simple(), {.timeout = absl::Hours(1)}).status();
  });
}

TEST_F(GeneratorOutOfMemoryTest, Futures) {
  TryAll([&] { return generator_->GenerateAsync(Simple()).get().status(); });
}

TEST_F(GeneratorOutOfMemoryTest, Callbacks) {
  TryAll([&] {
    std::atomic<bool> is_called = false;
    absl::Status status;
    generator_->GenerateAsync(Simple(),
                              [&](const absl::StatusOr<Generation>& answer) {
                                status = answer.status();
                                is_called = true;
                                is_called.notify_one();
                              });
    is_called.wait(false);
    return status;
  });
}

TEST_F(GeneratorOutOfMemoryTest, Streams) {
  TryAll([&] { return generator_->Stream(Simple(1), kIgnoreEvents).status(); });
}

TEST_F(GeneratorOutOfMemoryTest, ShutdownSucceedsNevertheless) {
  asio_allocations_fail = false;  // two fail
  for (int64_t count = 1; count < 60; ++count) {
    Make({.num_threads = 1});
    model_->Hold(true);
    auto future = generator_->GenerateAsync(Simple());
    FailAfter(count, 2);
    generator_->Shutdown();
    FailAfter(-1, 0);
    EXPECT_FALSE(future.get().ok());
    ExpectNothingHeld();
    FailAfter(count, 2);
    generator_.reset();
    FailAfter(-1, 0);
  }
}

TEST_F(GeneratorOutOfMemoryTest, CreateIsRefused) {
  int64_t count = 1;
  for (int num_good = 0; num_good < 5; ++count) {
    FailAfter(count, 1);
    try {
      const auto made =
          Generator::Create(std::make_shared<ToyModel>(model_options_), nullptr,
                            {.num_threads = 1});
      num_good += num_failures_left > 0 && made.ok();
    } catch (const std::bad_alloc&) {
    }
    FailAfter(-1, 0);
  }
  EXPECT_GT(count, 20);
}

// Runs `waiting` on a thread whose allocations fail after `count` successful
// ones, and `other` on a thread with memory.
template <typename Waiting, typename Other>
void ExpectOnlyOneWaits(const Waiting& waiting, const Other& other,
                        int num_allocations = 0) {
  there_is_memory = false;
  std::promise<void> begins;
  std::jthread thread([&] {
    is_short_of_memory = true;
    num_before_shortage = num_allocations;
    begins.set_value();
    waiting();
  });
  begins.get_future().wait();
  // So that it has got as far as it gets.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto passes = std::async(std::launch::async, other);
  EXPECT_EQ(passes.wait_for(std::chrono::seconds(20)),
            std::future_status::ready);
  there_is_memory = true;
}

TEST(OneThreadShortOfMemoryTest, APostKeepsNoOtherWaiting) {
  CallbackThread thread;
  int num_called = 0;
  const auto post = [&] { thread.Post([&] { ++num_called; }); };
  // More than any queue has room for without memory.
  const auto post_many = [&] {
    for (int i = 0; i < 100; ++i) post();
  };
  ExpectOnlyOneWaits(post_many, [&] {
    post();
    thread.Drain();
  });
  thread.Drain();
  EXPECT_EQ(num_called, 101);
}

TEST_F(GeneratorOutOfMemoryTest, AShutdownThatWaitsForMemoryKeepsNoneWaiting) {
  Make({.num_threads = 1});
  ExpectOnlyOneWaits(
      [&] { generator_->Shutdown("a reason too long to be kept in place"); },
      [&] { EXPECT_OK(generator_->Generate(Simple())); });
  EXPECT_THAT(generator_->Generate(Simple()),
              StatusIs(kCancelled, ::testing::HasSubstr("too long to be")));
}

TEST_F(GeneratorOutOfMemoryTest, ADrainThatWaitsForMemoryKeepsNoneWaiting) {
  for (int num_allocations = 0; num_allocations < 8; ++num_allocations) {
    Make({.num_threads = 1});
    model_->Hold(true);
    auto future = generator_->GenerateAsync(Simple());
    ExpectOnlyOneWaits(
        [&] {
          const absl::Status late = generator_->Drain(absl::Milliseconds(1));
          is_short_of_memory = false;
          EXPECT_THAT(late, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                     ::testing::HasSubstr("drain's timeout")));
        },
        [&] {
          EXPECT_FALSE(
              generator_->Generate(Simple(), {.timeout = absl::Milliseconds(1)})
                  .ok());
        },
        num_allocations);
    model_->Hold(false);
    EXPECT_OK(future.get());
  }
}

}  // namespace
}  // namespace espalier::testing
