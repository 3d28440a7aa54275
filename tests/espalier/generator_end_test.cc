// The end of a generator: by Shutdown or destruction, on any thread, at any
// moment.
#include <atomic>
#include <latch>
#include <memory>
#include <optional>
#include <random>

#include "tests/espalier/generator_fixture.h"
#include "tests/few_cases.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

class GeneratorEndTest : public GeneratorFixture {};

TEST_F(GeneratorEndTest, ShutdownAnswersAllWithItsReasonAndRefusesOthers) {
  Make();
  model_->Hold(true);
  const auto ended = StatusIs(kCancelled, HasSubstr("for today"));
  auto future = generator_->GenerateAsync(Simple());
  bool is_called = false;
  generator_->GenerateAsync(Simple(), [&](absl::StatusOr<Generation> answer) {
    is_called = true;
    EXPECT_THAT(answer, ended);
  });
  std::vector<std::jthread> callers;
  callers.emplace_back(
      [&] { EXPECT_THAT(generator_->Generate(Simple()), ended); });
  callers.emplace_back(
      [&] { EXPECT_THAT(generator_->Stream(Simple(), kIgnoreEvents), ended); });
  model_->AwaitStep();
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] { generator_->Shutdown("for today"); });
  }
  callers.clear();
  EXPECT_TRUE(is_called);
  EXPECT_THAT(future.get(), ended);
  EXPECT_THAT(generator_->Generate(Simple()), ended);
  EXPECT_THAT(generator_->Stream(Simple(), kIgnoreEvents), ended);
  for (auto& answer : generator_->GenerateAll({Simple()})) {
    EXPECT_THAT(answer, ended);
  }
  generator_->Shutdown("again");
  EXPECT_THAT(generator_->GenerateAsync(Simple()).get(), ended);
  ExpectNothingHeld();
  EXPECT_EQ(model_->num_sequences(), 0);
}

TEST_F(GeneratorEndTest, DrainLetsWhatIsOpenEndAndRefusesOthers) {
  Make({.num_threads = 1, .max_running = 1, .max_waiting = 8});
  model_->Hold(true);
  const auto refused = StatusIs(absl::StatusCode::kUnavailable,
                                HasSubstr("takes no more requests"));
  std::vector<std::future<absl::StatusOr<Generation>>> open;
  for (int i = 0; i < 3; ++i) {
    open.push_back(generator_->GenerateAsync(Simple()));
  }
  std::promise<absl::Status> called;
  generator_->GenerateAsync(Simple(), [&](absl::StatusOr<Generation> answer) {
    called.set_value(answer.status());
  });
  EXPECT_THAT(generator_->Drain(absl::Milliseconds(5)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "the drain's timeout, 5ms, has passed before 4 requests "
                       "ended"));
  EXPECT_THAT(generator_->Generate(Simple()), refused);
  for (auto& answer : generator_->GenerateAll({Simple()})) {
    EXPECT_THAT(answer, refused);
  }
  std::jthread other([&] { EXPECT_OK(generator_->Drain()); });
  model_->Hold(false);
  EXPECT_OK(generator_->Drain());
  EXPECT_OK(called.get_future().get());
  for (auto& future : open) EXPECT_OK(future.get());
  EXPECT_THAT(generator_->GenerateAsync(Simple()).get(), refused);
  ExpectNothingHeld();
  generator_->Shutdown("for today");
  EXPECT_THAT(generator_->Generate(Simple()),
              StatusIs(kCancelled, HasSubstr("for today")));
  EXPECT_OK(generator_->Drain());
}

TEST_F(GeneratorEndTest, ShutdownEndsADrainThatBlocks) {
  Make();
  model_->Hold(true);
  auto future = generator_->GenerateAsync(Simple());
  model_->AwaitStep();
  std::jthread drain([&] { EXPECT_OK(generator_->Drain()); });
  generator_->Shutdown("enough");
  EXPECT_THAT(future.get(), StatusIs(kCancelled, HasSubstr("enough")));
}

