// The executor on the device under a scheduler: the same results as on the
// host, whatever shares the steps, one plan or two in flight, from graphs or
// not; and those of the reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <fstream>
#include <functional>
#include <future>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu_count.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "batcher/scheduler.h"
#include "exec_request/model_executor.h"
#include "exec_request/request_json.h"
#include "model/cuda_executor.h"
#include "model/llama_model.h"
#include "tests/few_cases.h"
#include "tests/reference_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::ReferenceCases;
using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-4;  // relative, on scores

std::string SourcePath(const std::string& path) {
  return std::string(ESPALIER_SOURCE_DIR) + "/" + path;
}

using Answers = std::vector<absl::StatusOr<Result>>;

struct DriveOptions {
  int num_in_flight = 1;
  SchedulerOptions scheduler = {
      .max_running = 64, .max_step_tokens = 256, .validate_steps = true};
  // Called before the n-th plan; may submit and cancel.
  std::function<void(Scheduler&, int)> before_plan = [](Scheduler&, int) {};
};

// Runs all requests under one scheduler, as an engine does.
Answers Drive(StepExecutor& steps, const std::vector<Request>& requests,
              const DriveOptions& options) {
  Answers answers(requests.size(), absl::UnknownError("not answered"));
  Scheduler scheduler(steps.description(), options.scheduler);
  for (size_t i = 0; i < requests.size(); ++i) {
    scheduler.Submit(RequestId{static_cast<int64_t>(i)}, requests[i],
                     [&answers, i](absl::StatusOr<Result> result) {
                       answers[i] = std::move(result);
                     });
  }
  std::deque<std::future<absl::StatusOr<StepResult>>> in_flight;
  for (int num_plans = 0;;) {
    while (static_cast<int>(in_flight.size()) < options.num_in_flight) {
      options.before_plan(scheduler, num_plans);
      StepPlan plan = scheduler.Plan();
      if (plan.empty() && plan.finished.empty() && plan.ended.empty()) break;
      ++num_plans;
      const auto done =
          std::make_shared<std::promise<absl::StatusOr<StepResult>>>();
      in_flight.push_back(done->get_future());
      steps.Execute(std::move(plan), [done](absl::StatusOr<StepResult> result) {
        done->set_value(std::move(result));
      });
    }
    if (in_flight.empty()) break;
    scheduler.Advance(in_flight.front().get());
    in_flight.pop_front();
  }
  EXPECT_EQ(scheduler.pool().num_held(), 0);
  return answers;
}

bool Close(double a, double b) {
  return std::abs(a - b) <= kTolerance * std::max(std::abs(a), std::abs(b));
}

// How often the tokens at a rank differ while the scores agree: of that rank,
// and of the hypothesis with these tokens where the other side has it too.
struct Comparison {
  int num_hypotheses = 0;
  int num_swapped = 0;
  int num_different = 0;

  void Add(const std::vector<Hypothesis>& expected,
           const std::vector<Hypothesis>& actual, const std::string& what) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    for (size_t rank = 0; rank < expected.size(); ++rank) {
      ++num_hypotheses;
      const bool close = std::isnan(expected[rank].score) ||
                         Close(expected[rank].score, actual[rank].score);
      if (!close) ++num_different;
      EXPECT_TRUE(close) << what << ", rank " << rank << ": score "
                         << actual[rank].score << ", expected "
                         << expected[rank].score;
      num_swapped += expected[rank].tokens != actual[rank].tokens;
    }
  }
  void Print(const char* name) const {
    std::printf(
        "%s: %d hypotheses, %d in another order within the tolerance, "
        "%d different\n",
        name, num_hypotheses, num_swapped, num_different);
  }
};

class CudaExecutorTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto device = CudaDevice::Open(0);
    ASSERT_OK(device.status());
    device_ = new CudaDevice(*device);
    pool_ = new ThreadPool(Cases(NumUsableCpus(), 1));
    auto host = LlamaModel::Load(SourcePath("models/en-fr"), {}, pool_);
    ASSERT_OK(host.status());
    host_ = host->release();
  }

  // A model on the device with its executor.
  struct OnDevice {
    std::unique_ptr<CudaLlama> model;
    std::unique_ptr<CudaExecutor> steps;
  };
  static CudaLlamaOptions Float32() {
    CudaLlamaOptions options;
    options.dtype = DType::kFloat32;
    options.max_tokens = 1024;
    options.max_logits = 512;
    options.kv_cache_bytes = 256 << 20;
    return options;
  }
  static OnDevice Load(const CudaLlamaOptions& options) {
    OnDevice on_device;
    auto model = CudaLlama::Load(SourcePath("models/en-fr"), options, *device_);
    EXPECT_OK(model.status());
    if (!model.ok()) return on_device;
    on_device.model = *std::move(model);
    auto steps = CudaExecutor::Create(on_device.model.get(), options, *device_);
    EXPECT_OK(steps.status());
    if (steps.ok()) on_device.steps = *std::move(steps);
    return on_device;
  }

  static Answers OnHost(const std::vector<Request>& requests) {
    ModelExecutor steps(host_, pool_);
    return Drive(steps, requests, {});
  }

  // Of any width, with and without score processors.
  static Request AnyRequest(std::mt19937& random) {
    const auto below = [&](int limit) {
      return static_cast<int>(random() % limit);
    };
    const ModelDescription& model = host_->description();
    Request request;
    const int num_tokens = 1 + below(below(4) == 0 ? 90 : 24);
    for (int i = 0; i < num_tokens; ++i) {
      request.prompt_tokens.push_back(3 + below(model.vocab_size - 3));
    }
    GenerationParams& params = request.params;
    params.num_beams = 1 + below(below(5) == 0 ? 20 : 6);
    params.num_return_sequences = 1 + below(params.num_beams);
    params.max_new_tokens = 1 + below(Cases(30, 5));
    params.early_stopping = static_cast<EarlyStopping>(below(3));
    params.length_penalty = below(4) - 1;
    switch (below(8)) {
      case 0:
        params.repetition_penalty = 1.3;
        break;
      case 1:
        params.no_repeat_ngram_size = 2;
        break;
      case 2:
        params.suppress_tokens = {5, 300, 262};
        break;
      case 3:
        params.min_new_tokens = std::min<int64_t>(9, *params.max_new_tokens);
        break;
      default:
        break;
    }
    const absl::Status valid = ValidateRequest(model, &request);
    EXPECT_OK(valid);
    return request;
  }
  static std::vector<Request> AnyRequests(int count, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<Request> requests;
    for (int i = 0; i < count; ++i) requests.push_back(AnyRequest(random));
    return requests;
  }

  static void ExpectSame(const Answers& expected, const Answers& actual,
                         const char* name) {
    Comparison comparison;
    for (size_t i = 0; i < expected.size(); ++i) {
      const std::string what = Concat("request ", i);
      ASSERT_OK(expected[i].status()) << what;
      ASSERT_OK(actual[i].status()) << what;
      comparison.Add(expected[i]->hypotheses, actual[i]->hypotheses, what);
    }
    comparison.Print(name);
    EXPECT_LE(comparison.num_swapped, comparison.num_hypotheses / 100);
  }

  static void PrintFigures(const CudaExecutor& steps) {
    const CudaExecutorFigures figures = steps.figures();
    std::printf(
        "%ld steps, %ld from %d graphs, %ld deltas, busy %.3f ms a step, "
        "%ld gaps, median %.1f us, mean %.1f us\n",
        figures.num_steps, figures.num_graph_launches, figures.num_graphs,
        figures.num_deltas,
        absl::ToDoubleMilliseconds(figures.busy) / figures.num_steps,
        figures.num_gaps, absl::ToDoubleMicroseconds(figures.median_gap),
        absl::ToDoubleMicroseconds(figures.idle) /
            std::max<int64_t>(figures.num_gaps, 1));
  }

  static CudaDevice* device_;
  static ThreadPool* pool_;
  static LlamaModel* host_;
};
CudaDevice* CudaExecutorTest::device_ = nullptr;
ThreadPool* CudaExecutorTest::pool_ = nullptr;
LlamaModel* CudaExecutorTest::host_ = nullptr;

TEST_F(CudaExecutorTest, RequestsAloneGetWhatTheHostGives) {
  const OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  for (int i = 0; i < Cases(12, 3); ++i) {
    const std::vector<Request> requests = AnyRequests(1, i);
    const Answers expected = OnHost(requests);
    ExpectSame(expected, Drive(*device.steps, requests, {}), "one in flight");
    ExpectSame(expected, Drive(*device.steps, requests, {.num_in_flight = 2}),
               "two in flight");
    if (HasFailure()) FAIL() << "seed " << i;
  }
}

