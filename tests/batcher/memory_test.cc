// Pages that requests share, groups that make room for others, and the steps
// that prompts get beside wide groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "tests/batcher/toy_requests.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

Request SearchOf(std::vector<TokenId> prompt, int64_t num_beams,
                 int64_t max_new_tokens) {
  Request request{std::move(prompt), {}};
  request.params.num_beams = num_beams;
  request.params.num_return_sequences = num_beams;
  request.params.max_new_tokens = max_new_tokens;
  request.params.eos_token_id.emplace();
  return request;
}

class MemoryTest : public ::testing::Test {
 protected:
  void Submit(Scheduler& scheduler, int i, Request request) {
    const absl::Status valid = ValidateRequest(description_, &request);
    ASSERT_OK(valid);
    if (answers_.size() <= i) answers_.resize(i + 1);
    scheduler.Submit(RequestId{i}, PreparedRequest(request),
                     [this, i](auto result) {
                       ASSERT_FALSE(answers_[i].has_value());
                       answers_[i] = std::move(result);
                     });
  }
  bool has(int i) const { return answers_[i].has_value(); }
  const Result& result(int i) const { return **answers_[i]; }

  ModelDescription description_;
  std::vector<std::optional<absl::StatusOr<Result>>> answers_;
};

// A model that says that its pages can be shared, as TransformerModel does.
class SharingModel : public ToyModel {
 public:
  explicit SharingModel(const ToyModelOptions& options)
      : ToyModel(options), sharing_(ToyModel::description()) {
    sharing_.has_shareable_pages = true;
  }
  const ModelDescription& description() const override { return sharing_; }

 private:
  ModelDescription sharing_;
};

std::vector<TokenId> Prompt(int length, int first = 1) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < length; ++i) prompt.push_back(1 + (i * i + first) % 9);
  return prompt;
}

// Counts the steps of a prompt of 800 tokens beside 120 samples, with 128
// tokens per step.
class PrefillShareTest : public MemoryTest {
 protected:
  int StepsToFirstToken(double prefill_share, int* num_decode_steps) {
    ToyModelOptions options;
    options.max_context = 2000;
    options.num_pages = 200000;
    ToyModel model(options);
    description_ = model.description();
    Scheduler scheduler(description_, {.max_step_tokens = 128,
                                       .prefill_share = prefill_share,
                                       .validate_steps = false});
    Request samples = SearchOf({1, 2}, 1, 1500);
    samples.params.do_sample = true;
    samples.params.num_return_sequences = 120;
    Submit(scheduler, 0, samples);
    PlanRunner runner(&model);
    const auto step = [&] {
      StepPlan plan = scheduler.Plan();
      *num_decode_steps += plan.rows.size() > 100 ? 1 : 0;
      scheduler.Advance(runner.Run(std::move(plan)));
    };
    for (int i = 0; i < 3; ++i) step();
    Submit(scheduler, 1, SearchOf(Prompt(800), 1, 1));
    int num_steps = 0;
    *num_decode_steps = 0;
    for (; !has(1); ++num_steps) step();
    scheduler.CancelAll(absl::CancelledError("enough"));
    ExpectNothingHeld(scheduler);
    answers_.clear();
    return num_steps;
  }
};

TEST_F(PrefillShareTest, APromptIsFedBesideWideGroups) {
  int num_decode_steps = 0;
  // The samples leave 8 tokens per step.
  EXPECT_EQ(StepsToFirstToken(0, &num_decode_steps), 100);
  EXPECT_EQ(num_decode_steps, 100);
  // A quarter: 32 tokens a step on average.
  EXPECT_LE(StepsToFirstToken(0.25, &num_decode_steps), 800 / 32 + 6);
  EXPECT_GE(num_decode_steps, 18);
  // Samples run at every other step at least, whatever the prompts' share.
  const int num_steps = StepsToFirstToken(1, &num_decode_steps);
  EXPECT_LE(num_steps, 2 * 800 / 128 + 2);
  EXPECT_GE(num_decode_steps, num_steps / 2);
}

TEST_F(MemoryTest, EqualPromptsThatComeTogetherAreFedOnce) {
  ToyModelOptions options;
  options.max_context = 700;
  options.num_pages = 5000;
  options.page_size = 16;
  SharingModel model(options);
  description_ = model.description();
  Scheduler scheduler(description_,
                      {.max_step_tokens = 128, .validate_steps = true});
  for (int i = 0; i < 64; ++i) {
    Submit(scheduler, i, SearchOf(Prompt(512), 2, 4));
  }
  RunToEnd(scheduler, model);
  // All but the first feed only the last token, for the logits of the first
  // generated one.
  EXPECT_EQ(scheduler.stats().num_prompt_tokens, 512 + 63);
  EXPECT_EQ(scheduler.stats().num_cached_tokens, 63 * 511);
  const Result alone = *RunAlone(options, SearchOf(Prompt(512), 2, 4));
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(SameResult(result(i), alone)) << i;
}