TEST_F(GeneratorEndTest, DrainWorksWithinACallback) {
  Make();
  model_->Hold(true);
  std::promise<absl::Status> drained;
  generator_->GenerateAsync(Simple(), [&](absl::StatusOr<Generation>) {
    drained.set_value(generator_->Drain());
  });
  std::promise<absl::Status> last;
  generator_->GenerateAsync(Simple(), [&](absl::StatusOr<Generation> answer) {
    last.set_value(answer.status());
  });
  model_->Hold(false);
  EXPECT_OK(drained.get_future().get());
  EXPECT_OK(last.get_future().get());
}

TEST_F(GeneratorEndTest, ShutdownWorksWithinAStreamsFunction) {
  Make();
  model_->HoldAfter(1);
  EXPECT_THAT(generator_->Stream(Simple(1, 100),
                                 [&](const StreamEvent&) {
                                   generator_->Shutdown("enough");
                                   return true;
                                 }),
              StatusIs(kCancelled, HasSubstr("enough")));
}

TEST_F(GeneratorEndTest, DestructionWorksWithinACallback) {
  for (int i = 0; i < 20; ++i) {
    Make();
    std::promise<void> destroyed;
    generator_->GenerateAsync(Simple(), [&](absl::StatusOr<Generation>) {
      generator_.reset();
      destroyed.set_value();
    });
    destroyed.get_future().wait();
  }
}

TEST_F(GeneratorEndTest, CallbacksThatWaitAreCalledThoughOneDestroysIt) {
  Make();
  std::promise<void> go_on;
  std::promise<absl::Status> last;
  generator_->GenerateAsync(Simple(), [&](absl::StatusOr<Generation>) {
    go_on.get_future().wait();
    generator_.reset();
  });
  generator_->GenerateAsync(Simple(), [&](absl::StatusOr<Generation> answer) {
    last.set_value(answer.status());
  });
  EXPECT_OK(generator_->Generate(Simple()));
  go_on.set_value();
  EXPECT_OK(last.get_future().get());
}

TEST_F(GeneratorEndTest, DestructionWorksWithinAStreamsFunction) {
  Make();
  model_->HoldAfter(1);
  Generator* const generator = generator_.get();
  EXPECT_THAT(generator->Stream(Simple(1, 100),
                                [&](const StreamEvent&) {
                                  generator_.reset();
                                  return true;
                                }),
              StatusIs(kCancelled, HasSubstr("the generator is destroyed")));
}

TEST_F(GeneratorEndTest, DestructionEndsCallsThatBlockOnOtherThreads) {
  for (int i = 0; i < Cases(50, 5); ++i) {
    Make({.num_threads = 1, .max_running = 1, .max_waiting = 8});
    model_->Hold(true);
    Generator* const generator = generator_.get();
    const auto ended = StatusIs(kCancelled, HasSubstr("destroyed"));
    std::vector<std::jthread> callers;
    callers.emplace_back(
        [&] { EXPECT_THAT(generator->Generate(Simple()), ended); });
    callers.emplace_back([&] {
      EXPECT_THAT(generator->Stream(Simple(), kIgnoreEvents), ended);
    });
    AwaitRequests(2);
    callers.emplace_back([&] {
      for (auto& answer : generator->GenerateAll(
               std::vector<GenerationRequest>(20, Simple()))) {
        EXPECT_THAT(answer, ended);
      }
    });
    AwaitRequests(9);  // the rest waits for room
    auto future = generator->GenerateAsync(Simple());
    generator_.reset();
    EXPECT_FALSE(future.get().ok());
  }
}