TEST_F(CudaExecutorTest, MixturesGetWhatTheHostGives) {
  const std::vector<Request> requests = AnyRequests(Cases(100, 12), 20240607);
  const Answers expected = OnHost(requests);
  for (const int page_size :
       Cases(std::vector<int>{16, 1, 32}, std::vector<int>{16, 1})) {
    CudaLlamaOptions options = Float32();
    options.page_size = page_size;
    const OnDevice device = Load(options);
    ASSERT_NE(device.steps, nullptr);
    for (const int num_in_flight : {1, 2}) {
      ExpectSame(
          expected,
          Drive(*device.steps, requests, {.num_in_flight = num_in_flight}),
          Concat("page size ", page_size, ", ", num_in_flight, " in flight")
              .c_str());
      PrintFigures(*device.steps);
    }
  }
}

// Few tokens a step divide prompts into chunks that share steps with beams; few
// pages let requests wait for one another, so that pages change hands.
TEST_F(CudaExecutorTest, ChunksAndScarcePagesGiveWhatTheHostGives) {
  const std::vector<Request> requests = AnyRequests(Cases(60, 10), 99);
  const Answers expected = OnHost(requests);
  CudaLlamaOptions options = Float32();
  options.page_size = 3;
  options.kv_cache_bytes = 6 << 20;
  const OnDevice device = Load(options);
  ASSERT_NE(device.steps, nullptr);
  for (const int num_in_flight : {1, 2}) {
    DriveOptions drive = {.num_in_flight = num_in_flight};
    drive.scheduler.max_step_tokens = 23;
    ExpectSame(expected, Drive(*device.steps, requests, drive),
               "chunks, few pages");
    PrintFigures(*device.steps);
  }
}

TEST_F(CudaExecutorTest, CancellingAtAnyMomentLeavesTheOthersAlone) {
  const int num_requests = Cases(40, 16);
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

TEST_F(CudaExecutorTest, WideBeamsGetWhatTheHostGives) {
  std::mt19937 random(3);
  std::vector<Request> requests = {AnyRequest(random), AnyRequest(random)};
  requests[0].params.num_beams = 200;
  requests[0].params.num_return_sequences = 200;
  requests[0].params.max_new_tokens = Cases(9, 3);
  requests[1].params.num_beams = 33;
  requests[1].params.num_return_sequences = 33;
  requests[1].params.max_new_tokens = Cases(20, 5);
  const OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  ExpectSame(OnHost(requests),
             Drive(*device.steps, requests, {.num_in_flight = 2}), "wide");
  PrintFigures(*device.steps);
}

absl::StatusOr<StepResult> RunPlan(StepExecutor& steps, StepPlan plan) {
  std::promise<absl::StatusOr<StepResult>> done;
  steps.Execute(std::move(plan), [&](absl::StatusOr<StepResult> result) {
    done.set_value(std::move(result));
  });
  return done.get_future().get();
}

// A plan that feeds one token and asks for `num_slots` beams.
StepPlan PlanOfOneToken(int num_slots) {
  StepPlan plan;
  plan.rows.push_back({.num_tokens = 1, .num_logits = 1});
  plan.tokens = {5};
  plan.num_logits = 1;
  plan.page_indptr = {0, 1};
  plan.page_indices = {PageId{0}};
  PlanSelection& selection = plan.selections.emplace_back();
  selection.num_rows = 1;
  selection.num_candidates = 2 * num_slots;
  selection.num_slots = num_slots;
  selection.cum_log_probs = {0};
  selection.slots = {0};
  return plan;
}

TEST_F(CudaExecutorTest, WhatARequestExceedsIsRefusedWhenItIsSubmitted) {
  CudaLlamaOptions options = Float32();
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
                       "num_beams must be at most 16 (what a step has room "
                       "for), got 17"));
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
  CudaLlamaOptions options = Float32();
  options.max_logits = 16;
  const OnDevice device = Load(options);
  ASSERT_NE(device.steps, nullptr);
  Request request{{5, 6, 7}, {}};
  request.params.num_beams = 16;
  request.params.num_return_sequences = 16;
  request.params.max_new_tokens = 9;
  request.params.min_new_tokens = 4;
  request.params.repetition_penalty = 1.2;
  request.params.eos_token_id.emplace();
  for (int id = 0; id < 63; ++id) request.params.eos_token_id->push_back(id);
  for (int id = 63; id < 5000; ++id) {
    request.params.suppress_tokens.push_back(id);
  }
  ASSERT_OK(ValidateRequest(device.steps->description(), &request));
  ExpectSame(OnHost({request}),
             Drive(*device.steps, {request}, {.num_in_flight = 2}),
             "at the limits");
}

