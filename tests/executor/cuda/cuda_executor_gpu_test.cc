// The executor on the device under a scheduler: the same results as on the
// host, whatever shares the steps, one plan or two in flight, from graphs or
// not; and those of the reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/few_cases.h"
#include "tests/reference_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

// Numbers of plans in flight: engines begin and end with one, and run with two.
std::vector<int> InFlight() {
  return Cases(std::vector<int>{1, 2}, std::vector<int>{2});
}

TEST_F(CudaExecutorTest, RequestsAloneGetWhatTheHostGives) {
  const OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  // If few, a sample and six beams.
  for (const int seed :
       Cases(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
             std::vector<int>{1, 3})) {
    const std::vector<Request> requests = AnyRequests(1, seed);
    const Answers expected = OnHost(requests);
    for (const int num_in_flight : InFlight()) {
      ExpectSame(
          expected,
          Drive(*device.steps, requests, {.num_in_flight = num_in_flight}),
          Concat(num_in_flight, " in flight").c_str());
    }
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST_F(CudaExecutorTest, MixturesGetWhatTheHostGives) {
  const std::vector<Request> requests = AnyRequests(Cases(100, 6), 20240607);
  const Answers expected = OnHost(requests);
  for (const int page_size :
       Cases(std::vector<int>{16, 1, 32}, std::vector<int>{16, 1})) {
    CudaTransformerOptions options = Float32();
    options.page_size = page_size;
    const OnDevice device = Load(options);
    ASSERT_NE(device.steps, nullptr);
    for (const int num_in_flight : InFlight()) {
      ExpectSame(
          expected,
          Drive(*device.steps, requests, {.num_in_flight = num_in_flight}),
          Concat("page size ", page_size, ", ", num_in_flight, " in flight")
              .c_str());
      PrintFigures(*device.steps);
    }
  }
}

TEST_F(CudaExecutorTest, EveryStrategyGetsWhatTheHostGives) {
  std::vector<Request> requests =
      RequestsOfAllStrategies(Cases(48, 4), 20261120);
  for (Request& request : AnyRequests(Cases(24, 2), 3)) {
    requests.push_back(std::move(request));
  }
  const Answers expected = OnHost(requests);
  const OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  for (const int num_in_flight : InFlight()) {
    ExpectSame(expected,
               Drive(*device.steps, requests, {.num_in_flight = num_in_flight}),
               "all strategies");
    PrintFigures(*device.steps);
  }
}

// Few tokens a step divide prompts into chunks that share steps with beams; few
// pages let requests wait for one another, so that pages change hands.
TEST_F(CudaExecutorTest, ChunksAndScarcePagesGiveWhatTheHostGives) {
  const std::vector<Request> requests = AnyRequests(Cases(60, 4), 99);
  const Answers expected = OnHost(requests);
  CudaTransformerOptions options = Float32();
  options.page_size = 3;
  options.kv_cache_bytes = 6 << 20;
  const OnDevice device = Load(options);
  ASSERT_NE(device.steps, nullptr);
  for (const int num_in_flight : InFlight()) {
    DriveOptions drive = {.num_in_flight = num_in_flight};
    drive.scheduler.max_step_tokens = 23;
    ExpectSame(expected, Drive(*device.steps, requests, drive),
               "chunks, few pages");
    PrintFigures(*device.steps);
  }
}

TEST_F(CudaExecutorTest, CancellingAtAnyMomentLeavesTheOthersAlone) {
  const int num_requests = Cases(40, 6);
  const std::vector<Request> requests = AnyRequests(num_requests, 7);
  const Answers expected = OnHost(requests);
  const OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  DriveOptions options = {.num_in_flight = 2};
  options.before_plan = [&](Scheduler& scheduler, int num_plans) {
    if (num_plans % 3 != 1) return;
    scheduler.Cancel(RequestId{num_plans * 7 % num_requests},
                     absl::CancelledError("by the test"));
  };
  const Answers actual = Drive(*device.steps, requests, options);
  Comparison comparison;
  int num_cancelled = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!actual[i].ok()) {
      EXPECT_THAT(actual[i],
                  StatusIs(absl::StatusCode::kCancelled, "by the test"));
      ++num_cancelled;
      continue;
    }
    comparison.Add(expected[i]->hypotheses, actual[i]->hypotheses,
                   Concat("request ", i));
  }
  comparison.Print("not cancelled");
  EXPECT_GT(num_cancelled, Cases(3, 0));
  EXPECT_GT(comparison.num_hypotheses, num_requests / 2);
}

// Nine to sixteen beams are padded to 16 rows, their candidates to 32, and they
// are selected for alike.
TEST_F(CudaExecutorTest, RequestsOfLikeWidthsShareGraphs) {
  const OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  for (int num_beams = 9; num_beams <= 16; num_beams += Cases(1, 7)) {
    Request request{{5, 6, 7}, {}};
    request.params.num_beams = num_beams;
    request.params.max_new_tokens = Cases(6, 3);
    ASSERT_OK(ValidateRequest(device.steps->description(), &request));
    const Answers answers =
        Drive(*device.steps, {request}, {.num_in_flight = 2});
    ASSERT_OK(answers[0].status());
  }
  const CudaExecutorFigures figures = device.steps->figures();
  EXPECT_GT(figures.num_graph_launches, figures.num_graphs);
  // With and without parts of attention to merge.
  EXPECT_LE(figures.num_graphs, 2);
}

