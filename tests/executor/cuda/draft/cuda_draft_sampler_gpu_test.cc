// A draft model on a device drafts the same, with the same rows of logits,
// whether the device draws or the host. In float32; where a number of chance is
// within rounding of a border between two tokens they may differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "executor/cuda/cuda_blocking_model.h"
#include "executor/cuda/draft/cuda_draft_sampler.h"
#include "executor/drafts/draft_model.h"
#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/executor/growing_texts.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

class CudaDraftSamplerGpuTest : public CudaExecutorTest {
 protected:
  struct Drafting {
    std::shared_ptr<CudaDraftSampler> sampler;  // or null
    std::unique_ptr<DraftModel> model;
  };

  // In calls of up to `max_rows` sequences.
  static Drafting Load(int max_rows, bool has_sampler,
                       int max_graphs = CudaDraftSamplerOptions().max_graphs) {
    CudaTransformerOptions options = Float32();
    options.max_tokens = 2 * max_rows + 1;
    options.max_logits = max_rows;
    options.kv_cache_bytes = int64_t{64} << 20;
    auto transformer =
        CudaTransformer::Load(SourcePath("models/en-fr"), options, *device_);
    EXPECT_OK(transformer.status());
    const std::shared_ptr<CudaModel> loaded = *std::move(transformer);
    auto model = CudaBlockingModel::Create(loaded);
    EXPECT_OK(model.status());
    Drafting drafting;
    if (has_sampler) {
      auto sampler =
          CudaDraftSampler::Create(loaded, {.max_graphs = max_graphs});
      EXPECT_OK(sampler.status());
      drafting.sampler = *std::move(sampler);
    }
    auto draft =
        DraftModel::Create(*std::move(model), *pool_, drafting.sampler);
    EXPECT_OK(draft.status());
    drafting.model = *std::move(draft);
    return drafting;
  }

  static size_t FreeMemory() {
    size_t free = 0, total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return free;
  }

  static std::vector<float> OnTheHost(const DraftLogits& logits) {
    std::vector<float> values(logits.size());
    EXPECT_EQ(cudaMemcpy(values.data(), logits.data(),
                         values.size() * sizeof(float), cudaMemcpyDefault),
              cudaSuccess);
    return values;
  }

  static int NumFar(const DraftLogits& a, const DraftLogits& b) {
    EXPECT_EQ(a.size(), b.size());
    if (a.size() != b.size()) return 1;
    const std::vector<float> x = OnTheHost(a);
    const std::vector<float> y = OnTheHost(b);
    int num_far = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      num_far += !(std::abs(x[i] - y[i]) < 2e-3f);
    }
    return num_far;
  }
};

TEST_F(CudaDraftSamplerGpuTest, DraftsAreThoseThatTheHostDraws) {
  const int vocab_size = host_->description().vocab_size;
  int num_drafts = 0;
  int num_different = 0;
  int num_far = 0;
  int64_t num_logits = 0;
  for (const int max_rows : {1, 5, 16, 40}) {
    const Drafting expecting = Load(max_rows, false);
    const Drafting sampling = Load(max_rows, true);
    const int num_free = sampling.sampler->num_free_rows();
    const size_t free_memory = FreeMemory();
    for (int seed = 0; seed < Cases(6, 2); ++seed) {
      GrowingTexts texts(seed, vocab_size, 10);
      for (int step = 0; step < 12; ++step) {
        const StepPlan plan = texts.Plan();
        auto expected = expecting.model->Run(plan);
        auto actual = sampling.model->Run(plan);
        ASSERT_OK(expected.status());
        ASSERT_OK(actual.status());
        for (size_t i = 0; i < plan.drafting.size(); ++i) {
          const DraftedTokens& a = (*expected)[i];
          const DraftedTokens& b = (*actual)[i];
          ASSERT_EQ(a.is_behind, b.is_behind);
          ASSERT_EQ(a.logits.empty(), b.logits.empty());
          num_drafts += !a.tokens.empty();
          if (a.tokens != b.tokens) {
            ++num_different;
            continue;
          }
          num_far += NumFar(a.logits, b.logits);
          num_logits += static_cast<int64_t>(a.logits.size());
        }
        texts.Grow(*expected);
      }
    }
    const CudaDraftSampler::Counts counts = sampling.sampler->counts();
    std::printf(
        "%d rows: %ld runs, %ld graph launches of %d graphs; of memory, with "
        "what others took meanwhile, %.1f MiB\n",
        max_rows, counts.num_runs, counts.num_graph_launches, counts.num_graphs,
        (static_cast<double>(free_memory) - static_cast<double>(FreeMemory())) /
            (1 << 20));
    EXPECT_GE(counts.num_graph_launches, counts.num_runs);
    EXPECT_LT(counts.num_graphs, CudaDraftSamplerOptions().max_graphs);
    EXPECT_EQ(sampling.sampler->num_free_rows(), num_free);
  }
  std::printf("%d of %d drafts different, %d of %ld logits far\n",
              num_different, num_drafts, num_far, num_logits);
  EXPECT_GT(num_drafts, Cases(1000, 200));
  EXPECT_LE(num_different, num_drafts / 100);
  EXPECT_EQ(num_far, 0);
  EXPECT_GT(num_logits, 0);
}

