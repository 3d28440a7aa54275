// Groups whose score processors read the history, on the device: they are
// scheduled asynchronously, and get the same results as on the host, which
// collects their edits anew in every step.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

class CudaHistoryTest : public CudaExecutorTest {
 protected:
  // Requests of every strategy with several processors each, on prompts that
  // repeat themselves.
  static std::vector<Request> RequestsWithProcessors(int count, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<Request> requests =
        AnyRequests(count, static_cast<uint32_t>(random()));
    for (Request& other : RequestsOfAllStrategies(count / 3 + 1, seed + 1)) {
      requests.push_back(std::move(other));
    }
    for (Request& request : requests) {
      Repeat(random, &request.prompt_tokens);
      AddProcessors(random, request.prompt_tokens, &request.params);
      EXPECT_OK(ValidateRequest(host_->description(), &request));
    }
    return requests;
  }

  // Both must fail where processors ban every next token.
  static void ExpectSameOrNone(Answers expected, Answers actual,
                               const char* name) {
    for (size_t i = expected.size(); i-- > 0;) {
      if (expected[i].ok()) continue;
      EXPECT_EQ(actual[i].status(), expected[i].status()) << name << ", " << i;
      expected.erase(expected.begin() + i);
      actual.erase(actual.begin() + i);
    }
    ExpectSame(expected, actual, name);
  }

 private:
  static int Below(std::mt19937& random, int64_t limit) {
    return static_cast<int>(random() % limit);
  }

  static void Repeat(std::mt19937& random, std::vector<TokenId>* tokens) {
    const int size = static_cast<int>(tokens->size());
    if (Below(random, 2) == 0) {
      for (int i = 0; i < size; ++i) tokens->push_back((*tokens)[i]);
    }
  }

  static void AddProcessors(std::mt19937& random,
                            const std::vector<TokenId>& prompt,
                            GenerationParams* params) {
    const auto one_in = [&](int n) { return Below(random, n) == 0; };
    if (one_in(2)) params->repetition_penalty = 0.9 + 0.1 * Below(random, 9);
    if (one_in(2)) params->no_repeat_ngram_size = 1 + Below(random, 4);
    if (one_in(3)) params->frequency_penalty = 0.4;
    if (one_in(3)) params->presence_penalty = -0.3;
    if (one_in(4)) params->logit_bias = {{prompt[0], 1.5}, {400, -2.0}};
    if (one_in(3)) {
      params->min_new_tokens = std::min<int64_t>(4, *params->max_new_tokens);
    }
    for (int words = Below(random, 4); words > 0; --words) {
      // A word that begins as the prompt ends, or any word.
      std::vector<int64_t> word;
      for (int i = Below(random, 3); i > 0; --i) {
        word.push_back(one_in(2) ? prompt.back() : 3 + Below(random, 50));
      }
      word.push_back(3 + Below(random, 300));
      params->bad_words_ids.push_back(word);
    }
  }
};

TEST_F(CudaHistoryTest, MixturesGetWhatTheHostGives) {
  const std::vector<Request> requests =
      RequestsWithProcessors(Cases(72, 3), 20261121);
  const Answers expected = OnHost(requests);
  for (const int page_size :
       Cases(std::vector<int>{16, 1, 5}, std::vector<int>{1})) {
    CudaTransformerOptions options = Float32();
    options.page_size = page_size;
    const OnDevice device = Load(options);
    ASSERT_NE(device.steps, nullptr);
    for (const int num_in_flight :
         Cases(std::vector<int>{1, 2}, std::vector<int>{2})) {
      ExpectSameOrNone(
          expected,
          Drive(*device.steps, requests, {.num_in_flight = num_in_flight}),
          "histories");
      PrintFigures(*device.steps);
    }
  }
}

TEST_F(CudaHistoryTest, AloneTheyGetWhatTheHostGives) {
  const OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  const std::vector<Request> requests = RequestsWithProcessors(Cases(24, 1), 4);
  const Answers expected = OnHost(requests);
  Answers actual;
  for (const Request& request : requests) {
    Answers alone = Drive(*device.steps, {request}, {.num_in_flight = 2});
    actual.push_back(std::move(alone[0]));
  }
  ExpectSameOrNone(expected, actual, "alone");
}

// Chunks of prompts share steps with beams, pages change hands, and some
// requests are cancelled.
TEST_F(CudaHistoryTest, ChunksScarcePagesAndCancellingLeaveTheOthersAlone) {
  const int num_requests = Cases(40, 3);
  std::vector<Request> requests = RequestsWithProcessors(num_requests, 77);
  Answers expected = OnHost(requests);
  CudaTransformerOptions options = Float32();
  options.page_size = 3;
  options.kv_cache_bytes = 12 << 20;
  const OnDevice device = Load(options);
  ASSERT_NE(device.steps, nullptr);
  DriveOptions drive = {.num_in_flight = 2};
  drive.scheduler.max_step_tokens = 29;
  drive.before_plan = [&](Scheduler& scheduler, int num_plans) {
    if (num_plans % 9 != 4) return;
    scheduler.Cancel(RequestId{num_plans * 7 % num_requests},
                     absl::CancelledError("by the test"));
  };
  Answers actual = Drive(*device.steps, requests, drive);
  int num_cancelled = 0;
  for (size_t i = actual.size(); i-- > 0;) {
    if (actual[i].status().code() != absl::StatusCode::kCancelled) continue;
    ++num_cancelled;
    actual.erase(actual.begin() + i);
    expected.erase(expected.begin() + i);
  }
  ExpectSameOrNone(expected, actual, "not cancelled");
  EXPECT_GE(num_cancelled, Cases(3, 0));
}

TEST_F(CudaHistoryTest, TheyGoOnByThemselvesFromGraphs) {
  const OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  Request request{{5, 6, 7, 5, 6}, {}};
  const int num_steps = Cases(40, 16);
  request.params.num_beams = 4;
  request.params.max_new_tokens = num_steps;
  request.params.min_new_tokens = num_steps;
  request.params.repetition_penalty = 1.1;
  request.params.no_repeat_ngram_size = 3;
  ASSERT_OK(ValidateRequest(host_->description(), &request));
  ExpectSame(OnHost({request}),
             Drive(*device.steps, {request}, {.num_in_flight = 2}), "graphs");
  const CudaExecutorFigures figures = device.steps->figures();
  EXPECT_EQ(figures.num_steps, num_steps);
  EXPECT_EQ(figures.num_graph_launches, num_steps - 1);
  // Pages that begin, and little else.
  EXPECT_LT(figures.num_deltas, 10);
}

}  // namespace
}  // namespace espalier::testing
