// The mixture test's own parts (mixture_requests.h, answer_comparison.h), with
// the executor on the host: random requests are valid and of every kind;
// together they give the same results as alone; and the comparison finds
// planted differences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "beam/constraint_cache.h"
#include "executor/host/model_executor.h"
#include "model/transformer_model.h"
#include "tests/executor/answer_comparison.h"
#include "tests/executor/answer_log.h"
#include "tests/executor/drive.h"
#include "tests/executor/mixture_requests.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ModelDescription AnyModel() {
  ModelDescription model;
  model.vocab_size = 6000;
  model.max_context = 1024;
  model.eos_token_ids = {2};
  return model;
}

TEST(MixtureRequestsTest, AllKindsAndWidthsComeUp) {
  const ModelDescription model = AnyModel();
  std::map<std::string, int> kinds;
  int64_t most_samples = 0, most_beams = 0;
  for (const Request& request : AnyMixtureRequests(
           Cases(2000, 400), 1, model, {.scores = true, .constrains = true})) {
    const GenerationParams& p = request.params;
    kinds["scores"] += !request.continuations.empty();
    kinds["logprobs_start"] += p.logprobs_start > 0;
    if (!request.continuations.empty()) continue;
    kinds["greedy"] += !IsBeamSearch(p) && !p.do_sample;
    kinds["samples"] += !IsBeamSearch(p) && p.do_sample;
    kinds["diverse"] += p.num_beam_groups > 1;
    kinds["sampled beams"] += p.num_beams > 1 && p.do_sample;
    kinds["stochastic"] += p.stochastic;
    kinds["wide"] += p.num_beams > 32;
    kinds["history"] +=
        p.no_repeat_ngram_size > 0 || p.bad_words_ids.size() > 1;
    kinds["stop"] += !p.stop.empty();
    kinds["sequences"] += p.allowed_sequences.has_value();
    kinds["timestamps"] += p.timestamps.has_value();
    kinds["constraint"] += p.constraint.has_value();
    kinds["logprobs"] += p.logprobs.has_value();
    kinds["prompt_logprobs"] += p.prompt_logprobs.has_value();
    if (!IsBeamSearch(p)) {
      most_samples = std::max(most_samples, p.num_return_sequences);
    }
    most_beams = std::max(most_beams, p.num_beams);
  }
  for (const auto& [kind, count] : kinds) EXPECT_GT(count, 10) << kind;
  EXPECT_EQ(most_samples, MixtureLimits().max_samples);
  EXPECT_EQ(most_beams, MixtureLimits().max_beams);
}

// A model with slightly varying logits, like a device, where the order of sums
// depends on the number of rows in a step.
class NoisyModel : public Model {
 public:
  NoisyModel(Model* model, float noise, uint32_t seed)
      : model_(model), noise_(noise), random_(seed) {}

  const ModelDescription& description() const override {
    return model_->description();
  }
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    RETURN_IF_ERROR(model_->Forward(plan, logits));
    for (float& logit : logits) {
      const float unit = static_cast<float>(random_()) * 0x1p-32f;
      logit += noise_ * (2 * unit - 1);
    }
    return absl::OkStatus();
  }

 private:
  Model* const model_;
  const float noise_;
  std::mt19937 random_;
};

class MixtureTest : public ::testing::Test {
 protected:
  MixtureTest() : pool_(MakePool(1)) {
    auto model = TransformerModel::Load(SourcePath("models/en-fr"), {}, pool_);
    EXPECT_OK(model.status());
    model_ = *std::move(model);
    auto tokenizer =
        Tokenizer::Load(SourcePath("models/en-fr/tokenizer.model"));
    EXPECT_OK(tokenizer.status());
    tokenizer_ = *std::move(tokenizer);
    constraints_ =
        std::make_unique<ConstraintCache>(tokenizer_, model_->description());
  }