TEST_F(CudaExecutorTest, WideBeamsGetWhatTheHostGives) {
  std::mt19937 random(3);
  std::vector<Request> requests = {AnyRequest(random), AnyRequest(random)};
  const int num_beams = Cases(200, 33);
  requests[0].params.num_beams = num_beams;
  requests[0].params.num_return_sequences = num_beams;
  requests[0].params.max_new_tokens = Cases(9, 2);
  requests[1].params.num_beams = Cases(33, 4);
  requests[1].params.num_return_sequences = Cases(33, 4);
  requests[1].params.max_new_tokens = Cases(20, 3);
  const OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  ExpectSame(OnHost(requests),
             Drive(*device.steps, requests, {.num_in_flight = 2}), "wide");
  PrintFigures(*device.steps);
}

// Returns a plan that feeds one token and selects `num_slots` beams.
StepPlan PlanOfOneToken(int num_slots) {
  StepPlan plan;
  plan.rows.push_back({.num_tokens = 1, .num_logits = 1});
  plan.tokens = {5};
  plan.num_logits = 1;
  plan.page_indptr = {0, 1};
  plan.page_indices = {PageId{0}};
  PlanSelection& selection = plan.selections.emplace_back();
  selection.num_rows = 1;
  selection.choice = BeamSelection{.num_candidates = 2 * num_slots};
  selection.num_slots = num_slots;
  selection.cum_log_probs = {0};
  selection.slots = {0};
  return plan;
}

TEST_F(CudaExecutorTest, WhatARequestExceedsIsRefusedWhenItIsSubmitted) {
  CudaTransformerOptions options = Float32();
  options.max_logits = 16;
  const OnDevice device = Load(options);
  ASSERT_NE(device.steps, nullptr);
  const ModelDescription& model = device.steps->description();
  EXPECT_EQ(model.limits.max_beams, 16);
  EXPECT_EQ(model.limits.max_step_tokens, options.max_tokens);
  Request request{{5, 6, 7}, {}};
  request.params.num_beams = 17;
  EXPECT_THAT(ValidateRequest(model, &request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "num_beams must be at most 16 (max_beams, what a step "
                       "has room for), got 17"));
  request.params.num_beams = 16;
  request.params.eos_token_id.emplace();
  for (int id = 0; id < 64; ++id) request.params.eos_token_id->push_back(id);
  EXPECT_THAT(ValidateRequest(model, &request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "eos_token_id must have at most 63 ids (what a step has "
                       "room for), got 64"));
}

// At every limit at once: as many beams, EOS ids and edits as one may have.
TEST_F(CudaExecutorTest, WhatARequestMayAskForRuns) {
  CudaTransformerOptions options = Float32();
  options.max_logits = 16;
  const OnDevice device = Load(options);
  ASSERT_NE(device.steps, nullptr);
  Request request{{5, 6, 7}, {}};
  request.params.num_beams = 16;
  request.params.num_return_sequences = 16;
  request.params.max_new_tokens = Cases(9, 3);
  request.params.min_new_tokens = Cases(4, 2);
  request.params.repetition_penalty = 1.2;
  request.params.eos_token_id.emplace();
  for (int id = 0; id < 63; ++id) request.params.eos_token_id->push_back(id);
  for (int id = 63; id < Cases(5000, 700); ++id) {
    request.params.suppress_tokens.push_back(id);
  }
  ASSERT_OK(ValidateRequest(device.steps->description(), &request));
  ExpectSame(OnHost({request}),
             Drive(*device.steps, {request}, {.num_in_flight = 2}),
             "at the limits");
}

// The scheduler may feed 256 tokens in a step, but only 24 rows can select; the
// first six requests have 25 beams.
TEST_F(CudaExecutorTest, RequestsWaitWhereTheirBeamsDoNotFitTogether) {
  CudaTransformerOptions options = Float32();
  options.max_logits = 24;
  const OnDevice device = Load(options);
  ASSERT_NE(device.steps, nullptr);
  const std::vector<Request> requests = AnyRequests(Cases(40, 6), 5);
  const Answers expected = OnHost(requests);
  for (const int num_in_flight : InFlight()) {
    ExpectSame(expected,
               Drive(*device.steps, requests, {.num_in_flight = num_in_flight}),
               "few rows");
  }
}

TEST_F(CudaExecutorTest, APlanThatIsTooLargeFailsAlone) {
  CudaTransformerOptions options = Float32();
  options.max_logits = 16;
  const OnDevice device = Load(options);
  ASSERT_NE(device.steps, nullptr);
  EXPECT_THAT(RunPlan(*device.steps, PlanOfOneToken(33)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("33")));
  ASSERT_OK_AND_ASSIGN(const StepResult result,
                       RunPlan(*device.steps, PlanOfOneToken(2)));
  ASSERT_EQ(result.selections.size(), 1u);
  EXPECT_EQ(result.selections[0].candidates.size(), 4u);
}

