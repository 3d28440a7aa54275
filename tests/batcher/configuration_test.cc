// Wrong configuration is reported at once, by name and value. Nothing aborts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "batcher/engine.h"
#include "executor/host/model_executor.h"
#include "tests/batcher/manual_executor.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Has the description and limits that it is made with.
class DescribedExecutor : public StepExecutor {
 public:
  explicit DescribedExecutor(ModelDescription description)
      : description_(std::move(description)) {}
  const ModelDescription& description() const override { return description_; }
  int max_plans_in_flight() const override { return max_plans_in_flight_; }
  void Execute(StepPlan, Done) override {}

  int max_plans_in_flight_ = 1;

 private:
  const ModelDescription description_;
};

class DescribedModel : public Model {
 public:
  explicit DescribedModel(ModelDescription description)
      : description_(std::move(description)) {}
  const ModelDescription& description() const override { return description_; }
  absl::Status Forward(const StepPlan&, std::span<float>) override {
    return absl::OkStatus();
  }

 private:
  const ModelDescription description_;
};

ModelDescription Sound() {
  return {.vocab_size = 10, .max_context = 64, .num_pages = 8};
}

TEST(ConfigurationTest, ADescriptionThatNoEngineCanRunWithIsNamed) {
  struct Case {
    std::function<void(ModelDescription&)> change;
    std::string message;
  };
  using Model = ModelDescription;
  const Case cases[] = {
      {[](Model& m) { m.vocab_size = 0; },
       "the model's vocab_size must be at least 1, got 0"},
      {[](Model& m) { m.max_context = 0; },
       "the model's max_context must be at least 1, got 0"},
      {[](Model& m) { m.default_max_new_tokens = -3; },
       "the model's default_max_new_tokens must be at least 1, got -3"},
      {[](Model& m) { m.num_pages = -1; },
       "the model's num_pages must be at least 1, got -1"},
      {[](Model& m) { m.page_size = 0; },
       "the model's page_size must be at least 1, got 0"},
      {[](Model& m) { m.num_host_slots = -1; },
       "the model's num_host_slots must be at least 0, got -1"},
      {[](Model& m) { m.num_host_slots = 3; },
       "the model's num_host_slots must be 0 if pages are not all that it "
       "keeps "
       "of a sequence (has_shareable_pages), got 3"},
      {[](Model& m) {
         m.eos_token_ids = {3, 10};
       },
       "the model's eos_token_ids must be token ids in [0, 10), got 10"},
      {[](Model& m) { m.eos_token_ids = {-1}; },
       "the model's eos_token_ids must be token ids in [0, 10), got -1"},
      {[](Model& m) { m.limits.max_step_tokens = 0; },
       "the model's limits.max_step_tokens must be at least 1, got 0"},
      {[](Model& m) { m.limits.max_beams = 0; },
       "the model's limits.max_beams must be at least 1, got 0"},
      {[](Model& m) { m.limits.max_eos_token_ids = -1; },
       "the model's limits.max_eos_token_ids must be at least 0, got -1"},
      {[](Model& m) { m.limits.max_score_edits = -1; },
       "the model's limits.max_score_edits must be at least 0, got -1"},
      {[](Model& m) { m.limits.max_candidates = 0; },
       "the model's limits.max_candidates must be at least 1, got 0"},
      {[](Model& m) {
         m.limits.max_step_tokens = 4;
         m.limits.max_beams = 5;
       },
       "the model's limits.max_beams must be at most its "
       "limits.max_step_tokens (4), because the beams of a request run "
       "together, got 5"},
  };
  boost::asio::io_context context;
  EXPECT_OK(CheckDescription(Sound()));
  for (const Case& c : cases) {
    ModelDescription description = Sound();
    c.change(description);
    EXPECT_THAT(CheckDescription(description), StatusIs(kInvalid, c.message));
    EXPECT_THAT(Engine::Create(context.get_executor(),
                               std::make_shared<DescribedExecutor>(description))
                    .status(),
                StatusIs(kInvalid, c.message));
    EXPECT_THAT(ModelExecutor::Create(
                    std::make_shared<DescribedModel>(description), MakePool(1)),
                StatusIs(kInvalid, c.message));
  }
}