TEST_F(MemoryTest, SaltsAndRequestsThatWantNoneShareNothing) {
  ToyModelOptions options;
  options.num_pages = 500;
  SharingModel model(options);
  description_ = model.description();
  Scheduler scheduler(description_, {.validate_steps = true});
  const auto cached = [&](int i, const std::string& salt, bool uses) {
    Request request = SearchOf(Prompt(60), 2, 4);
    request.params.cache_salt = salt;
    request.params.prefix_cache = uses;
    Submit(scheduler, i, request);
    RunToEnd(scheduler, model);
    return result(i).usage.num_cached_tokens;
  };
  EXPECT_EQ(cached(0, "a", true), 0);
  EXPECT_EQ(cached(1, "a", true), 59);
  EXPECT_EQ(cached(2, "b", true), 0);
  EXPECT_EQ(cached(3, "", true), 0);
  EXPECT_EQ(cached(4, "", false), 0);
  EXPECT_EQ(cached(5, "", true), 59);
}

// Generated text is a prefix, too: that of a conversation's next turn.
TEST_F(MemoryTest, WhatASampleGeneratedIsSharedByWhoGoesOnFromIt) {
  ToyModelOptions options;
  options.page_size = 4;
  SharingModel model(options);
  description_ = model.description();
  Scheduler scheduler(description_, {.validate_steps = true});
  Submit(scheduler, 0, SearchOf(Prompt(10), 1, 31));
  RunToEnd(scheduler, model);
  std::vector<TokenId> next = Prompt(10);
  const std::vector<TokenId>& said = result(0).hypotheses[0].tokens;
  next.insert(next.end(), said.begin(), said.end());
  next.push_back(3);
  Submit(scheduler, 1, SearchOf(next, 1, 3));
  RunToEnd(scheduler, model);
  EXPECT_EQ(result(1).usage.num_cached_tokens, 40);
}

// A group wider than a step's tokens comes back, too.
TEST_F(MemoryTest, AGroupLargerThanAStepResumes) {
  ToyModelOptions options;
  options.page_size = 4;
  options.num_pages = 120;  // for 100 of the first and 118 of the second
  for (const bool shares : {false, true}) {
    std::unique_ptr<ToyModel> model;
    if (shares) {
      model = std::make_unique<SharingModel>(options);
    } else {
      model = std::make_unique<ToyModel>(options);
    }
    description_ = model->description();
    Scheduler scheduler(description_,
                        {.max_step_tokens = 24, .validate_steps = true});
    Request urgent = SearchOf(Prompt(40), 1, 60);
    urgent.params.do_sample = true;
    urgent.params.num_return_sequences = 6;
    urgent.params.seed = 3;
    Request wide = SearchOf(Prompt(30, 5), 1, 40);
    wide.params.do_sample = true;
    wide.params.num_return_sequences = 10;
    wide.params.seed = 4;
    Submit(scheduler, 0, urgent);
    Submit(scheduler, 1, wide);
    RunToEnd(scheduler, *model);
    EXPECT_GT(scheduler.stats().num_preemptions, 0);
    ToyModelOptions roomy = options;
    roomy.num_pages = 4000;
    EXPECT_TRUE(SameResult(result(0), *RunAlone(roomy, urgent)));
    EXPECT_TRUE(SameResult(result(1), *RunAlone(roomy, wide)));
    ExpectNothingHeld(scheduler);
    answers_.clear();
  }
}

TEST_F(MemoryTest, TheUrgentRequestIsServedFirstAndTheOtherIsPreempted) {
  ToyModelOptions options;
  options.page_size = 4;
  options.num_pages = 40;
  ToyModel model(options);
  description_ = model.description();
  Scheduler scheduler(description_, {.validate_steps = true});
  Submit(scheduler, 0, SearchOf(Prompt(40), 2, 50));
  PlanRunner runner(&model);
  const auto step = [&] { scheduler.Advance(runner.Run(scheduler.Plan())); };
  for (int i = 0; i < 5; ++i) step();
  Request urgent = SearchOf(Prompt(40, 7), 2, 50);
  urgent.params.priority = -1;
  Submit(scheduler, 1, urgent);
  while (!has(1)) step();
  EXPECT_FALSE(has(0));
  EXPECT_GT(scheduler.stats().num_preemptions, 0);
  RunToEnd(scheduler, model);
  EXPECT_TRUE(has(0));
}

}  // namespace
}  // namespace espalier