  std::vector<Request> AnyRequests(int count) {
    return AnyMixtureRequests(count, 3, model_->description(),
                              {.max_samples = 12,
                               .max_beams = 8,
                               .max_new_tokens = 4,
                               .speculates = true,
                               .scores = true,
                               .constrains = true});
  }
  PreparedRequest Prepared(const Request& request) const {
    return PreparedRequest(request, tokenizer_, nullptr,
                           *constraints_->Get(request));
  }
  std::vector<AnsweredRequest> Run(const std::vector<Request>& requests) {
    return Run(model_.get(), requests);
  }
  std::vector<AnsweredRequest> Run(Model* model,
                                   const std::vector<Request>& requests) {
    const auto steps = MakeExecutor(model, pool_);
    AnswerLog log(steps.get());
    Answers answers = Drive(log, requests, {.tokenizer = tokenizer_});
    auto lists = log.Take();
    std::vector<AnsweredRequest> answered;
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_OK(answers[i].status());
      answered.push_back({std::move(lists[RequestId{static_cast<int64_t>(i)}]),
                          *std::move(answers[i])});
    }
    return answered;
  }

  const std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<TransformerModel> model_;
  std::shared_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ConstraintCache> constraints_;
};

TEST_F(MixtureTest, OnTheHostRequestsTogetherGetWhatEachGetsAlone) {
  const std::vector<Request> requests = AnyRequests(Cases(40, 24));
  const std::vector<AnsweredRequest> together = Run(requests);
  AnswerCounts counts;
  int num_speculated = 0;
  int num_scored = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    Request plain = requests[i];
    plain.params.speculate.reset();
    const AnsweredRequest alone = Run({plain})[0];
    // By rejection other tokens may be drawn.
    const auto& speculate = requests[i].params.speculate;
    if (speculate && speculate->mode == SpeculationMode::kRejection) continue;
    num_speculated += speculate.has_value();
    EXPECT_EQ(
        CompareAnswers(Prepared(requests[i]), alone, together[i], &counts), "")
        << "request " << i;
    num_scored += alone.result.continuations.empty() ? 0 : 1;
    EXPECT_NE(alone.steps.empty(), alone.result.continuations.empty());
  }
  EXPECT_GT(num_speculated, 0);
  EXPECT_GT(num_scored, 0);
  counts.Print("on the host");
  EXPECT_EQ(counts.num_near_ties + counts.num_late_ties +
                counts.num_filtered_ties + counts.num_other_samples,
            0);
}

// Together with requests of other kinds. Bans may leave no token of allowed
// sequences.
TEST_F(MixtureTest, OutputsInALanguageAreWholeTexts) {
  std::vector<Request> requests =
      AnyMixtureRequests(Cases(300, 100), 5, model_->description(),
                         {.max_samples = 12,
                          .max_beams = 8,
                          .max_new_tokens = 12,
                          .speculates = true,
                          .constrains = true});
  std::erase_if(requests, [](const Request& request) {
    return request.params.allowed_sequences.has_value();
  });
  const std::vector<AnsweredRequest> together = Run(requests);
  int num_whole = 0;
  int num_full = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const GenerationParams& params = requests[i].params;
    if (!params.constraint) continue;
    const auto constraint = *constraints_->Get(requests[i]);
    for (const Hypothesis& found : together[i].result.hypotheses) {
      const auto length = static_cast<int>(found.tokens.size());
      const int room = static_cast<int>(*params.max_new_tokens) - length;
      ASSERT_GE(room, 0);
      Constraint::State state = constraint->start();
      for (const TokenId token : found.tokens) {
        state = constraint->Advance(state, token);
        ASSERT_NE(state, Constraint::kNone) << "request " << i;
      }
      if (!params.stop.empty()) continue;
      EXPECT_TRUE(constraint->accepts(state, room)) << "request " << i;
      EXPECT_NE(found.finish_reason, FinishReason::kLength) << "request " << i;
      ++num_whole;
      num_full += room == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(num_whole, 30);
  EXPECT_GT(num_full, 5);
}

// With the noise of float32 rounding of logits near 10, counts stay within the
// bounds; a thousand times as much does not pass for rounding.
TEST_F(MixtureTest, RoundingIsToldFromOtherAnswers) {
  const std::vector<Request> requests =
      AnyMixtureRequests(Cases(120, 10), 4, model_->description(),
                         {.max_samples = 60, .max_beams = 48});
  NoisyModel noisy(model_.get(), 3e-6f, 1);
  NoisyModel other(model_.get(), 3e-3f, 2);
  AnswerCounts counts;
  AnswerCounts ignored;
  int num_other = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const PreparedRequest params = Prepared(requests[i]);
    const AnsweredRequest exact = Run({requests[i]})[0];
    EXPECT_EQ(
        CompareAnswers(params, exact, Run(&noisy, {requests[i]})[0], &counts),
        "")
        << "request " << i;
    num_other += CompareAnswers(params, exact, Run(&other, {requests[i]})[0],
                                &ignored) != "";
  }
  counts.Print("with noise");
  EXPECT_EQ(counts.AboveBounds(), "");
  EXPECT_GT(num_other, std::ssize(requests) / 3);
}