TEST(ConfigurationTest, AModelThatBoundsTokensAloneBoundsItsBeams) {
  for (const int max_step_tokens : {7, 100'000}) {
    ModelDescription description = Sound();
    description.limits.max_step_tokens = max_step_tokens;
    description.has_shareable_pages = true;
    const auto model = std::make_shared<DescribedModel>(description);
    const auto executor = ModelExecutor::Create(
        model, MakePool(1),
        {.draft_model = std::make_shared<DescribedModel>(description)});
    ASSERT_OK(executor);
    const StepLimits& limits = (*executor)->description().limits;
    EXPECT_EQ(limits.max_step_tokens, max_step_tokens);
    EXPECT_EQ(limits.max_beams, std::min(max_step_tokens, 8192));
  }
}

TEST(ConfigurationTest, OptionsOfAnEngineAreNamed) {
  boost::asio::io_context context;
  const auto create = [&](const EngineOptions& options) {
    return Engine::Create(context.get_executor(),
                          std::make_shared<DescribedExecutor>(Sound()), options)
        .status();
  };
  EXPECT_OK(create({}));
  for (const int value : {0, -7}) {
    EngineOptions options;
    options.scheduler.max_running = value;
    EXPECT_THAT(create(options),
                StatusIs(kInvalid, Concat("scheduler.max_running must be at "
                                          "least 1, got ",
                                          value)));
    options = EngineOptions();
    options.scheduler.max_step_tokens = value;
    EXPECT_THAT(create(options),
                StatusIs(kInvalid, Concat("scheduler.max_step_tokens must be "
                                          "at least 1, got ",
                                          value)));
  }
  EngineOptions drafting;
  drafting.speculate = {SpeculationMethod::kNgram};
  EXPECT_THAT(
      create(drafting),
      StatusIs(kInvalid,
               "speculate.method must be \"off\" for a model that keeps "
               "more of a sequence than pages, got \"ngram\""));
  ModelDescription verifying = Sound();
  verifying.has_shareable_pages = true;
  for (const auto& [speculate, message] :
       {std::pair(SpeculationParams{SpeculationMethod::kNgram, 33},
                  "speculate.num_tokens must be at most 32, got 33"),
        std::pair(SpeculationParams{SpeculationMethod::kDraft},
                  "speculate.method must be \"ngram\", \"suffix\", "
                  "\"constraint\" or \"off\" "
                  "without a draft model, got \"draft\"")}) {
    drafting.speculate = speculate;
    EXPECT_THAT(
        Engine::Create(context.get_executor(),
                       std::make_shared<DescribedExecutor>(verifying), drafting)
            .status(),
        StatusIs(kInvalid, message));
  }
  auto idle = std::make_shared<DescribedExecutor>(Sound());
  idle->max_plans_in_flight_ = 0;
  EXPECT_THAT(Engine::Create(context.get_executor(), idle).status(),
              StatusIs(kInvalid, HasSubstr("at least 1, got 0")));
  EXPECT_THAT(Engine::Create(context.get_executor(), nullptr).status(),
              StatusIs(kInvalid, "steps must not be null"));
  EXPECT_THAT(
      Engine::Create({}, std::make_shared<DescribedExecutor>(Sound())).status(),
      StatusIs(kInvalid, "executor must not be empty"));
}

TEST(ConfigurationTest, AnExecutorNeedsItsParts) {
  EXPECT_THAT(ModelExecutor::Create(nullptr, MakePool(1)),
              StatusIs(kInvalid, "model must not be null"));
  EXPECT_THAT(
      ModelExecutor::Create(std::make_shared<DescribedModel>(Sound()), nullptr),
      StatusIs(kInvalid, "pool must not be null"));
}

// Both would write into the same pages.
TEST(ConfigurationTest, AModelRunsOnOneExecutorAtATime) {
  const auto model = std::make_shared<DescribedModel>(Sound());
  auto first = ModelExecutor::Create(model, MakePool(1));
  ASSERT_OK(first);
  EXPECT_THAT(ModelExecutor::Create(model, MakePool(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "the model runs on another executor"));
  first->reset();
  EXPECT_OK(ModelExecutor::Create(model, MakePool(1)));
}

TEST(ConfigurationTest, AnExecutorServesOneEngineAtATime) {
  ToyModel model(SmallModel());  // the context's end uses it
  boost::asio::io_context context;
  const auto steps = MakeExecutor(&model);
  {
    const Engine engine = MakeEngine(context.get_executor(), steps);
    EXPECT_THAT(Engine::Create(context.get_executor(), steps).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("steps serve another engine")));
  }
  context.run();  // it takes note of its end
  EXPECT_OK(Engine::Create(context.get_executor(), steps).status());
}

}  // namespace
}  // namespace espalier
