// Batch invariance on the device: random requests over all parameters and
// widths, run together, are answered as each is alone, in float32, whatever the
// limits of a step, the size of pages and the number of plans in flight. Those
// that speculate are answered as they are without that.
// tests/executor/answer_comparison.h says what rounding may change.
//
// Of the environment:
//
//   ESPALIER_MIXTURE_REQUESTS=320  how many requests, of all mixtures together;
//                                  10000 is the long form, some minutes
//   ESPALIER_MIXTURE_SEED=1        which requests
//   ESPALIER_FEW_CASES=1           a few narrow requests, for sanitizers
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/status.h"
#include "beam/constraint_cache.h"
#include "beam/prepared_request.h"
#include "executor/cuda/cuda_blocking_model.h"
#include "executor/cuda/draft/cuda_draft_sampler.h"
#include "executor/drafts/draft_model.h"
#include "tests/executor/answer_comparison.h"
#include "tests/executor/answer_log.h"
#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/executor/mixture_requests.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::testing {
namespace {

using ::testing::AnyOf;

struct Mixture {
  const char* name;
  int max_step_tokens;  // also the rows of logits of a step
  int max_running;
  int page_size;
  int num_in_flight;
  int64_t kv_cache_mb;
  int max_graphs;
  bool has_draft_model = false;
};

// Beside each limit in turn: as many requests as fit into a step; some; few
// rows of logits, so that one wide request fills a step; few pages; few graphs,
// or none.
constexpr Mixture kMixtures[] = {
    {"WideSteps", 2048, 256, 16, 2, 1024, 512},
    {"FewRequests", 2048, 5, 16, 2, 1024, 4},
    {"OneByOne", 2048, 64, 32, 1, 1536, 0},
    {"PagesOfOneToken", 1500, 40, 1, 2, 512, 512},
    {"MiddlingSteps", 1024, 16, 16, 2, 1024, 512},
    {"TwoThatFit", 608, 256, 64, 2, 1536, 64},
    {"NarrowSteps", 256, 256, 16, 2, 512, 512},
    {"FewPages", 700, 40, 3, 2, 24, 512},
    {"WithDraftModel", 2048, 64, 16, 2, 1024, 512, true},
    {"FewWithDraftModel", 700, 4, 3, 2, 64, 512, true},
};

int FromEnvironment(const char* name, int otherwise) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return otherwise;
  int number = 0;
  EXPECT_TRUE(absl::SimpleAtoi(value, &number)) << name << "=" << value;
  return number;
}

int NumRequests() {
  const int all = FromEnvironment("ESPALIER_MIXTURE_REQUESTS", 320);
  const int num_mixtures = static_cast<int>(std::size(kMixtures));
  return Cases((all + num_mixtures - 1) / num_mixtures, 6);
}

MixtureLimits LimitsOf(const Mixture& mixture) {
  // Groups of more than 64 candidates beside samples, and little else.
  if (FewCases()) {
    return {.max_samples = 70,
            .max_beams = 36,
            .max_new_tokens = 3,
            .speculates = true,
            .has_draft_model = mixture.has_draft_model,
            .constrains = true};
  }
  MixtureLimits limits = {.speculates = true,
                          .has_draft_model = mixture.has_draft_model,
                          .constrains = true};
  // A request takes pages of all its sequences.
  if (mixture.kv_cache_mb < 100) limits.max_samples = 100;
  return limits;
}

std::string Describe(const GenerationParams& params) {
  return Concat(
      params.stochastic  ? "stochastic, "
      : params.do_sample ? "drawn, "
                         : "",
      params.num_beams, " beams in ", params.num_beam_groups, " groups, ",
      params.best_of.value_or(params.num_return_sequences), " sequences of ",
      params.max_new_tokens.value_or(0), " tokens, temperature ",
      params.temperature, ", top_k ", params.top_k, ", top_p ", params.top_p,
      ", min_p ", params.min_p, ", typical_p ", params.typical_p);
}

// The first candidates that differ in tokens or by more than rounding.
std::string FirstDifference(const AnsweredRequest& a,
                            const AnsweredRequest& b) {
  constexpr int kMostShown = 12;
  for (size_t step = 0; step < std::min(a.steps.size(), b.steps.size());
       ++step) {
    std::string shown;
    int num_shown = 0;
    const auto& x = a.steps[step];
    const auto& y = b.steps[step];
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      const bool same =
          x[i].beam == y[i].beam && x[i].token == y[i].token &&
          std::abs(x[i].cum_log_prob - y[i].cum_log_prob) <= 1e-3f;
      if (same || ++num_shown > kMostShown) continue;
      shown += Concat(" [", i, "] beam ", x[i].beam, " token ", x[i].token, " ",
                      x[i].cum_log_prob, " / ", y[i].beam, " ", y[i].token, " ",
                      y[i].cum_log_prob);
    }
    if (num_shown > 0 || x.size() != y.size()) {
      return Concat("step ", step, ": ", num_shown, " of ", x.size(), " and ",
                    y.size(), " differ:", shown);
    }
  }
  return "no step differs";
}

