// Greedy and beam search of the small models of each family against `generate`
// of transformers, token for token; and the same requests among others, with
// pages shared, taken away and given back.
#include "tests/family_references.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "model/transformer_model.h"
#include "tests/batcher/toy_requests.h"
#include "tests/family_models.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT

// Loads a model with `num_pages` pages.
std::unique_ptr<TransformerModel> LoadWithPages(const std::string& name,
                                                int page_size, int num_pages,
                                                int num_host_slots = 0) {
  TransformerOptions options = {.page_size = page_size};
  const auto pool = MakePool(2);
  auto model = TransformerModel::Load(FamilyPath(name), options, pool);
  EXPECT_OK(model);
  const int64_t page_bytes = (*model)->description().page_bytes;
  options.kv_cache_bytes = num_pages * page_bytes;
  options.host_cache_bytes = num_host_slots * page_bytes;
  model = TransformerModel::Load(FamilyPath(name), options, pool);
  EXPECT_OK(model);
  return *std::move(model);
}

struct FamilyRun {
  std::vector<absl::StatusOr<Result>> results;
  SchedulerStats stats;
};

// The results of requests of which ten arrive before each step.
FamilyRun RunFamily(Model& model, const std::vector<Request>& requests,
                    const SchedulerOptions& options, int plans_in_flight = 1) {
  ModelDescription description = model.description();
  Scheduler scheduler(description, options);
  FamilyRun run;
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
  RunToEnd(scheduler, model, arrive, plans_in_flight);
  run.stats = scheduler.stats();
  return run;
}

class FamilyReferencesTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, FamilyReferencesTest,
                         ::testing::ValuesIn(FamilyModels()),
                         [](const auto& model) { return model.param; });

TEST_P(FamilyReferencesTest, HypothesesAreThoseOfTransformers) {
  const auto references = ReadFamilyReferences(GetParam());
  ASSERT_GE(references.size(), 10u);
  const std::vector<Request> requests = RequestsOf(references);
  const auto model = LoadWithPages(GetParam(), 4, 3000);
  const FamilyRun run = RunFamily(
      *model, requests, {.max_step_tokens = 60, .validate_steps = true});
  for (size_t i = 0; i < references.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_OK(run.results[i]);
    ExpectFamilyHypotheses(run.results[i]->hypotheses, references[i]);
  }
}

// Drafts of encoder-decoders come from the source, too.
TEST_P(FamilyReferencesTest, WithDraftsTheyAreThoseOfTransformers) {
  const auto references = ReadFamilyReferences(GetParam());
  const auto model = LoadWithPages(GetParam(), 4, 3000);
  if (!model->description().encoder) GTEST_SKIP() << "has no encoder";
  for (const SpeculationMethod method :
       {SpeculationMethod::kNgram, SpeculationMethod::kSuffix}) {
    SCOPED_TRACE(NameOf(method));
    std::vector<Request> requests = RequestsOf(references);
    for (Request& request : requests) {
      request.params.speculate = {.method = method, .always_drafts = true};
    }
    const FamilyRun run = RunFamily(
        *model, requests, {.max_step_tokens = 60, .validate_steps = true});
    int64_t num_accepted = 0;
    for (size_t i = 0; i < references.size(); ++i) {
      SCOPED_TRACE(i);
      ASSERT_OK(run.results[i]);
      ExpectFamilyHypotheses(run.results[i]->hypotheses, references[i]);
      num_accepted += run.results[i]->usage.num_accepted_tokens;
    }
    EXPECT_GT(num_accepted, 0);
  }
}

// Requests that begin alike and go on long, the references', and random ones of
// every kind.
std::vector<Request> MixedRequests(const std::string& name,
                                   const ModelDescription& model) {
  std::vector<Request> requests;
  std::mt19937 random(19);
  std::vector<TokenId> trunk;
  for (int i = 0; i < 21; ++i) trunk.push_back(1 + random() % 60);
  for (int i = 0; i < 12; ++i) {
    Request& request = requests.emplace_back();
    request.prompt_tokens = trunk;
    request.prompt_tokens.push_back(10 + i / 2);
    request.params.max_new_tokens = 20;
    request.params.ignore_eos = true;
    request.params.num_beams = 2 + i % 4;
  }
  for (const Request& request : RequestsOf(ReadFamilyReferences(name))) {
    requests.push_back(request);
  }
  for (const Request& request : RandomRequests(Cases(30, 8), 17, model)) {
    requests.push_back(request);
  }
  return requests;
}

TEST_P(FamilyReferencesTest, TogetherPreemptedAndSharedIsAsAlone) {
  const auto roomy = LoadWithPages(GetParam(), 16, 500);
  const std::vector<Request> requests =
      MixedRequests(GetParam(), roomy->description());
  std::vector<Result> alone;
  for (const Request& request : requests) {
    FamilyRun run = RunFamily(*roomy, {request}, {.prefix_cache = false});
    ASSERT_OK(run.results[0]);
    alone.push_back(*std::move(run.results[0]));
  }
  struct Way {
    int page_size;
    int num_pages;
    int num_host_slots;
    int plans_in_flight;
  };
  for (const Way& way : {Way{3, 80, 0, 1}, Way{1, 240, 600, 2}}) {
    SCOPED_TRACE(way.page_size);
    const auto model = LoadWithPages(GetParam(), way.page_size, way.num_pages,
                                     way.num_host_slots);
    const FamilyRun run = RunFamily(
        *model, requests, {.max_step_tokens = 70, .validate_steps = true},
        way.plans_in_flight);
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_OK(run.results[i]) << i;
      EXPECT_TRUE(SameHypotheses(*run.results[i], alone[i])) << i;
    }
    EXPECT_GT(run.stats.num_preemptions, 0);
    EXPECT_GT(run.stats.num_cached_tokens, 0);
    EXPECT_EQ(run.stats.num_swapped_pages_in > 0, way.num_host_slots > 0);
  }
}

// Samples are drawn as they would be without drafts.
TEST_P(FamilyReferencesTest, DraftsChangeNoResult) {
  const auto roomy = LoadWithPages(GetParam(), 16, 500);
  std::vector<Request> requests =
      MixedRequests(GetParam(), roomy->description());
  const FamilyRun plain = RunFamily(*roomy, requests, {});
  for (size_t i = 0; i < requests.size(); ++i) {
    GenerationParams& params = requests[i].params;
    if (!CanSpeculate(params)) continue;
    params.speculate = {.method = i % 2 == 0 ? SpeculationMethod::kNgram
                                             : SpeculationMethod::kSuffix,
                        .num_tokens = 1 + static_cast<int>(i % 5),
                        .mode = SpeculationMode::kCoupled};
  }
  const auto model = LoadWithPages(GetParam(), 3, 90, /*num_host_slots=*/200);
  const FamilyRun run = RunFamily(
      *model, requests, {.max_step_tokens = 70, .validate_steps = true}, 2);
  int64_t num_drafted = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_OK(plain.results[i]) << i;
    ASSERT_OK(run.results[i]) << i;
    EXPECT_TRUE(SameHypotheses(*run.results[i], *plain.results[i])) << i;
    num_drafted += run.results[i]->usage.num_drafted_tokens;
  }
  EXPECT_GT(num_drafted, 0);
  EXPECT_GT(run.stats.num_preemptions, 0);
}

}  // namespace
}  // namespace espalier