PreparedRequest Prepared(const GenerationParams& params) {
  return PreparedRequest({.prompt_tokens = {1}, .params = params});
}

// Two beams after a step of three candidates.
AnsweredRequest TwoBeams() {
  AnsweredRequest run;
  run.steps = {{{.beam = 0, .token = 7, .cum_log_prob = -1.0f},
                {.beam = 0, .token = 8, .cum_log_prob = -1.5f},
                {.beam = 0, .token = 9, .cum_log_prob = -1.75f}}};
  run.result.hypotheses = {
      {.tokens = {7}, .score = -1.0f, .cum_log_prob = -1},
      {.tokens = {8}, .score = -1.5f, .cum_log_prob = -1.5}};
  return run;
}

std::string CompareBeams(const AnsweredRequest& actual, AnswerCounts* counts) {
  GenerationParams params;
  params.num_beams = 2;
  return CompareAnswers(Prepared(params), TwoBeams(), actual, counts);
}

TEST(AnswerComparisonTest, OtherCandidatesAreSeen) {
  AnswerCounts counts;
  EXPECT_EQ(CompareBeams(TwoBeams(), &counts), "");
  AnsweredRequest run = TwoBeams();
  run.steps[0][1].token = 12;
  run.steps[0][1].cum_log_prob = -1.51f;
  EXPECT_THAT(CompareBeams(run, &counts), HasSubstr("from step 0 of 1 on"));
  run = TwoBeams();
  run.steps[0].pop_back();
  EXPECT_THAT(CompareBeams(run, &counts), HasSubstr("from step 0"));
  run = TwoBeams();
  run.result.hypotheses[1].tokens = {9};
  run.result.hypotheses[1].score = -1.75f;
  EXPECT_THAT(CompareBeams(run, &counts), HasSubstr("missing hypothesis [8]"));
  run = TwoBeams();
  run.result.hypotheses[0].score = -0.99f;
  EXPECT_THAT(CompareBeams(run, &counts), Not(""));
  EXPECT_EQ(counts.num_near_ties + counts.num_late_ties, 0);
}

TEST(AnswerComparisonTest, OtherScoresOfContinuationsAreSeen) {
  const PreparedRequest request(
      {.prompt_tokens = {1}, .params = {}, .continuations = {{5, 6}}});
  AnsweredRequest expected;
  expected.result.continuations = {{.tokens = {5, 6},
                                    .cum_log_prob = -3,
                                    .is_greedy = false,
                                    .log_probs = {-1, -2},
                                    .ranks = {1, 200}}};
  AnswerCounts counts;
  AnsweredRequest run = expected;
  run.result.continuations[0].log_probs[1] = -2.000001f;
  run.result.continuations[0].ranks[1] = 203;
  EXPECT_EQ(CompareAnswers(request, expected, run, &counts), "");
  run = expected;
  run.result.continuations[0].log_probs[1] = -2.5;
  EXPECT_THAT(CompareAnswers(request, expected, run, &counts),
              HasSubstr("continuation 0 has"));
  run = expected;
  run.result.continuations[0].tokens[0] = 6;
  EXPECT_NE(CompareAnswers(request, expected, run, &counts), "");
  run = expected;
  run.result.continuations[0].is_greedy = true;
  EXPECT_NE(CompareAnswers(request, expected, run, &counts), "");
  run.result.continuations.clear();
  EXPECT_THAT(CompareAnswers(request, expected, run, &counts),
              HasSubstr("0 continuations"));
}

