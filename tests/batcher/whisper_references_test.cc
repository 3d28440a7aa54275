// Greedy and beam search of the small Whisper models against `generate` of
// transformers, token for token, and the same requests together, with pages
// taken away and given back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "model/transformer_model.h"
#include "tests/batcher/toy_requests.h"
#include "tests/executor/drive.h"
#include "tests/family_references.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"
#include "tests/whisper_models.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using ::testing::HasSubstr;

std::unique_ptr<TransformerModel> LoadWhisperPages(const std::string& name,
                                                   int page_size,
                                                   int num_pages) {
  TransformerOptions options = {.page_size = page_size};
  const auto pool = MakePool(2);
  auto model = TransformerModel::Load(WhisperPath(name), options, pool);
  EXPECT_OK(model);
  options.kv_cache_bytes = num_pages * (*model)->description().page_bytes;
  model = TransformerModel::Load(WhisperPath(name), options, pool);
  EXPECT_OK(model);
  return *std::move(model);
}

struct WhisperRun {
  std::vector<absl::StatusOr<Result>> results;
  SchedulerStats stats;
};

// The results of requests of which ten arrive before each step.
WhisperRun RunWhisper(Model& model, const std::vector<Request>& requests,
                      const SchedulerOptions& options) {
  ModelDescription description = model.description();
  Scheduler scheduler(description, options);
  WhisperRun run;
  run.results.resize(requests.size());
  size_t next = 0;
  const auto arrive = [&](int) {
    for (int i = 0; i < 10 && next < requests.size(); ++i, ++next) {
      Request request = requests[next];
      EXPECT_OK(ValidateRequest(description, &request));
      scheduler.Submit(
          RequestId{static_cast<int64_t>(next)},
          PreparedRequest(request, /*tokenizer=*/nullptr, &model.description()),
          [&to = run.results[next]](absl::StatusOr<Result> from) {
            to = std::move(from);
          });
    }
  };
  RunToEnd(scheduler, model, arrive, /*plans_in_flight=*/1);
  run.stats = scheduler.stats();
  return run;
}

class WhisperReferencesTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, WhisperReferencesTest,
                         ::testing::ValuesIn(WhisperModels()),
                         [](const auto& model) { return model.param; });

TEST_P(WhisperReferencesTest, HypothesesAreThoseOfTransformers) {
  const auto references = ReadWhisperReferences(GetParam());
  ASSERT_GE(references.size(), 20u);
  const auto model = LoadWhisperPages(GetParam(), 4, 3000);
  const WhisperRun run =
      RunWhisper(*model, RequestsOf(references),
                 {.max_step_tokens = 60, .validate_steps = true});
  for (size_t i = 0; i < references.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_OK(run.results[i]);
    ExpectFamilyHypotheses(run.results[i]->hypotheses, references[i]);
    EXPECT_EQ(run.results[i]->usage.num_prompt_tokens,
              model->description().encoder->max_source_tokens);
  }
}

// Drafts come from the decoder's own tokens: features have none.
TEST_P(WhisperReferencesTest, PreemptedSharedAndWithDraftsTheyAreTheSame) {
  const auto references = ReadWhisperReferences(GetParam());
  std::vector<Request> requests = RequestsOf(references);
  for (size_t i = 0; i < requests.size(); i += 3) {
    requests[i].params.speculate = {.method = SpeculationMethod::kNgram,
                                    .always_drafts = true};
  }
  const auto model = LoadWhisperPages(GetParam(), 3, 60);
  const WhisperRun run = RunWhisper(
      *model, requests, {.max_step_tokens = 70, .validate_steps = true});
  for (size_t i = 0; i < references.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_OK(run.results[i]);
    ExpectFamilyHypotheses(run.results[i]->hypotheses, references[i]);
  }
  EXPECT_GT(run.stats.num_preemptions, 0);
  EXPECT_GT(run.stats.num_cached_tokens, 0);
}