class CudaMixtureTest : public CudaExecutorTest,
                        public ::testing::WithParamInterface<Mixture> {
 protected:
  static void SetUpTestSuite() {
    CudaExecutorTest::SetUpTestSuite();
    auto tokenizer =
        Tokenizer::Load(SourcePath("models/en-fr/tokenizer.model"));
    ASSERT_OK(tokenizer.status());
    tokenizer_ = new std::shared_ptr<Tokenizer>(*std::move(tokenizer));
    constraints_ = new ConstraintCache(*tokenizer_, host_->description());
  }
  static void TearDownTestSuite() {
    delete std::exchange(constraints_, nullptr);
    delete std::exchange(tokenizer_, nullptr);
    CudaExecutorTest::TearDownTestSuite();
  }

  static OnDevice LoadFor(const Mixture& mixture) {
    CudaTransformerOptions options = Float32();
    options.max_tokens = mixture.max_step_tokens;
    options.max_logits = mixture.max_step_tokens;
    options.page_size = mixture.page_size;
    options.kv_cache_bytes = mixture.kv_cache_mb << 20;
    return Load(
        options, *device_,
        {.max_graphs = mixture.max_graphs,
         .draft_model = mixture.has_draft_model ? LoadDraftModel() : nullptr});
  }

  // Another model, which drafts on the same device.
  static std::unique_ptr<DraftModel> LoadDraftModel() {
    CudaTransformerOptions options = Float32();
    options.max_tokens = options.max_logits = 256;
    options.kv_cache_bytes = 128 << 20;
    auto loaded = CudaTransformer::Load(SourcePath("models/en-fr-draft"),
                                        options, *device_);
    EXPECT_OK(loaded.status());
    const std::shared_ptr<CudaModel> model = *std::move(loaded);
    auto blocking = CudaBlockingModel::Create(model);
    EXPECT_OK(blocking.status());
    auto sampler = CudaDraftSampler::Create(model);
    EXPECT_OK(sampler.status());
    auto draft =
        DraftModel::Create(*std::move(blocking), *pool_, *std::move(sampler));
    EXPECT_OK(draft.status());
    return *std::move(draft);
  }

  static DriveOptions DriveFor(const Mixture& mixture) {
    return {.num_in_flight = mixture.num_in_flight,
            .scheduler = {.max_running = mixture.max_running,
                          .max_step_tokens = mixture.max_step_tokens,
                          .validate_steps = FewCases()},
            .tokenizer = *tokenizer_};
  }

  static PreparedRequest Prepared(const Request& request) {
    return PreparedRequest(request, *tokenizer_, nullptr,
                           *constraints_->Get(request));
  }

  // Runs them under one scheduler.
  static std::vector<absl::StatusOr<AnsweredRequest>> Run(
      StepExecutor& steps, const std::vector<Request>& requests,
      const DriveOptions& options) {
    AnswerLog log(&steps);
    Answers answers = Drive(log, requests, options);
    std::map<RequestId, CandidateLists> lists = log.Take();
    std::vector<absl::StatusOr<AnsweredRequest>> answered;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (!answers[i].ok()) {
        answered.push_back(answers[i].status());
        continue;
      }
      answered.push_back(
          AnsweredRequest{std::move(lists[RequestId{static_cast<int64_t>(i)}]),
                          *std::move(answers[i])});
    }
    return answered;
  }

  // Which of the two the host agrees with.
  static std::string CompareWithTheHost(const Request& request,
                                        const AnsweredRequest& alone,
                                        const AnsweredRequest& together) {
    const auto steps = MakeExecutor(host_, *pool_, {.run_ahead = true});
    const auto on_host = Run(*steps, {request}, {.tokenizer = *tokenizer_});
    if (!on_host[0].ok()) return on_host[0].status().ToString();
    AnswerCounts ignored;
    const auto compare = [&](const AnsweredRequest& answered) {
      return CompareAnswers(Prepared(request), *on_host[0], answered, &ignored);
    };
    return Concat("alone against the host: \"", compare(alone), "\", ",
                  FirstDifference(*on_host[0], alone),
                  "; together against the host: \"", compare(together), "\", ",
                  FirstDifference(*on_host[0], together));
  }

  // Returns the number of requests without a result, because they can never fit
  // into a step, or their constraints leave no token. Alone they fail, too.
  static int ExpectSameAsAlone(StepExecutor& steps, const Mixture& mixture,
                               const std::vector<Request>& requests,
                               const std::string& what, AnswerCounts* counts) {
    const std::vector<absl::StatusOr<AnsweredRequest>> together =
        Run(steps, requests, DriveFor(mixture));
    int num_without_result = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      Request plain = requests[i];
      plain.params.speculate.reset();
      const absl::StatusOr<AnsweredRequest> alone =
          Run(steps, {plain}, DriveFor(mixture))[0];
      const std::string name =
          Concat(what, ", request ", i, ": ", Describe(requests[i].params));
      EXPECT_EQ(alone.status(), together[i].status()) << name;
      if (!alone.ok() || !together[i].ok()) {
        EXPECT_THAT(alone.status().code(),
                    AnyOf(absl::StatusCode::kResourceExhausted,
                          absl::StatusCode::kFailedPrecondition))
            << name;
        ++num_without_result;
        continue;
      }
      // With rejection the tokens depend on the drafts; their distribution is
      // tested elsewhere.
      const auto& speculate = requests[i].params.speculate;
      if (speculate && speculate->mode == SpeculationMode::kRejection) continue;
      const std::string difference =
          CompareAnswers(Prepared(requests[i]), *alone, *together[i], counts);
      if (difference.empty()) continue;
      ADD_FAILURE() << name << ": " << difference << "; "
                    << FirstDifference(*alone, *together[i]) << "; "
                    << CompareWithTheHost(requests[i], *alone, *together[i]);
    }
    return num_without_result;
  }

  static std::shared_ptr<Tokenizer>* tokenizer_;
  static ConstraintCache* constraints_;
};

