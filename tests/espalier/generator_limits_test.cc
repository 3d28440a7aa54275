// Timeouts, stop tokens and max_waiting; slow callers.
#include <stdexcept>

#include "tests/espalier/generator_fixture.h"

namespace espalier::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kDeadline = absl::StatusCode::kDeadlineExceeded;
constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

class GeneratorLimitsTest : public GeneratorFixture {};

// Also while the model does not come back.
TEST_F(GeneratorLimitsTest, ATimeoutEndsEveryKindOfCallAndHoldsNothing) {
  Make();
  model_->Hold(true);
  const CallOptions call{.timeout = absl::Milliseconds(30)};
  EXPECT_THAT(generator_->Generate(Simple(), call),
              StatusIs(kDeadline, HasSubstr("30ms")));
  EXPECT_THAT(generator_->GenerateAsync(Simple(), call).get(),
              StatusIs(kDeadline, HasSubstr("30ms")));
  EXPECT_THAT(generator_->Stream(Simple(), kIgnoreEvents, call),
              StatusIs(kDeadline, HasSubstr("30ms")));
  for (const auto& answer :
       generator_->GenerateAll({Simple(), Simple()}, call)) {
    EXPECT_THAT(answer, StatusIs(kDeadline, HasSubstr("30ms")));
  }
  model_->Hold(false);
  ExpectNothingHeld();
  EXPECT_OK(generator_->Generate(Simple(), {.timeout = absl::Hours(1)}));
}

TEST_F(GeneratorLimitsTest, ATimeoutThatIsOverRunsNothing) {
  Make();
  for (const absl::Duration timeout :
       {absl::ZeroDuration(), absl::Seconds(-1), -absl::InfiniteDuration()}) {
    EXPECT_THAT(generator_->Generate(Simple(), {.timeout = timeout}),
                StatusIs(kDeadline, HasSubstr("timeout")));
  }
  EXPECT_EQ(generator_->Stats().num_steps, 0);
}

TEST_F(GeneratorLimitsTest, TheLongestTimeoutsAreNone) {
  Make();
  for (const absl::Duration timeout :
       {absl::Hours(1 << 30), absl::InfiniteDuration(), absl::Seconds(1e10)}) {
    EXPECT_OK(generator_->Generate(Simple(), {.timeout = timeout}));
  }
}

TEST_F(GeneratorLimitsTest, AStopTokenEndsEveryKindOfCall) {
  Make();
  model_->Hold(true);
  std::stop_source stop;
  const CallOptions call{.stop = stop.get_token()};
  auto future = generator_->GenerateAsync(Simple(), call);
  std::vector<std::jthread> callers;
  callers.emplace_back([&] {
    EXPECT_THAT(generator_->Generate(Simple(), call),
                StatusIs(kCancelled, HasSubstr("by its caller")));
  });
  callers.emplace_back([&] {
    EXPECT_THAT(generator_->Stream(Simple(), kIgnoreEvents, call),
                StatusIs(kCancelled, HasSubstr("by its caller")));
  });
  model_->AwaitStep();
  stop.request_stop();
  EXPECT_THAT(future.get(), StatusIs(kCancelled, HasSubstr("by its caller")));
  callers.clear();
  EXPECT_THAT(generator_->Generate(Simple(), call),
              StatusIs(kCancelled, HasSubstr("by its caller")));
  model_->Hold(false);
  ExpectNothingHeld();
}

TEST_F(GeneratorLimitsTest, MoreThanMaxWaitingAreRefusedAtOnce) {
  Make({.num_threads = 1, .max_running = 1, .max_waiting = 2});
  model_->Hold(true);
  std::vector<std::future<absl::StatusOr<Generation>>> open;
  for (int i = 0; i < 3; ++i) {
    open.push_back(generator_->GenerateAsync(Simple()));
  }
  const auto refused = StatusIs(kExhausted, AllOf(HasSubstr("max_waiting, 2"),
                                                  HasSubstr("max_running, 1")));
  EXPECT_THAT(generator_->Generate(Simple()), refused);
  EXPECT_THAT(generator_->GenerateAsync(Simple()).get(), refused);
  EXPECT_THAT(generator_->Stream(Simple(), kIgnoreEvents), refused);
  model_->Hold(false);
  for (auto& future : open) EXPECT_OK(future.get());
  EXPECT_OK(generator_->Generate(Simple()));
}

TEST_F(GeneratorLimitsTest, WaitingPromptTokensAreLimited) {
  Make({.num_threads = 1, .max_running = 1, .max_waiting_tokens = 10});
  model_->Hold(true);
  auto first = generator_->GenerateAsync({std::vector<TokenId>(10, 5)});
  model_->AwaitStep();
  auto second = generator_->GenerateAsync({std::vector<TokenId>(10, 5)});
  EXPECT_THAT(
      generator_->Generate({std::vector<TokenId>(11, 5)}),
      StatusIs(kExhausted, HasSubstr("max_waiting_tokens lets at most 10")));
  model_->Hold(false);
  EXPECT_OK(first.get());
  EXPECT_OK(second.get());
}

TEST_F(GeneratorLimitsTest, ManyWaitForRoomInsteadOfBeingRefused) {
  Make({.num_threads = 1, .max_running = 2, .max_waiting = 0});
  std::vector<GenerationRequest> many(20, Simple());
  std::jthread other([&] {
    for (auto& a : generator_->GenerateAll(many)) EXPECT_OK(a);
  });
  for (auto& answer : generator_->GenerateAll(many)) EXPECT_OK(answer);
  other.join();
  // Until their timeout.
  model_->Hold(true);
  for (auto& answer :
       generator_->GenerateAll(many, {.timeout = absl::Milliseconds(20)})) {
    EXPECT_THAT(answer, StatusIs(kDeadline, HasSubstr("20ms")));
  }
  model_->Hold(false);
  ExpectNothingHeld();
}