// Beside searches whose beams take pages away, and in steps that score a few
// tokens each.
TEST_P(WhisperReferencesTest, PreemptedAlignmentsAreTheSameToTheBit) {
  const auto references = ReadWhisperReferences(GetParam());
  const auto roomy = LoadWhisperPages(GetParam(), 3, 3000);
  const EncoderDescription& encoder = *roomy->description().encoder;
  AlignmentQuery query = {.num_positions = encoder.max_source_tokens,
                          .num_text_tokens = 20};
  for (int i = 0; i < encoder.reported_attention->num_layers; ++i) {
    query.heads.push_back({i, 1});
  }
  const auto shared = std::make_shared<const AlignmentQuery>(query);
  std::vector<Request> aligned;
  std::vector<Request> mixed;
  for (size_t i = 0; i < references.size(); ++i) {
    Request request;
    request.features = references[i].request.features;
    for (int64_t t = 0; t < 30; ++t) {
      request.params.decoder_prompt_tokens.push_back(4 + (t * i) % 11);
    }
    request.alignment = shared;
    request.params.prefix_cache = i % 3 > 0;
    aligned.push_back(request);
    mixed.push_back(std::move(request));
    mixed.push_back(references[i].request);
    mixed.back().params.priority = i % 2;
    mixed.back().params.prefix_cache = i % 3 > 0;
  }
  int num_preemptions = 0;
  const auto run = [&](Model& model, std::vector<Request> requests,
                       const SchedulerOptions& options) {
    for (Request& request : requests) {
      EXPECT_OK(ValidateRequest(model.description(), &request));
    }
    return Drive(
        *MakeExecutor(&model, 1), requests,
        {.scheduler = options, .before_plan = [&](Scheduler& scheduler, int) {
           num_preemptions = scheduler.stats().num_preemptions;
         }});
  };
  const Answers alone =
      run(*roomy, aligned, {.max_running = 1, .validate_steps = true});
  EXPECT_EQ(num_preemptions, 0);
  int num_in_all = 0;
  for (const int num_pages : {30, 36, 44, 60}) {
    const auto model = LoadWhisperPages(GetParam(), 3, num_pages);
    for (const int max_step_tokens : {6, 12, 40}) {
      SCOPED_TRACE(Concat(num_pages, " pages, ", max_step_tokens, " tokens"));
      const Answers together = run(*model, mixed,
                                   {.max_step_tokens = max_step_tokens,
                                    .prefill_share = 0.5,
                                    .validate_steps = true});
      num_in_all += num_preemptions;
      for (size_t i = 0; i < aligned.size(); ++i) {
        SCOPED_TRACE(i);
        ASSERT_OK(alone[i]);
        ASSERT_OK(together[2 * i]);
        const Alignment& expected = *alone[i]->alignment;
        const Alignment& alignment = *together[2 * i]->alignment;
        EXPECT_EQ(alignment.attention_scores, expected.attention_scores);
        EXPECT_EQ(alignment.log_probs, expected.log_probs);
      }
    }
  }
  EXPECT_GT(num_in_all, 0);
}

// openai's filters and decoders over the model's logits
// (tools/make_timestamp_references.py). Few pages, so that requests are
// preempted.
TEST(WhisperTimestampsTest, HypothesesAreThoseOfOpenai) {
  const auto references = ReadWhisperReferences("whisper", "/timestamps.jsonl");
  ASSERT_GE(references.size(), 40u);
  int num_ended = 0;
  for (const int num_pages : {3000, 60}) {
    SCOPED_TRACE(num_pages);
    const auto model = LoadWhisperPages("whisper", 3, num_pages);
    const WhisperRun run =
        RunWhisper(*model, RequestsOf(references),
                   {.max_step_tokens = 70, .validate_steps = true});
    for (size_t i = 0; i < references.size(); ++i) {
      SCOPED_TRACE(i);
      ASSERT_OK(run.results[i]);
      const std::vector<Hypothesis>& found = run.results[i]->hypotheses;
      ExpectFamilyHypotheses(found, references[i]);
      EXPECT_NEAR(found[0].cum_log_prob, references[i].cum_log_prob, 1e-4);
      num_ended += found[0].finish_reason == FinishReason::kEos;
    }
    EXPECT_EQ(run.stats.num_preemptions > 0, num_pages == 60);
  }
  EXPECT_GT(num_ended, 20);
}

TEST_P(WhisperReferencesTest, RefusesOtherSources) {
  const auto model = LoadWhisperPages(GetParam(), 16, 100);
  const FeatureShape shape = *model->description().encoder->features;
  const auto refused = [&](Request request) {
    return ValidateRequest(model->description(), &request);
  };
  Request request;
  request.params.max_new_tokens = 3;
  EXPECT_THAT(refused(request),
              StatusIs(kInvalid, HasSubstr("features must be given")));
  request.prompt_tokens = {1, 2};
  EXPECT_THAT(refused(request),
              StatusIs(kInvalid, HasSubstr("must be features, which the "
                                           "model's encoder reads in place of "
                                           "tokens, got 2 tokens")));
  request.prompt_tokens.clear();
  const auto with = [&](FeatureMatrix features) {
    request.features =
        std::make_shared<const FeatureMatrix>(std::move(features));
    return refused(request);
  };
  const size_t size = size_t(shape.num_rows) * shape.num_cols;
  EXPECT_THAT(with({.shape = {shape.num_cols, shape.num_rows},
                    .values = std::vector<float>(size)}),
              StatusIs(kInvalid, HasSubstr(Concat("features must have ",
                                                  shape.num_rows, " rows of ",
                                                  shape.num_cols, ", got "))));
  EXPECT_THAT(with({.shape = shape, .values = std::vector<float>(size - 1)}),
              StatusIs(kInvalid, HasSubstr(Concat("features must have ", size,
                                                  " values, got ", size - 1))));
  std::vector<float> values(size);
  values[shape.num_cols + 2] = NAN;
  EXPECT_THAT(with({.shape = shape, .values = values}),
              StatusIs(kInvalid, HasSubstr("features must be finite: row 1, "
                                           "column 2, got nan")));
  values[shape.num_cols + 2] = 0;
  EXPECT_OK(with({.shape = shape, .values = values}));
}

TEST(FeaturesOfTokenModelsTest, AreRefused) {
  auto model = TransformerModel::Load(FamilyPath("bart"), {}, MakePool(1));
  ASSERT_OK(model);
  Request request;
  request.prompt_tokens = {7};
  request.params.max_new_tokens = 3;
  request.features = std::make_shared<const FeatureMatrix>();
  EXPECT_THAT(ValidateRequest((*model)->description(), &request),
              StatusIs(kInvalid, HasSubstr("features must be unset for a "
                                           "model that reads tokens")));
}

}  // namespace
}  // namespace espalier
