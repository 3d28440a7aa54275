// Several models in one process on one thread pool: each gives the same results
// as alone.
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>
#include <memory>
#include <random>
#include <vector>

#include "batcher/engine.h"
#include "executor/host/model_executor.h"
#include "model/transformer_model.h"
#include "tests/batcher/manual_executor.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

namespace asio = boost::asio;
using namespace ::espalier::testing;  // NOLINT

// Prompts of any pieces, searched in all ways.
std::vector<Request> AnyRequests(int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Request> requests(count);
  for (int i = 0; i < count; ++i) {
    requests[i].prompt_tokens = {1, 4};
    for (int k = 1 + random() % 12; k > 0; --k) {
      requests[i].prompt_tokens.push_back(300 + random() % 5000);
    }
    requests[i].prompt_tokens.push_back(5);
    GenerationParams& params = requests[i].params;
    params.max_new_tokens = 12;
    if (i % 3 == 0) {
      params.do_sample = true;
      params.seed = random();
      params.num_return_sequences = 3;
    } else {
      params.num_beams = 1 + random() % 5;
    }
  }
  return requests;
}

std::shared_ptr<StepExecutor> LoadExecutor(
    const std::shared_ptr<ThreadPool>& pool) {
  const TransformerOptions options = {.kv_cache_bytes = int64_t{32} << 20};
  auto model =
      TransformerModel::Load(SourcePath("models/en-fr"), options, pool);
  return ModelExecutor::Create(*std::move(model), pool).value();
}

using Answers = std::vector<absl::StatusOr<Result>>;

// Each engine its own requests, all at once.
std::vector<Answers> RunTogether(
    const std::vector<std::vector<Request>>& requests, int num_threads) {
  const auto pool = MakePool(num_threads);
  asio::thread_pool threads(2);
  std::vector<Engine> engines;
  for (size_t i = 0; i < requests.size(); ++i) {
    engines.push_back(MakeEngine(threads.get_executor(), LoadExecutor(pool)));
  }
  std::vector<std::vector<std::future<absl::StatusOr<Result>>>> futures(
      requests.size());
  for (size_t k = 0; k < requests[0].size(); ++k) {
    for (size_t i = 0; i < requests.size(); ++i) {
      futures[i].push_back(asio::co_spawn(
          threads, engines[i].Generate(requests[i][k]), asio::use_future));
    }
  }
  std::vector<Answers> answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    for (auto& future : futures[i]) answers[i].push_back(future.get());
  }
  return answers;
}

TEST(SharedPoolTest, TwoModelsOnOnePoolAnswerAsAlone) {
  const int count = Cases(100, 6);
  const std::vector<std::vector<Request>> requests = {AnyRequests(count, 1),
                                                      AnyRequests(count, 2)};
  const std::vector<Answers> together = RunTogether(requests, 3);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Answers alone = RunTogether({requests[i]}, 1)[0];
    for (int k = 0; k < count; ++k) {
      ASSERT_OK(alone[k]);
      ASSERT_OK(together[i][k]);
      EXPECT_TRUE(SameResult(*together[i][k], *alone[k])) << i << " " << k;
    }
  }
}

}  // namespace
}  // namespace espalier
