#include "tests/executor/cuda/cuda_executor_fixture.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/cpu_count.h"
#include "base/status.h"
#include "executor/host/model_executor.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier::testing {
namespace {

constexpr double kTolerance = 1e-4;  // relative, on scores
// A stochastic beam's score is a sum and noise that may cancel.
constexpr double kLeastScore = 0.5;

// Turns a beam search into sampling, with any filters.
void MakeSamples(std::mt19937& random, GenerationParams* params) {
  params->do_sample = true;
  params->best_of = params->num_beams;
  params->num_beams = 1;
  params->num_return_sequences = 1;
  params->length_penalty = 1.0;
  params->early_stopping = EarlyStopping::kFalse;
  params->seed = random();
  if (random() % 2 == 0) params->temperature = 0.7;
  if (random() % 2 == 0) params->top_k = 1 + random() % 50;
  if (random() % 2 == 0) params->top_p = 0.9;
  if (random() % 4 == 0) params->min_p = 0.05;
  if (random() % 4 == 0) params->typical_p = 0.8;
  if (random() % 4 == 0) params->logit_bias = {{17, 4.5}, {300, -2.0}};
}

}  // namespace

bool Close(double a, double b) {
  return std::abs(a - b) <=
         kTolerance * std::max({std::abs(a), std::abs(b), kLeastScore});
}

void Comparison::Add(const std::vector<Hypothesis>& expected,
                     const std::vector<Hypothesis>& actual,
                     const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  const int num_swapped_before = num_swapped;
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
  num_with_swaps += num_swapped > num_swapped_before;
}

void Comparison::Print(const char* name) const {
  std::printf(
      "%s: %d hypotheses, %d in another order within the tolerance, "
      "%d different\n",
      name, num_hypotheses, num_swapped, num_different);
}

namespace {

int OrdinalFromEnvironment() {
  const char* const value = std::getenv("ESPALIER_TEST_DEVICE");
  int ordinal = 0;
  EXPECT_TRUE(value == nullptr || absl::SimpleAtoi(value, &ordinal)) << value;
  return ordinal;
}

}  // namespace

CudaDevice* CudaExecutorTest::device_ = nullptr;
std::shared_ptr<ThreadPool>* CudaExecutorTest::pool_ = nullptr;
TransformerModel* CudaExecutorTest::host_ = nullptr;

void CudaExecutorTest::SetUpTestSuite() {
  auto device = CudaDevice::Open(OrdinalFromEnvironment());
  ASSERT_OK(device.status());
  device_ = new CudaDevice(*device);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  pool_ = new std::shared_ptr<ThreadPool>(MakePool(Cases(NumUsableCpus(), 1)));
  auto host = TransformerModel::Load(SourcePath("models/en-fr"), {}, *pool_);
  ASSERT_OK(host.status());
  host_ = host->release();
}

void CudaExecutorTest::TearDownTestSuite() {
  delete std::exchange(host_, nullptr);
  delete std::exchange(pool_, nullptr);
  delete std::exchange(device_, nullptr);
}

CudaTransformerOptions CudaExecutorTest::Float32() {
  CudaTransformerOptions options;
  options.dtype = DType::kFloat32;
  options.max_tokens = 1024;
  options.max_logits = 512;
  options.kv_cache_bytes = 256 << 20;
  return options;
}

CudaExecutorTest::OnDevice CudaExecutorTest::Load(
    const CudaTransformerOptions& options, const CudaDevice& device,
    CudaExecutorOptions executor) {
  OnDevice on_device;
  auto model =
      CudaTransformer::Load(SourcePath("models/en-fr"), options, device);
  EXPECT_OK(model.status());
  if (!model.ok()) return on_device;
  on_device.model = *std::move(model);
  auto steps = CudaExecutor::Create(on_device.model, std::move(executor));
  EXPECT_OK(steps.status());
  if (steps.ok()) on_device.steps = *std::move(steps);
  return on_device;
}

Answers CudaExecutorTest::OnHost(const std::vector<Request>& requests) {
  return Drive(*MakeExecutor(host_, *pool_), requests, {});
}

namespace {

// One of the strategies that choose among rows, or where rows may go.
void MakeStrategy(std::mt19937& random, int which, GenerationParams* params) {
  params->num_beams = 2 * (1 + random() % 3);
  switch (which) {
    case 0:
      params->num_beam_groups = 2;
      params->diversity_penalty = 0.7;
      break;
    case 1:
      params->do_sample = true;
      params->temperature = 1.2;
      params->top_k = 40;
      params->seed = random();
      break;
    case 2:
      params->stochastic = true;
      params->top_p = 0.95;
      params->seed = random();
      break;
    default:
      params->allowed_sequences.emplace();
      for (int i = 0; i < 50; ++i) {
        params->allowed_sequences->push_back(
            {static_cast<int64_t>(3 + random() % 5),
             static_cast<int64_t>(3 + random() % 300),
             static_cast<int64_t>(3 + random() % 300)});
      }
  }
}

}  // namespace

std::vector<Request> CudaExecutorTest::RequestsOfAllStrategies(int count,
                                                               uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request& request = requests.emplace_back();
    const int num_tokens = 1 + random() % 40;
    for (int t = 0; t < num_tokens; ++t) {
      request.prompt_tokens.push_back(
          3 + random() % (host_->description().vocab_size - 3));
    }
    MakeStrategy(random, i % 4, &request.params);
    request.params.num_return_sequences = request.params.num_beams;
    request.params.max_new_tokens = 3 + random() % Cases(20, 3);
    if (random() % 2 == 0) request.params.logprobs = random() % 5;
    if (random() % 3 == 0) request.params.prompt_logprobs = random() % 3;
    EXPECT_OK(ValidateRequest(host_->description(), &request));
  }
  return requests;
}

Request CudaExecutorTest::AnyRequest(std::mt19937& random) {
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
  if (below(3) == 0) MakeSamples(random, &params);
  const absl::Status valid = ValidateRequest(model, &request);
  EXPECT_OK(valid);
  return request;
}

std::vector<Request> CudaExecutorTest::AnyRequests(int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) requests.push_back(AnyRequest(random));
  return requests;
}

void CudaExecutorTest::ExpectSame(const Answers& expected,
                                  const Answers& actual, const char* name) {
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

void CudaExecutorTest::ExpectEqual(const Answers& expected,
                                   const Answers& actual) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(Concat("request ", i));
    ASSERT_OK(expected[i].status());
    ASSERT_OK(actual[i].status());
    ASSERT_EQ(actual[i]->hypotheses.size(), expected[i]->hypotheses.size());
    for (size_t rank = 0; rank < expected[i]->hypotheses.size(); ++rank) {
      EXPECT_EQ(actual[i]->hypotheses[rank].tokens,
                expected[i]->hypotheses[rank].tokens);
      EXPECT_EQ(actual[i]->hypotheses[rank].score,
                expected[i]->hypotheses[rank].score);
    }
  }
}

void CudaExecutorTest::PrintFigures(const CudaExecutor& steps) {
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

}  // namespace espalier::testing