TEST_F(CudaExecutorTest, AttentionHasRoomForEveryStep) {
  CudaTransformerOptions options = Float32();
  options.max_attention_items = options.max_tokens;
  auto model =
      CudaTransformer::Load(SourcePath("models/en-fr"), options, *device_);
  ASSERT_OK(model.status());
  EXPECT_THAT(CudaExecutor::Create(*std::move(model)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "max_attention_items must be at least 1536 (tokens and "
                       "rows of a step), got 1024"));
}

TEST_F(CudaExecutorTest, WhatItCannotRunIsNamedAndTheNextPlanRuns) {
  const OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  StepPlan plan = PlanOfOneToken(2);
  plan.rows[0].num_tokens = 2;
  plan.rows[0].num_logits = 2;
  plan.tokens = {5, 6};
  plan.num_logits = 2;
  plan.selections.Edit(0).num_rows = 2;
  plan.selections.Edit(0).cum_log_probs = {0, 0};
  plan.selections.Edit(0).slots = {0, 1};
  EXPECT_THAT(RunPlan(*device.steps, plan),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("row 0 of logits")));
  ASSERT_OK_AND_ASSIGN(const StepResult result,
                       RunPlan(*device.steps, PlanOfOneToken(2)));
  ASSERT_EQ(result.selections.size(), 1u);
  EXPECT_EQ(result.selections[0].candidates.size(), 4u);
}

TEST_F(CudaExecutorTest, RowsThatChooseByThemselvesAreNotContinued) {
  const OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  StepPlan plan;
  plan.continuations.push_back({.request = RequestId{7},
                                .tail_pages = {PageId{0}},
                                .kind = SelectionKind::kRows,
                                .num_candidates = 2});
  EXPECT_THAT(RunPlan(*device.steps, plan),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("cannot be continued")));
}

TEST_F(CudaExecutorTest, AGroupThatIsNotThereGetsNoCandidates) {
  const OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  StepPlan plan;
  GroupContinuation& continuation = plan.continuations.emplace_back();
  continuation.request = RequestId{77};
  continuation.tail_pages = {PageId{0}};
  continuation.num_candidates = 2;
  ASSERT_OK_AND_ASSIGN(const StepResult result, RunPlan(*device.steps, plan));
  ASSERT_EQ(result.selections.size(), 1u);
  EXPECT_EQ(result.selections[0].request, RequestId{77});
  EXPECT_TRUE(result.selections[0].candidates.empty());
}

class CudaExecutorDTypeTest : public CudaExecutorTest,
                              public ::testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(SixteenBits, CudaExecutorDTypeTest,
                         ::testing::Values(DType::kBFloat16, DType::kFloat16));

TEST_P(CudaExecutorDTypeTest, SixteenBitModelsAnswerEverything) {
  CudaTransformerOptions options = Float32();
  options.dtype = GetParam();
  const OnDevice device = Load(options);
  ASSERT_NE(device.steps, nullptr);
  for (const absl::StatusOr<Result>& answer :
       Drive(*device.steps, AnyRequests(Cases(60, 2), 11),
             {.num_in_flight = 2})) {
    ASSERT_OK(answer.status());
    EXPECT_FALSE(answer->hypotheses.empty());
  }
  PrintFigures(*device.steps);
}

// The lines of tests/data/beam_search.jsonl.
struct Reference {
  std::vector<Request> requests;
  std::vector<std::vector<Hypothesis>> hypotheses;
};

Reference ReadReference(const ModelDescription& model) {
  Reference reference;
  for (const json::value& line : ReferenceCases()) {
    Request request = ReferenceRequest(line);
    EXPECT_OK(ValidateRequest(model, &request));
    reference.requests.push_back(std::move(request));
    std::vector<Hypothesis>& hypotheses = reference.hypotheses.emplace_back();
    for (const json::value& hypothesis : line.at("hypotheses").as_array()) {
      Hypothesis& h = hypotheses.emplace_back();
      h.tokens = HypothesisTokens(hypothesis);
      const json::value& score = hypothesis.at("score");
      h.score = score.is_null() ? std::nanf("") : score.to_number<float>();
    }
  }
  return reference;
}

TEST_F(CudaExecutorTest, EveryHypothesisIsTheReferences) {
  const Reference reference = ReadReference(host_->description());
  for (const int num_in_flight : InFlight()) {
    const OnDevice device = Load(Float32());
    ASSERT_NE(device.steps, nullptr);
    const Answers answers = Drive(*device.steps, reference.requests,
                                  {.num_in_flight = num_in_flight});
    Comparison comparison;
    for (size_t i = 0; i < answers.size(); ++i) {
      ASSERT_OK(answers[i].status());
      comparison.Add(reference.hypotheses[i], answers[i]->hypotheses,
                     Concat("line ", i));
    }
    comparison.Print(
        Concat("reference, ", num_in_flight, " in flight").c_str());
    PrintFigures(*device.steps);
    EXPECT_LE(comparison.num_swapped, 2);
  }
}

}  // namespace
}  // namespace espalier::testing