// A callback that never returns does not delay other requests.
TEST_F(GeneratorLimitsTest, ASlowStreamDelaysNobodyAndMissesNothing) {
  Make();
  std::promise<void> go_on;
  std::promise<void> is_slow;
  const GenerationRequest request = Simple(1, 12);
  std::vector<TokenId> told;
  int num_events = 0;
  std::jthread slow([&] {
    const auto answer =
        generator_->Stream(request, [&](const StreamEvent& event) {
          if (++num_events == 1) {
            is_slow.set_value();
            go_on.get_future().wait();
          }
          const auto& tokens = std::get<SampleEvent>(event).tokens;
          told.insert(told.end(), tokens.begin(), tokens.end());
          return true;
        });
    ASSERT_OK(answer);
    EXPECT_EQ(told, answer->hypotheses[0].tokens);
  });
  is_slow.get_future().wait();
  for (int i = 0; i < 20; ++i) EXPECT_OK(generator_->Generate(Simple()));
  ExpectNothingHeld();  // the slow one's has ended, too
  go_on.set_value();
  slow.join();
}

TEST_F(GeneratorLimitsTest, AStreamEndsWhenItsCallerWantsNoMore) {
  Make();
  int num_events = 0;
  EXPECT_THAT(generator_->Stream(Simple(1, 100),
                                 [&](const StreamEvent&) {
                                   ++num_events;
                                   return false;
                                 }),
              StatusIs(kCancelled, HasSubstr("by its caller")));
  EXPECT_EQ(num_events, 1);
  ExpectNothingHeld();
}

TEST_F(GeneratorLimitsTest, WhatAStreamsFunctionThrowsEndsItsRequest) {
  Make({.num_threads = 1, .max_running = 1, .max_waiting = 0});
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW((void)generator_->Stream(Simple(1, 100),
                                          [](const StreamEvent&) -> bool {
                                            throw std::runtime_error("caller");
                                          }),
                 std::runtime_error);
  }
  ExpectNothingHeld();
  EXPECT_OK(generator_->Generate(Simple()));
}

TEST_F(GeneratorLimitsTest, CallbacksThatThrowOrAreSlowDelayOnlyCallbacks) {
  Make({.num_threads = 1, .max_running = 1, .max_waiting = 1});
  generator_->GenerateAsync(Simple(), [](absl::StatusOr<Generation>) {
    throw std::runtime_error("caller");
  });
  std::promise<void> go_on;
  std::promise<void> is_slow;
  EXPECT_OK(generator_->Generate(Simple()));
  generator_->GenerateAsync(Simple(), [&](absl::StatusOr<Generation> answer) {
    EXPECT_OK(answer);
    is_slow.set_value();
    go_on.get_future().wait();
  });
  is_slow.get_future().wait();
  EXPECT_OK(generator_->Generate(Simple()));
  EXPECT_OK(generator_->GenerateAsync(Simple()).get());
  // Requests that wait for a slow callback still count as open.
  int num_called = 0;
  const auto count = [&](absl::StatusOr<Generation> answer) {
    EXPECT_OK(answer);
    ++num_called;
  };
  generator_->GenerateAsync(Simple(), count);
  generator_->GenerateAsync(Simple(), count);
  EXPECT_THAT(generator_->Generate(Simple()),
              StatusIs(kExhausted, HasSubstr("max_waiting")));
  ExpectNothingHeld();
  go_on.set_value();
  generator_->Shutdown();  // waits for callbacks
  EXPECT_EQ(num_called, 2);
}

// No call within a callback deadlocks.
TEST_F(GeneratorLimitsTest, CallbacksMayCallEverything) {
  Make({.num_threads = 1, .max_running = 1, .max_waiting = 0});
  std::promise<void> done;
  generator_->GenerateAsync(Simple(), [&](absl::StatusOr<Generation> answer) {
    EXPECT_OK(answer);
    EXPECT_OK(generator_->Generate(Simple()));
    EXPECT_OK(generator_->GenerateAsync(Simple()).get());
    EXPECT_OK(generator_->Stream(Simple(), kIgnoreEvents));
    for (auto& one : generator_->GenerateAll({Simple(), Simple()})) {
      EXPECT_OK(one);
    }
    EXPECT_GT(generator_->Stats().num_steps, 0);
    generator_->GenerateAsync(Simple(), [&](absl::StatusOr<Generation> next) {
      EXPECT_OK(next);
      generator_->Shutdown();
      done.set_value();
    });
  });
  done.get_future().wait();
}

// All places belong to requests whose callbacks run after the waiting one.
TEST_F(GeneratorLimitsTest, WhatWouldWaitForItsOwnCallbackIsRefused) {
  Make({.num_threads = 1, .max_running = 1, .max_waiting = 0});
  std::promise<void> done;
  generator_->GenerateAsync(Simple(), [&](absl::StatusOr<Generation> answer) {
    EXPECT_OK(answer);
    generator_->GenerateAsync(
        Simple(), [](absl::StatusOr<Generation> next) { EXPECT_OK(next); });
    for (auto& one : generator_->GenerateAll({Simple()})) {
      EXPECT_THAT(one, StatusIs(kExhausted, HasSubstr("their callbacks")));
    }
    done.set_value();
  });
  done.get_future().wait();
}

TEST_F(GeneratorLimitsTest, AStreamNeedsAFunction) {
  Make();
  EXPECT_THAT(generator_->Stream(Simple(), nullptr),
              StatusIs(kInvalid, HasSubstr("on_event")));
}

}  // namespace
}  // namespace espalier::testing