TEST(AnswerComparisonTest, AnswersBehindTheEndSayNothing) {
  GenerationParams params;
  params.num_beams = 2;
  AnswerCounts counts;
  AnsweredRequest expected = TwoBeams();
  expected.steps.emplace_back();
  AnsweredRequest actual = TwoBeams();
  actual.steps.push_back(actual.steps[0]);
  EXPECT_EQ(CompareAnswers(Prepared(params), expected, actual, &counts), "");
  // A search that has not ended has another result.
  actual.result.hypotheses[1].tokens = {8, 7};
  actual.result.hypotheses[1].score = -2.5f;
  EXPECT_THAT(CompareAnswers(Prepared(params), expected, actual, &counts),
              HasSubstr("missing hypothesis [8]"));
}

TEST(AnswerComparisonTest, WhatTiesIsCounted) {
  AnswerCounts counts;
  AnsweredRequest run = TwoBeams();
  run.steps[0][2].token = 12;
  EXPECT_EQ(CompareBeams(run, &counts), "");
  EXPECT_EQ(counts.num_near_ties, 1);
  run = TwoBeams();
  std::swap(run.steps[0][0], run.steps[0][1]);
  EXPECT_EQ(CompareBeams(run, &counts), "");
  run.result.hypotheses[1].tokens = {12};
  run.result.hypotheses[1].score = -1.8f;
  EXPECT_EQ(CompareBeams(run, &counts), "");
  EXPECT_EQ(counts.num_late_ties, 1);
  EXPECT_EQ(counts.num_beams, 3);
  EXPECT_EQ(counts.AboveBounds(), "");
  counts.num_near_ties = 4;
  EXPECT_THAT(counts.AboveBounds(), HasSubstr("4 near ties of 3"));
}

TEST(AnswerComparisonTest, FewSamplesMayBeOthers) {
  GenerationParams params;
  params.do_sample = true;
  params.num_return_sequences = 40;
  AnsweredRequest expected;
  for (int i = 0; i < 40; ++i) {
    expected.result.hypotheses.push_back({.tokens = {i}});
  }
  AnsweredRequest actual = expected;
  AnswerCounts counts;
  for (int i = 0; i < 6; ++i) {
    actual.result.hypotheses[i].tokens = {100};
    EXPECT_EQ(CompareAnswers(Prepared(params), expected, actual, &counts), "");
  }
  actual.result.hypotheses[6].tokens = {100};
  EXPECT_THAT(CompareAnswers(Prepared(params), expected, actual, &counts),
              HasSubstr("7 of 40 samples"));
  EXPECT_EQ(counts.num_samples, 240);
  EXPECT_EQ(counts.num_other_samples, 21);
  EXPECT_THAT(counts.AboveBounds(), HasSubstr("21 other samples of 240"));
}

// A filter that keeps another token moves the borders of all that follow.
TEST(AnswerComparisonTest, FewFilteredRequestsMayBeShifted) {
  GenerationParams params;
  params.do_sample = true;
  params.num_return_sequences = 40;
  params.top_p = 0.9;
  AnsweredRequest expected;
  for (int i = 0; i < 40; ++i) {
    expected.result.hypotheses.push_back({.tokens = {i}});
  }
  AnsweredRequest actual = expected;
  for (int i = 0; i < 20; ++i) actual.result.hypotheses[i].tokens = {100};
  AnswerCounts counts;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(counts.AboveBounds(), "");
    EXPECT_EQ(CompareAnswers(Prepared(params), expected, actual, &counts), "");
  }
  EXPECT_EQ(counts.num_other_samples, 0);
  EXPECT_THAT(counts.AboveBounds(), HasSubstr("3 of 3 sampled requests"));
  params.top_p = 1;
  EXPECT_THAT(CompareAnswers(Prepared(params), expected, actual, &counts),
              HasSubstr("20 of 40 samples"));
}

}  // namespace
}  // namespace espalier::testing