// The scheduler may feed 256 tokens in a step, but only 24 rows can select.
TEST_F(CudaExecutorTest, RequestsWaitWhereTheirBeamsDoNotFitTogether) {
  CudaLlamaOptions options = Float32();
  options.max_logits = 24;
  const OnDevice device = Load(options);
  ASSERT_NE(device.steps, nullptr);
  const std::vector<Request> requests = AnyRequests(40, 5);
  const Answers expected = OnHost(requests);
  for (const int num_in_flight : {1, 2}) {
    ExpectSame(expected,
               Drive(*device.steps, requests, {.num_in_flight = num_in_flight}),
               "few rows");
  }
}

TEST_F(CudaExecutorTest, APlanThatIsTooLargeFailsAlone) {
  CudaLlamaOptions options = Float32();
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
  CudaLlamaOptions options = Float32();
  options.max_attention_items = options.max_tokens;
  auto model = CudaLlama::Load(SourcePath("models/en-fr"), options, *device_);
  ASSERT_OK(model.status());
  EXPECT_THAT(CudaExecutor::Create(model->get(), options, *device_).status(),
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
  plan.selections[0].num_rows = 2;
  plan.selections[0].cum_log_probs = {0, 0};
  plan.selections[0].slots = {0, 1};
  EXPECT_THAT(RunPlan(*device.steps, plan),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("2 lines of logits")));
  ASSERT_OK_AND_ASSIGN(const StepResult result,
                       RunPlan(*device.steps, PlanOfOneToken(2)));
  ASSERT_EQ(result.selections.size(), 1u);
  EXPECT_EQ(result.selections[0].candidates.size(), 4u);
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

TEST_F(CudaExecutorTest, SixteenBitModelsAnswerEverything) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    CudaLlamaOptions options = Float32();
    options.dtype = dtype;
    const OnDevice device = Load(options);
    ASSERT_NE(device.steps, nullptr);
    for (const absl::StatusOr<Result>& answer :
         Drive(*device.steps, AnyRequests(Cases(60, 10), 11),
               {.num_in_flight = 2})) {
      ASSERT_OK(answer.status());
      EXPECT_FALSE(answer->hypotheses.empty());
    }
    PrintFigures(*device.steps);
  }
}

// The lines of tests/data/beam_search.jsonl.
struct Reference {
  std::vector<Request> requests;
  std::vector<std::vector<Hypothesis>> hypotheses;
};

Reference ReadReference(const ModelDescription& model) {
  Reference reference;
  std::ifstream file(SourcePath("tests/data/beam_search.jsonl"));
  std::vector<json::value> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(*ParseJson(line));
  }
  EXPECT_EQ(lines.size(), 300u);
  for (const json::value& value : ReferenceCases(std::move(lines))) {
    json::object params = value.at("params").as_object();
    const json::array& expected = value.at("hypotheses").as_array();
    params["num_return_sequences"] = expected.size();
    const RequestLine parsed = ParseRequestLine(WriteJson(
        {{"prompt_tokens", value.at("prompt_tokens")}, {"params", params}}));
    EXPECT_OK(parsed.body.status());
    Request request = {parsed.body->prompt_tokens, parsed.body->params};
    EXPECT_OK(ValidateRequest(model, &request));
    reference.requests.push_back(std::move(request));
    std::vector<Hypothesis>& hypotheses = reference.hypotheses.emplace_back();
    for (const json::value& hypothesis : expected) {
      Hypothesis& h = hypotheses.emplace_back();
      for (const json::value& token : hypothesis.at("tokens").as_array()) {
        h.tokens.push_back(token.to_number<int>());
      }
      const json::value& score = hypothesis.at("score");
      h.score = score.is_null() ? std::nanf("") : score.to_number<float>();
    }
  }
  return reference;
}

TEST_F(CudaExecutorTest, EveryHypothesisIsTheReferences) {
  const Reference reference = ReadReference(host_->description());
  for (const int num_in_flight : {1, 2}) {
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
}  // namespace espalier
