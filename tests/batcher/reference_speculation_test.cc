// The reference's 300 requests (tests/data/README.md) with drafts, of each
// method and length and all at a time: to the bit what an engine gives that
// drafts nothing. With the draft model of the embedded model steps are saved.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
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
using testing::SameHypotheses;

std::vector<Request> ReadSpeculatingRequests() {
  std::vector<Request> requests;
  for (const json::value& line : testing::ReferenceCases()) {
    requests.push_back(testing::ReferenceRequest(line));
    GenerationParams& params = requests.back().params;
    params.num_return_sequences = params.num_beams;
    if (requests.size() % 3 == 0) params.logprobs = 2;
  }
  return requests;
}

class ReferenceSpeculationTest : public ::testing::Test {
 protected:
  ReferenceSpeculationTest()
      : threads_(MakePool(NumUsableCpus())),
        requests_(ReadSpeculatingRequests()) {
    TransformerOptions options;
    options.page_size = 3;
    options.kv_cache_bytes = int64_t{48} << 20;
    model_ =
        *TransformerModel::Load(SourcePath("models/en-fr"), options, threads_);
    options.page_size = 4;
    draft_ = *TransformerModel::Load(SourcePath("models/en-fr-draft"), options,
                                     threads_);
  }

  std::vector<absl::StatusOr<Result>> RunAll(
      const std::vector<Request>& requests) {
    // Owned here.
    const std::shared_ptr<Model> draft(draft_.get(), [](Model*) {});
    return GenerateAll(
        MakeExecutor(model_.get(), threads_,
                     {.run_ahead = true, .draft_model = draft}),
        requests,
        {{.max_running = 24, .max_step_tokens = 512, .validate_steps = true}});
  }

  const std::shared_ptr<ThreadPool> threads_;
  const std::vector<Request> requests_;
  std::unique_ptr<TransformerModel> model_;
  std::unique_ptr<TransformerModel> draft_;
};

TEST_F(ReferenceSpeculationTest, ResultsAreThoseWithoutDrafts) {
  const auto plain = RunAll(requests_);
  std::vector<Request> requests = requests_;
  constexpr SpeculationMethod kMethods[] = {SpeculationMethod::kDraft,
                                            SpeculationMethod::kNgram,
                                            SpeculationMethod::kSuffix};
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].params.speculate = {
        .method = kMethods[i % 3],
        .num_tokens = 1 + static_cast<int>(i / 3 % 8)};
  }
  const auto speculated = RunAll(requests);
  int64_t num_steps[3] = {};
  int64_t num_plain_steps[3] = {};
  int64_t num_drafted[3] = {};
  int64_t num_accepted[3] = {};
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE("line " + std::to_string(i));
    ASSERT_OK(plain[i]);
    ASSERT_OK(speculated[i]);
    EXPECT_TRUE(SameHypotheses(*plain[i], *speculated[i]));
    num_steps[i % 3] += speculated[i]->usage.num_steps;
    num_plain_steps[i % 3] += plain[i]->usage.num_steps;
    num_drafted[i % 3] += speculated[i]->usage.num_drafted_tokens;
    num_accepted[i % 3] += speculated[i]->usage.num_accepted_tokens;
  }
  for (int i = 0; i < 3; ++i) {
    std::printf(
        "%s: %d steps instead of %d, %d tokens accepted of %d\n",
        std::string(NameOf(kMethods[i])).c_str(),
        static_cast<int>(num_steps[i]), static_cast<int>(num_plain_steps[i]),
        static_cast<int>(num_accepted[i]), static_cast<int>(num_drafted[i]));
  }
  EXPECT_LT(num_steps[0], num_plain_steps[0] * 9 / 10);
}

}  // namespace
}  // namespace espalier
