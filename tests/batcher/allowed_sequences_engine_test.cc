// Allowed sequences with the embedded translator and its 6,000 tokens: 256
// beams over 100,000 sequences give sequences of the set alone, and over a
// smaller set what scoring every sequence by itself gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/cpu_count.h"
#include "batcher/engine.h"
#include "executor/host/model_executor.h"
#include "model/transformer_model.h"
#include "tests/batcher/generate_all.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::GenerateAll;
using testing::MakeExecutor;
using testing::MakePool;

constexpr int kLength = 4;
using Sequences = std::vector<std::vector<int64_t>>;

// Different ones, of tokens that are no special symbols.
Sequences RandomSequences(int count, int num_tokens) {
  std::mt19937 random(1);
  std::set<std::vector<int64_t>> sequences;
  while (sequences.size() < count) {
    std::vector<int64_t> sequence(kLength);
    for (int64_t& token : sequence) token = 300 + random() % num_tokens;
    sequences.insert(sequence);
  }
  return Sequences(sequences.begin(), sequences.end());
}

Request Allowing(Sequences sequences, int64_t num_beams) {
  Request request;

  // Translate "Where is the station?" into French.
  request.prompt_tokens = {1, 4, 502, 282, 283, 2707, 270, 5};
  GenerationParams& params = request.params;
  params.num_beams = num_beams;
  params.num_return_sequences = num_beams;
  params.max_new_tokens = kLength;
  params.early_stopping = EarlyStopping::kNever;
  params.allowed_sequences = std::move(sequences);
  return request;
}

class AllowedSequencesEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto model =
        TransformerModel::Load(SourcePath("models/en-fr"),
                               {.kv_cache_bytes = int64_t{64} << 20}, threads_);
    ASSERT_OK(model);
    model_ = *std::move(model);
  }

  std::vector<Result> RunAll(const std::vector<Request>& requests) {
    std::vector<Result> results;
    for (absl::StatusOr<Result>& result :
         GenerateAll(MakeExecutor(model_.get(), threads_), requests)) {
      EXPECT_OK(result);
      results.push_back(*std::move(result));
    }
    return results;
  }

  const std::shared_ptr<ThreadPool> threads_ = MakePool(NumUsableCpus());
  std::unique_ptr<TransformerModel> model_;
};

TEST_F(AllowedSequencesEngineTest, HundredsOfBeamsOverManySequencesAreLegal) {
  const Sequences sequences = RandomSequences(100000, 5000);
  const auto start = std::chrono::steady_clock::now();
  const Result result = RunAll({Allowing(sequences, 256)}).front();
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start;
  std::printf("256 beams over 100,000 sequences: %.2f s\n", seconds.count());
  ASSERT_EQ(result.hypotheses.size(), 256);
  std::set<std::vector<TokenId>> distinct;
  for (const Hypothesis& hypothesis : result.hypotheses) {
    const std::vector<int64_t> tokens(hypothesis.tokens.begin(),
                                      hypothesis.tokens.end());
    EXPECT_TRUE(std::ranges::binary_search(sequences, tokens));
    EXPECT_EQ(hypothesis.finish_reason, FinishReason::kStop);
    EXPECT_TRUE(distinct.insert(hypothesis.tokens).second);
  }
}

// A request that allows one sequence alone scores it.
TEST_F(AllowedSequencesEngineTest, ASmallerSetIsScoredAsOneByOne) {
  const Sequences sequences = RandomSequences(200, 12);
  std::vector<Request> requests = {Allowing(sequences, 200)};
  for (const std::vector<int64_t>& sequence : sequences) {
    requests.push_back(Allowing({sequence}, 2));
  }
  std::vector<Result> results = RunAll(requests);
  const std::vector<Hypothesis> together = results[0].hypotheses;
  std::vector<Hypothesis> alone;
  for (size_t i = 1; i < results.size(); ++i) {
    ASSERT_EQ(results[i].hypotheses.size(), 1);
    alone.push_back(results[i].hypotheses[0]);
  }
  std::ranges::sort(alone, [](const Hypothesis& a, const Hypothesis& b) {
    return a.score > b.score;
  });
  ASSERT_EQ(together.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(together[i].tokens, alone[i].tokens);
    EXPECT_EQ(together[i].score, alone[i].score);
  }
}

}  // namespace
}  // namespace espalier