std::shared_ptr<Tokenizer>* CudaMixtureTest::tokenizer_ = nullptr;
ConstraintCache* CudaMixtureTest::constraints_ = nullptr;

TEST_P(CudaMixtureTest, RequestsTogetherGetWhatEachGetsAlone) {
  constexpr int kAtOnce = 100;  // with results kept
  ASSERT_GT(NumRequests(), 0);
  const Mixture& mixture = GetParam();
  OnDevice device = LoadFor(mixture);
  ASSERT_NE(device.steps, nullptr);
  const CudaExecutor& figures = *device.steps;
  std::shared_ptr<StepExecutor> steps = std::move(device.steps);
  const auto number =
      std::ranges::find(kMixtures, mixture.name, &Mixture::name) - kMixtures;
  const int seed = FromEnvironment("ESPALIER_MIXTURE_SEED", 1) * 100 +
                   static_cast<int>(number);
  std::mt19937 random(seed);
  AnswerCounts counts;
  int num_without_result = 0;
  for (int left = NumRequests(); left > 0; left -= kAtOnce) {
    std::vector<Request> requests;
    for (int i = 0; i < std::min(left, kAtOnce); ++i) {
      requests.push_back(
          AnyMixtureRequest(random, steps->description(), LimitsOf(mixture)));
    }
    num_without_result +=
        ExpectSameAsAlone(*steps, mixture, requests,
                          Concat("seed ", seed, ", ", left, " left"), &counts);
  }
  counts.Print(mixture.name);
  EXPECT_EQ(counts.AboveBounds(), "");
  EXPECT_LE(num_without_result, NumRequests() / 10) << "without";
  PrintFigures(figures);
}

// The device finds legal tokens by masks, the host by lists.
TEST_P(CudaMixtureTest, ConstrainedRequestsGetWhatTheHostGivesThem) {
  const Mixture& mixture = GetParam();
  OnDevice device = LoadFor(mixture);
  ASSERT_NE(device.steps, nullptr);
  std::shared_ptr<StepExecutor> steps = std::move(device.steps);
  MixtureLimits limits = LimitsOf(mixture);
  limits.speculates = false;
  limits.max_samples = 20;
  limits.max_beams = 12;
  std::mt19937 random(17);
  std::vector<Request> requests;
  while (std::ssize(requests) < Cases(12, 2)) {
    Request request = AnyMixtureRequest(random, steps->description(), limits);
    if (request.params.constraint) requests.push_back(std::move(request));
  }
  const auto on_device = Run(*steps, requests, DriveFor(mixture));
  // It asks for as many candidates.
  const auto host = MakeExecutor(host_, *pool_, {.run_ahead = true});
  const auto on_host = Run(*host, requests, {.tokenizer = *tokenizer_});
  AnswerCounts counts;
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::string name =
        Concat("request ", i, ": ", Describe(requests[i].params));
    ASSERT_EQ(on_device[i].status(), on_host[i].status()) << name;
    if (!on_host[i].ok()) continue;
    EXPECT_EQ(CompareAnswers(Prepared(requests[i]), *on_host[i], *on_device[i],
                             &counts),
              "")
        << name << ": " << FirstDifference(*on_host[i], *on_device[i]);
  }
  counts.Print(mixture.name);
}

INSTANTIATE_TEST_SUITE_P(Mixtures, CudaMixtureTest,
                         ::testing::ValuesIn(kMixtures),
                         [](const ::testing::TestParamInfo<Mixture>& tested) {
                           return tested.param.name;
                         });

}  // namespace
}  // namespace espalier::testing