// Everything is open and ends at a random moment: each is answered once.
TEST_F(GeneratorEndTest, AnyMomentIsGoodForTheEnd) {
  std::mt19937 random(3);
  for (int round = 0; round < Cases(60, 8); ++round) {
    Make();
    std::atomic<int> num_called = 0;
    std::vector<std::future<absl::StatusOr<Generation>>> futures;
    const std::stop_source stop;
    for (int i = 0; i < 10; ++i) {
      CallOptions call;
      if (i % 3 == 0) call.timeout = absl::Microseconds(random() % 2000);
      if (i % 3 == 1) call.stop = stop.get_token();
      futures.push_back(generator_->GenerateAsync(Simple(), call));
      generator_->GenerateAsync(
          Simple(), [&](absl::StatusOr<Generation>) { ++num_called; }, call);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    std::jthread stopper([&] { std::stop_source(stop).request_stop(); });
    if (round % 2 == 0) generator_->Shutdown();
    generator_.reset();
    EXPECT_EQ(num_called, 10);
    for (auto& future : futures) {
      EXPECT_EQ(future.wait_for(std::chrono::seconds(0)),
                std::future_status::ready);
    }
  }
}

TEST_F(GeneratorEndTest, StopSourcesMayOutliveTheGenerator) {
  std::stop_source stop;
  Make();
  auto future = generator_->GenerateAsync(Simple(), {.stop = stop.get_token()});
  EXPECT_OK(future.get());
  generator_.reset();
  stop.request_stop();
}

TEST_F(GeneratorEndTest, AMovedGeneratorWorksAndAnAssignedOneEnds) {
  Make();
  Generator moved = std::move(*generator_);
  EXPECT_OK(moved.Generate(Simple()));
  model_->Hold(true);
  auto future = moved.GenerateAsync(Simple());
  const auto old_model = model_;
  Make();
  moved = std::move(*generator_);
  EXPECT_THAT(future.get(), StatusIs(kCancelled, HasSubstr("destroyed")));
  EXPECT_OK(moved.Generate(Simple()));
}

// Looks at nothing, and does not come back before it is let go.
class HangingModel : public ToyModel {
 public:
  HangingModel() : ToyModel(SmallModel()) {}
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    if (hangs_) {
      begun_.count_down();
      let_go_.wait();
    }
    const absl::Status status = ToyModel::Forward(plan, logits);
    if (hangs_.exchange(false)) ended_.count_down();
    return status;
  }

  void AwaitStep() { begun_.wait(); }
  void LetGo() {
    let_go_.count_down();
    ended_.wait();
  }

 private:
  std::atomic<bool> hangs_{true};
  std::latch begun_{1};
  std::latch let_go_{1};
  std::latch ended_{1};
};

TEST_F(GeneratorEndTest, NoCallAndNoEndWaitsForAStepThatHangs) {
  for (int how = 0; how < 3; ++how) {
    const auto model = std::make_shared<HangingModel>();
    auto made = Generator::Create(
        model, nullptr,
        {.num_threads = 1, .step_timeout = absl::Milliseconds(50)});
    ASSERT_OK(made);
    auto generator = std::make_unique<Generator>(*std::move(made));
    auto future = generator->GenerateAsync(Simple());
    model->AwaitStep();
    if (how > 0) {
      EXPECT_THAT(future.get(),
                  StatusIs(absl::StatusCode::kUnavailable,
                           "the step did not answer within 50ms"));
      EXPECT_THAT(generator->Generate(Simple()),
                  StatusIs(absl::StatusCode::kUnavailable,
                           HasSubstr("requests are refused")));
    }
    if (how == 2) {
      generator->Shutdown();
      EXPECT_EQ(generator->Stats().num_pages_held, 0);
    }
    generator.reset();
    if (how == 0) {
      EXPECT_THAT(future.get(), StatusIs(kCancelled, HasSubstr("destroyed")));
    }
    model->LetGo();
  }
}

TEST_F(GeneratorEndTest, ALateAnswerLetsRequestsRunAgain) {
  const auto model = std::make_shared<HangingModel>();
  auto made = Generator::Create(
      model, nullptr,
      {.num_threads = 1, .step_timeout = absl::Milliseconds(50)});
  ASSERT_OK(made);
  EXPECT_THAT(made->Generate(Simple()),
              StatusIs(absl::StatusCode::kUnavailable,
                       "the step did not answer within 50ms"));
  model->LetGo();
  absl::StatusOr<Generation> answer = made->Generate(Simple());
  while (absl::IsUnavailable(answer.status())) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    answer = made->Generate(Simple());
  }
  EXPECT_OK(answer);
}

}  // namespace
}  // namespace espalier::testing
