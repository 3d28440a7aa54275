// Requests with NaN logits, or without a possible token, on the device as on
// the host: each ends with an error of its own, at the same token, and the
// others get the results that they get alone, even on pages that held NaN.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "executor/host/model_executor.h"
#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/few_cases.h"
#include "tests/model/tiny_model.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

// A row that reads this token has NaN hidden states from there on, and so NaN
// logits.
constexpr TokenId kPoison = 11;

TinyModel PoisonedModel() {
  const TinyShape shape;
  TinyModel tiny = MakeTinyModel(shape, 21);
  std::fill_n(tiny.tensors["model.embed_tokens.weight"].values.begin() +
                  kPoison * shape.hidden_size,
              shape.hidden_size, std::numeric_limits<float>::quiet_NaN());
  return tiny;
}

// A request, and what its error says if it gets one.
struct Asked {
  Request request;
  std::string error = "";
};

constexpr char kNanAtOnce[] = "NaN) after 0 generated";
// Error of a request with several samples, whose tokens may differ.
constexpr char kNanOfASample[] = "NaN) for a sample";
constexpr char kNoTokenAtOnce[] = "no token is possible after 0 generated";

Request Prompt(std::vector<TokenId> tokens) {
  Request request;
  request.prompt_tokens = std::move(tokens);
  request.params.max_new_tokens = Cases(12, 4);
  request.params.ignore_eos = true;
  return request;
}

// Nothing that is poisoned.
Request Healthy(int which) {
  Request request = Prompt({3, static_cast<TokenId>(12 + which), 6, 7, 8});
  request.params.suppress_tokens = {kPoison};
  return request;
}

Request Beams(Request request, int num_beams) {
  request.params.num_beams = num_beams;
  request.params.num_return_sequences = num_beams;
  return request;
}

Request Samples(Request request, int num_samples) {
  request.params.do_sample = true;
  request.params.best_of = num_samples;
  request.params.num_return_sequences = num_samples;
  request.params.seed = 5;
  return request;
}

Request Stochastic(Request request, int num_beams) {
  request = Beams(std::move(request), num_beams);
  request.params.stochastic = true;
  request.params.seed = 6;
  return request;
}

Request DiverseBeams(Request request) {
  request = Beams(std::move(request), 4);
  request.params.num_beam_groups = 2;
  request.params.diversity_penalty = 0.5;
  return request;
}

// Certain to be chosen first, and fed next.
Request FirstPoison(Request request) {
  request.params.suppress_tokens.clear();
  request.params.logit_bias = {{kPoison, 1000.0}};
  return request;
}

Request WithoutTokens(Request request) {
  for (TokenId token = 0; token < TinyShape().vocab_size; ++token) {
    if (token != kPoison) request.params.suppress_tokens.push_back(token);
  }
  return request;
}

// Each kind of choice with and without NaN, mixed.
std::vector<Asked> AllAsked() {
  const Request poisoned = Prompt({3, 4, kPoison, 7});
  return {
      {Samples(Healthy(0), 4)},
      {Samples(poisoned, 3), kNanAtOnce},
      {Beams(Healthy(1), 4)},
      {Beams(poisoned, 4), kNoTokenAtOnce},
      {Samples(FirstPoison(Healthy(2)), 2), kNanOfASample},
      {Stochastic(Healthy(3), 3)},
      {Stochastic(poisoned, 3), kNanAtOnce},
      {DiverseBeams(Healthy(4))},
      {DiverseBeams(poisoned), kNoTokenAtOnce},
      {Samples(WithoutTokens(Healthy(5)), 2), kNoTokenAtOnce},
      {Beams(WithoutTokens(Healthy(6)), 2), kNoTokenAtOnce},
      // A beam that takes the poison has no successor; the others have.
      {Beams(Prompt({8, 9, 10}), 5)},
      {Samples(Healthy(7), 2)},
      {Beams(Healthy(8), 3)},
  };
}

void ExpectAsAsked(const std::vector<Asked>& asked, const Answers& expected,
                   const Answers& actual) {
  Comparison comparison;
  for (size_t i = 0; i < asked.size(); ++i) {
    SCOPED_TRACE(Concat("request ", i));
    if (asked[i].error.empty()) {
      ASSERT_OK(expected[i].status());
      ASSERT_OK(actual[i].status());
      comparison.Add(expected[i]->hypotheses, actual[i]->hypotheses, "");
      continue;
    }
    EXPECT_THAT(std::string(expected[i].status().message()),
                HasSubstr(asked[i].error));
    EXPECT_EQ(actual[i].status(), expected[i].status());
  }
  comparison.Print("beside NaN");
  EXPECT_EQ(comparison.num_swapped, 0);
}

TEST(CudaExecutorFaultsTest, WhoGetsNanOrNoTokenEndsAloneAsOnTheHost) {
  const TempDirectory directory(FilesOf(PoisonedModel()));
  constexpr int kPageSize = 4;
  // So few pages that those with NaN change hands.
  constexpr int64_t kKvCacheBytes = 64 * 2048;
  const auto pool = MakePool(1);
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<TransformerModel> on_host,
      TransformerModel::Load(
          directory.path(),
          {.page_size = kPageSize, .kv_cache_bytes = kKvCacheBytes}, pool));
  std::vector<Asked> asked = AllAsked();
  std::vector<Request> requests;
  for (Asked& one : asked) {
    ASSERT_OK(ValidateRequest(on_host->description(), &one.request));
    requests.push_back(one.request);
  }
  const auto host = MakeExecutor(on_host.get(), pool);
  const Answers expected = Drive(*host, requests, {});

  CudaTransformerOptions options = {.page_size = kPageSize,
                                    .kv_cache_bytes = kKvCacheBytes,
                                    .dtype = DType::kFloat32,
                                    .max_tokens = 256,
                                    .max_logits = 64};
  ASSERT_OK_AND_ASSIGN(const CudaDevice device, CudaDevice::Open(0));
  ASSERT_OK_AND_ASSIGN(
      std::unique_ptr<CudaTransformer> model,
      CudaTransformer::Load(directory.path(), options, device));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<CudaExecutor> steps,
                       CudaExecutor::Create(std::move(model)));
  using Counts = std::vector<int>;
  for (const int num_in_flight : Cases(Counts{1, 2}, Counts{2})) {
    SCOPED_TRACE(Concat(num_in_flight, " in flight"));
    ASSERT_NO_FATAL_FAILURE(ExpectAsAsked(
        asked, expected,
        Drive(*steps, requests, {.num_in_flight = num_in_flight})));
  }
}

}  // namespace
}  // namespace espalier::testing
