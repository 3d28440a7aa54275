// Batch invariance on the device: random requests over all parameters and
// widths, run together, are answered as each is alone, in float32, whatever the
// limits of a step, the size of pages and the number of plans in flight.
// tests/model/answer_comparison.h says what rounding may change.
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
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tests/few_cases.h"
#include "tests/model/answer_comparison.h"
#include "tests/model/answer_log.h"
#include "tests/model/cuda/cuda_executor_fixture.h"
#include "tests/model/mixture_requests.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "text/tokenizer.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

struct Mixture {
  const char* name;
  int max_step_tokens;  // also the lines of logits of a step
  int max_running;
  int page_size;
  int num_in_flight;
  int64_t kv_cache_mb;
  int max_graphs;
};

// Beside each limit in turn: as many requests as fit into a step; some; few
// lines, so that one wide request fills a step; few pages; few graphs, or none.
constexpr Mixture kMixtures[] = {
    {"WideSteps", 2048, 256, 16, 2, 1024, 512},
    {"FewRequests", 2048, 5, 16, 2, 1024, 4},
    {"OneByOne", 2048, 64, 32, 1, 1536, 0},
    {"PagesOfOneToken", 1500, 40, 1, 2, 512, 512},
    {"MiddlingSteps", 1024, 16, 16, 2, 1024, 512},
    {"TwoThatFit", 608, 256, 64, 2, 1536, 64},
    {"NarrowSteps", 256, 256, 16, 2, 512, 512},
    {"FewPages", 700, 40, 3, 2, 24, 512},
};

int FromEnvironment(const char* name, int otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

int NumRequests() {
  const int all = FromEnvironment("ESPALIER_MIXTURE_REQUESTS", 320);
  const int num_mixtures = static_cast<int>(std::size(kMixtures));
  return Cases((all + num_mixtures - 1) / num_mixtures, 6);
}

MixtureLimits LimitsOf(const Mixture& mixture) {
  // Groups of more than 64 candidates beside samples, and little else.
  if (FewCases()) {
    return {.max_samples = 70, .max_beams = 36, .max_new_tokens = 3};
  }
  MixtureLimits limits;
  // A request takes pages of all its sequences.
  if (mixture.kv_cache_mb < 100) limits.max_samples = 100;
  return limits;
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
  }
  static void TearDownTestSuite() {
    delete std::exchange(tokenizer_, nullptr);
    CudaExecutorTest::TearDownTestSuite();
  }

  static OnDevice LoadFor(const Mixture& mixture) {
    CudaLlamaOptions options = Float32();
    options.max_tokens = mixture.max_step_tokens;
    options.max_logits = mixture.max_step_tokens;
    options.page_size = mixture.page_size;
    options.max_graphs = mixture.max_graphs;
    options.kv_cache_bytes = mixture.kv_cache_mb << 20;
    return Load(options);
  }

  static DriveOptions DriveFor(const Mixture& mixture) {
    return {.num_in_flight = mixture.num_in_flight,
            .scheduler = {.max_running = mixture.max_running,
                          .max_step_tokens = mixture.max_step_tokens,
                          .validate_steps = FewCases()},
            .tokenizer = *tokenizer_};
  }

  // Runs them under one scheduler. One that can never fit has no answer.
  static std::vector<std::optional<AnsweredRequest>> Run(
      StepExecutor& steps, const std::vector<Request>& requests,
      const DriveOptions& options) {
    AnswerLog log(&steps);
    Answers answers = Drive(log, requests, options);
    std::map<RequestId, CandidateLists> lists = log.Take();
    std::vector<std::optional<AnsweredRequest>> answered(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      if (answers[i].ok()) {
        answered[i] = {std::move(lists[RequestId{static_cast<int64_t>(i)}]),
                       *std::move(answers[i])};
      } else {
        EXPECT_THAT(answers[i].status(),
                    StatusIs(absl::StatusCode::kResourceExhausted,
                             HasSubstr("can never fit")))
            << "request " << i;
      }
    }
    return answered;
  }

  // Returns how many can never fit.
  static int ExpectSameAsAlone(StepExecutor& steps, const Mixture& mixture,
                               const std::vector<Request>& requests,
                               const std::string& what, AnswerCounts* counts) {
    const std::vector<std::optional<AnsweredRequest>> together =
        Run(steps, requests, DriveFor(mixture));
    int num_refused = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const GenerationParams& params = requests[i].params;
      const std::optional<AnsweredRequest> alone =
          Run(steps, {requests[i]}, DriveFor(mixture))[0];
      const std::string name = Concat(
          what, ", request ", i, ": ", params.num_beams, " beams in ",
          params.num_beam_groups, " groups, ",
          params.best_of.value_or(params.num_return_sequences), " sequences");
      EXPECT_EQ(alone.has_value(), together[i].has_value()) << name;
      if (!alone.has_value() || !together[i].has_value()) {
        ++num_refused;
        continue;
      }
      EXPECT_EQ(CompareAnswers(params, *alone, *together[i], counts), "")
          << name;
    }
    return num_refused;
  }

  static std::shared_ptr<Tokenizer>* tokenizer_;
};

std::shared_ptr<Tokenizer>* CudaMixtureTest::tokenizer_ = nullptr;

TEST_P(CudaMixtureTest, RequestsTogetherGetWhatEachGetsAlone) {
  constexpr int kAtOnce = 100;  // whose answers are kept
  const Mixture& mixture = GetParam();
  const OnDevice device = LoadFor(mixture);
  ASSERT_NE(device.steps, nullptr);
  const auto number =
      std::ranges::find(kMixtures, mixture.name, &Mixture::name) - kMixtures;
  const int seed = FromEnvironment("ESPALIER_MIXTURE_SEED", 1) * 100 +
                   static_cast<int>(number);
  std::mt19937 random(seed);
  AnswerCounts counts;
  int num_refused = 0;
  for (int left = NumRequests(); left > 0; left -= kAtOnce) {
    std::vector<Request> requests;
    for (int i = 0; i < std::min(left, kAtOnce); ++i) {
      requests.push_back(AnyMixtureRequest(random, device.steps->description(),
                                           LimitsOf(mixture)));
    }
    num_refused +=
        ExpectSameAsAlone(*device.steps, mixture, requests,
                          Concat("seed ", seed, ", ", left, " left"), &counts);
  }
  counts.Print(mixture.name);
  EXPECT_EQ(counts.AboveBounds(), "");
  EXPECT_LE(num_refused, NumRequests() / 10) << "can never fit";
  PrintFigures(*device.steps);
}

INSTANTIATE_TEST_SUITE_P(Mixtures, CudaMixtureTest,
                         ::testing::ValuesIn(kMixtures),
                         [](const ::testing::TestParamInfo<Mixture>& tested) {
                           return tested.param.name;
                         });

}  // namespace
}  // namespace espalier::testing
