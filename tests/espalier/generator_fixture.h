// A generator of a toy model with steps that a test can hold, and functions to
// call it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "espalier/generator.h"
#include "exec_request/model.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/stream_log.h"
#include "tests/batcher/toy_requests.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "tests/toy_model.h"

namespace espalier::testing {

inline constexpr auto kCancelled = absl::StatusCode::kCancelled;
inline constexpr auto kIgnoreEvents = [](const StreamEvent&) { return true; };

// A ToyModel that, while it is held, blocks in steps with rows, unless
// plan.stop is requested.
class HeldModel : public Model {
 public:
  static constexpr int kAllSteps = 1 << 30;

  explicit HeldModel(const ToyModelOptions& options) : model_(options) {}

  const ModelDescription& description() const override {
    return model_.description();
  }
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      ++num_begun_;
      changed_.notify_all();
      while (num_begun_ > num_free_ && !plan.rows.empty() &&
             !plan.stop.stop_requested()) {
        changed_.wait_for(lock, std::chrono::milliseconds(1));
      }
    }
    return model_.Forward(plan, logits);
  }

  // Holds the present step and later ones; or those after the first `count`.
  void Hold(bool is_held) { HoldAfter(is_held ? 0 : kAllSteps); }
  void HoldAfter(int count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    num_free_ = count;
    changed_.notify_all();
  }
  // Until the first step has begun.
  void AwaitStep() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return num_begun_ > 0; });
  }
  // REQUIRES: no step runs.
  int num_sequences() const { return model_.num_sequences(); }

 private:
  ToyModel model_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_free_ = kAllSteps;
  int num_begun_ = 0;
};

// Uses every entry of the embedded translator's tokenizer, and so any byte and
// symbol.
inline ToyModelOptions TextModel() {
  ToyModelOptions options = ByteModel(1);
  options.vocab_size = EnFrTokenizer().vocab_size();
  return options;
}

class GeneratorFixture : public ::testing::Test {
 protected:
  explicit GeneratorFixture(const ToyModelOptions& model = SmallModel())
      : model_options_(model) {}

  void Make(const GeneratorOptions& options = {.num_threads = 2},
            std::shared_ptr<const Tokenizer> tokenizer = nullptr) {
    model_ = std::make_shared<HeldModel>(model_options_);
    absl::StatusOr<Generator> made =
        Generator::Create(model_, std::move(tokenizer), options);
    ASSERT_OK(made);
    generator_ = std::make_unique<Generator>(*std::move(made));
  }

  GenerationRequest Simple(int num_beams = 2, int max_new_tokens = 5) {
    GenerationRequest request{std::vector<TokenId>{1, 2, 3}};
    request.params.num_beams = num_beams;
    request.params.max_new_tokens = max_new_tokens;
    request.params.ignore_eos = true;
    return request;
  }

  // Waits until `count` requests have reached the strand, or left it.
  GeneratorStats AwaitRequests(int count) {
    GeneratorStats stats;
    for (int i = 0; i < 10'000; ++i) {
      stats = generator_->Stats();
      if (stats.num_running + stats.num_preempted + stats.num_waiting == count)
        return stats;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "not " << count << " requests";
    return stats;
  }

  void ExpectNothingHeld() {
    const GeneratorStats stats = AwaitRequests(0);
    EXPECT_EQ(stats.num_running, 0);
    EXPECT_EQ(stats.num_waiting, 0);
    EXPECT_EQ(stats.num_pages_held, 0);
  }

  const ToyModelOptions model_options_;
  std::shared_ptr<HeldModel> model_;
  std::unique_ptr<Generator> generator_;
};

inline GenerationRequest FrontDoorRequest(const Request& request) {
  return {Prompt(request.prompt_tokens), request.params};
}

}  // namespace espalier::testing
