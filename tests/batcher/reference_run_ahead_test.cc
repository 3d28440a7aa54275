// The reference's 300 requests (tests/data/README.md) through an engine that
// runs ahead: its hypotheses, and to the bit what an engine gives that waits
// for every answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/cpu_count.h"
#include "base/json.h"
#include "batcher/engine.h"
#include "executor/host/model_executor.h"
#include "model/transformer_model.h"
#include "tests/batcher/generate_all.h"
#include "tests/batcher/toy_requests.h"
#include "tests/reference_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::GenerateAll;
using testing::MakeExecutor;
using testing::MakePool;
using testing::SameResult;
using Hypotheses = std::vector<std::vector<TokenId>>;

struct ReferenceTokens {
  Request request;
  Hypotheses hypotheses;  // ascending: some swap ranks within the tolerance
};

ReferenceTokens ParseReferenceTokens(const json::value& line) {
  ReferenceTokens reference = {testing::ReferenceRequest(line), {}};
  for (const json::value& hypothesis : line.at("hypotheses").as_array()) {
    reference.hypotheses.push_back(testing::HypothesisTokens(hypothesis));
  }
  std::sort(reference.hypotheses.begin(), reference.hypotheses.end());
  return reference;
}

std::vector<ReferenceTokens> ReadReferenceTokens() {
  std::vector<ReferenceTokens> references;
  for (const json::value& line : testing::ReferenceCases()) {
    references.push_back(ParseReferenceTokens(line));
  }
  return references;
}

Hypotheses SortedTokens(const Result& result) {
  Hypotheses hypotheses;
  for (const Hypothesis& hypothesis : result.hypotheses) {
    hypotheses.push_back(hypothesis.tokens);
  }
  std::sort(hypotheses.begin(), hypotheses.end());
  return hypotheses;
}

std::vector<absl::StatusOr<Result>> RunAll(
    Model& model, std::shared_ptr<ThreadPool> threads,
    const std::vector<ReferenceTokens>& references, bool run_ahead) {
  std::vector<Request> requests;
  for (const ReferenceTokens& reference : references) {
    requests.push_back(reference.request);
  }
  return GenerateAll(MakeExecutor(&model, threads, {.run_ahead = run_ahead}),
                     requests, {{.validate_steps = run_ahead}});
}

TEST(ReferenceRunAheadTest, RunningAheadGivesTheReferencesHypotheses) {
  const std::vector<ReferenceTokens> references = ReadReferenceTokens();
  const auto threads = MakePool(NumUsableCpus());
  TransformerOptions options;
  options.page_size = 3;  // pages begin, and tails are copied, all the time
  options.kv_cache_bytes = int64_t{32} << 20;
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<TransformerModel> model,
      TransformerModel::Load(SourcePath("models/en-fr"), options, threads));
  const auto waiting = RunAll(*model, threads, references, false);
  const auto ahead = RunAll(*model, threads, references, true);
  for (size_t i = 0; i < references.size(); ++i) {
    ASSERT_OK(waiting[i]);
    ASSERT_OK(ahead[i]);
    EXPECT_TRUE(SameResult(*ahead[i], *waiting[i])) << "line " << i;
    EXPECT_EQ(SortedTokens(*ahead[i]), references[i].hypotheses)
        << "line " << i;
  }
}

}  // namespace
}  // namespace espalier
