// Steps with drafts that begin where the device finds that the previous step
// has ended, before its result is read: on a toy device with random pauses, so
// that results, plans and drafts come in any order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "tests/executor/drafts/step_drafter_fixture.h"
#include "tests/executor/drafts/toy_device.h"
#include "tests/few_cases.h"

namespace espalier::testing {
namespace {

class ModelThatMayFail : public Model {
 public:
  ModelThatMayFail(std::shared_ptr<Model> model,
                   std::shared_ptr<std::atomic<bool>> failing)
      : model_(std::move(model)), failing_(std::move(failing)) {}

  const ModelDescription& description() const override {
    return model_->description();
  }
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    if (*failing_) return absl::InternalError("the step fails");
    return model_->Forward(plan, logits);
  }

 private:
  const std::shared_ptr<Model> model_;
  const std::shared_ptr<std::atomic<bool>> failing_;
};

// A model that drafts for itself, with all of it on a toy device.
struct OnToyDevice {
  explicit OnToyDevice(
      int max_pause_us,
      std::function<bool(int)> fails = [](int) { return false; })
      : device(std::make_shared<ToyDevice>(max_pause_us)) {
    const auto pool = MakePool(1);
    const auto draft = std::make_shared<ToyModel>(DraftedModel());
    sampler = std::make_shared<ToyDeviceSampler>(device, draft);
    const auto failing = std::make_shared<std::atomic<bool>>(false);
    auto inner = *ModelExecutor::Create(
        std::make_shared<ModelThatMayFail>(
            std::make_shared<ToyModel>(DraftedModel()), failing),
        pool, {.run_ahead = true});
    steps = std::make_shared<ToyDeviceExecutor>(
        device, std::move(inner), *DraftModel::Create(draft, pool, sampler),
        std::move(fails), failing);
  }

  std::shared_ptr<ToyDevice> device;
  std::shared_ptr<ToyDeviceSampler> sampler;
  std::shared_ptr<StepExecutor> steps;
};

class UnreadDraftsTest : public StepDrafterTest {
 protected:
  std::vector<Request> Samples(int count, uint32_t seed) {
    std::vector<Request> requests = AnyRequests(count, seed);
    std::mt19937 random(seed);
    std::erase_if(requests, [&](const Request& request) {
      return IsBeamSearch(request.params) && random() % 6 != 0;
    });
    for (Request& request : requests) {
      if (request.params.allowed_sequences) continue;
      request.params.max_new_tokens = 60;
      request.params.ignore_eos |= random() % 2 == 0;
      // A parameter that depends on the text requires reading results first;
      // this test rarely sets one.
      if (random() % 4 == 0) continue;
      request.params.repetition_penalty = 1;
      request.params.frequency_penalty = 0;
      request.params.presence_penalty = 0;
      request.params.no_repeat_ngram_size = 0;
      request.params.bad_words.clear();
      request.params.stop.clear();
    }
    Speculate(SpeculationMode::kCoupled, &requests);
    for (Request& request : requests) {
      if (!request.params.speculate) continue;
      request.params.speculate->always_drafts = seed % 2 == 0;
    }
    return requests;
  }
};

// Compares results; the toy device rounds, so sums may differ slightly.
void ExpectSame(const Result& alone, const Result& together) {
  ASSERT_EQ(alone.hypotheses.size(), together.hypotheses.size());
  for (size_t i = 0; i < alone.hypotheses.size(); ++i) {
    EXPECT_EQ(alone.hypotheses[i].tokens, together.hypotheses[i].tokens);
    EXPECT_EQ(alone.hypotheses[i].finish_reason,
              together.hypotheses[i].finish_reason);
    EXPECT_NEAR(alone.hypotheses[i].score, together.hypotheses[i].score, 1e-3);
  }
}

// A model that drafts for itself is always right, except after ends.
TEST_F(UnreadDraftsTest, RequestsGetWhatTheyGetAlone) {
  int num_unread = 0;
  int num_with_two = 0;
  int64_t num_drafted = 0;
  int64_t num_accepted = 0;
  for (uint32_t seed = 1; seed <= Cases(120u, 40u); ++seed) {
    SCOPED_TRACE(seed);
    // If one group has to wait for its result, all groups do.
    const std::vector<Request> requests = Samples(1 + seed % 10, seed);
    const OnToyDevice toy(seed % 2 == 0 ? 200 : 20);
    const Answers together = Drive(*toy.steps, requests, {.num_in_flight = 2});
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      Request plain = requests[i];
      plain.params.speculate.reset();
      const auto alone = RunAlone(DraftedModel(), plain);
      ASSERT_EQ(alone.status(), together[i].status());
      if (!alone.ok()) continue;
      ASSERT_NO_FATAL_FAILURE(ExpectSame(*alone, *together[i]));
      if (IsBeamSearch(plain.params)) continue;
      num_drafted += together[i]->usage.num_drafted_tokens;
      num_accepted += together[i]->usage.num_accepted_tokens;
    }
    num_unread += toy.sampler->num_unread();
    num_with_two += toy.sampler->num_unread_with_two();
  }
  EXPECT_GT(num_accepted, num_drafted * 99 / 100);
  EXPECT_GT(num_unread, Cases(300, 80));
  EXPECT_GT(num_with_two, Cases(30, 8));
}

// A failed step ends only its own requests, and no request waits for its
// result.
TEST_F(UnreadDraftsTest, StepsThatFailEndTheirRequestsAlone) {
  int num_failed = 0;
  int num_done = 0;
  for (uint32_t seed = 1; seed <= Cases(20u, 8u); ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<Request> requests = Samples(12, seed);
    std::mt19937 random(seed);
    const OnToyDevice toy(50, [&](int) { return random() % 12 == 0; });
    const Answers together =
        Drive(*toy.steps, requests,
              {.num_in_flight = 2,
               .scheduler = {.max_running = 6, .max_step_tokens = 64}});
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      num_failed += !together[i].ok();
      if (!together[i].ok()) continue;
      ++num_done;
      Request plain = requests[i];
      plain.params.speculate.reset();
      ASSERT_NO_FATAL_FAILURE(
          ExpectSame(*RunAlone(DraftedModel(), plain), *together[i]));
    }
  }
  EXPECT_GT(num_failed, 10);
  EXPECT_GT(num_done, 10);
}

}  // namespace
}  // namespace espalier::testing