// Replayed or not, alone or beside others: to the bit, for a graph enqueues the
// same. Drafts are of more tokens than a graph has steps.
TEST_F(CudaDraftSamplerGpuTest, GraphsDraftWhatStepsWithoutThemDo) {
  const Drafting replaying = Load(16, true);
  const Drafting eager = Load(16, true, 0);
  GrowingTexts texts(7, host_->description().vocab_size, 10, 21);
  for (int step = 0; step < Cases(20, 8); ++step) {
    const StepPlan plan = texts.Plan();
    auto expected = eager.model->Run(plan);
    auto actual = replaying.model->Run(plan);
    ASSERT_OK(expected.status());
    ASSERT_OK(actual.status());
    for (size_t i = 0; i < plan.drafting.size(); ++i) {
      ASSERT_EQ((*expected)[i].tokens, (*actual)[i].tokens);
      ASSERT_EQ(OnTheHost((*expected)[i].logits),
                OnTheHost((*actual)[i].logits));
    }
    texts.Grow(*expected);
  }
  EXPECT_EQ(eager.sampler->counts().num_graph_launches, 0);
}

TEST_F(CudaDraftSamplerGpuTest, ALaunchTakesAPowerOfTwoOfSteps) {
  const Drafting drafting = Load(40, true);
  GrowingTexts texts(9, host_->description().vocab_size, 10);
  for (const auto& [num_tokens, num_launches] :
       {std::pair(1, 1), std::pair(4, 1), std::pair(7, 3), std::pair(8, 1),
        std::pair(13, 3), std::pair(16, 2)}) {
    StepPlan plan = texts.Plan();
    for (DraftSequence& sequence : plan.drafting) {
      sequence.num_tokens = num_tokens;
    }
    const CudaDraftSampler::Counts before = drafting.sampler->counts();
    const auto drafts = drafting.model->Run(plan);
    ASSERT_OK(drafts.status());
    const CudaDraftSampler::Counts after = drafting.sampler->counts();
    const int64_t num_runs = after.num_runs - before.num_runs;
    EXPECT_GT(num_runs, 0);
    EXPECT_EQ(after.num_graph_launches - before.num_graph_launches,
              num_runs * num_launches)
        << num_tokens;
    texts.Grow(*drafts);
  }
}

// Waited for or not: to the bit.
TEST_F(CudaDraftSamplerGpuTest, PendingDraftsAreThoseThatAreWaitedFor) {
  const Drafting waiting = Load(40, true);
  const Drafting pending = Load(40, true);
  GrowingTexts texts(8, host_->description().vocab_size, 10);
  for (int step = 0; step < Cases(20, 8); ++step) {
    StepPlan plan = texts.Plan();
    auto expected = waiting.model->Run(plan);
    for (DraftSequence& sequence : plan.drafting) {
      sequence.verified_by = {0, 0, 0};
    }
    auto actual = pending.model->Run(plan, /*may_pend=*/true);
    ASSERT_OK(expected.status());
    ASSERT_OK(actual.status());
    ASSERT_OK(pending.sampler->Wait().status());
    for (size_t i = 0; i < plan.drafting.size(); ++i) {
      DraftedTokens& draft = (*actual)[i];
      if (!draft.pending.empty()) {
        const SelectionParams& params = *plan.drafting[i].params;
        draft.pending.EndAt(params.processors.eos_token_ids,
                            NeedsDraftLogits(params));
        draft.tokens = draft.pending.Tokens();
      }
      ASSERT_EQ((*expected)[i].tokens, draft.tokens);
      std::vector<float> logits = OnTheHost(draft.logits);
      logits.resize((*expected)[i].logits.size());
      ASSERT_EQ(OnTheHost((*expected)[i].logits), logits);
    }
    texts.Grow(*expected);
  }
  EXPECT_GT(pending.sampler->counts().num_pending_runs, Cases(10, 4));
}

}  // namespace
}  // namespace espalier::testing
