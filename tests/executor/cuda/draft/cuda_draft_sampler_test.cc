// Launches of a run of a draft model, recorded on the host: kernels that start
// early follow each other as base/grid_dependency.h requires, and rows of
// logits live as long as a handle to them. Needs no device.
#include "executor/cuda/draft/cuda_draft_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "tests/cuda_dry_run.h"
#include "tests/executor/cuda/fake_cuda_model.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

class CudaDraftSamplerTest : public ::testing::Test {
 protected:
  CudaDraftSamplerTest() { BeginDryRun(90); }
  ~CudaDraftSamplerTest() override { FailDryCall(-1, cudaSuccess); }

  // Adds sequences with drafts of `num_tokens` each; every other one feeds two
  // tokens.
  void AddSequences(int count, int num_tokens, bool by_rejection) {
    auto params = std::make_shared<SelectionParams>();
    params->verify_mode =
        by_rejection ? VerifyMode::kRejection : VerifyMode::kCoupled;
    for (int i = 0; i < count; ++i) {
      const int num_fed = 1 + i % 2;
      plan_.rows.push_back(
          {.first_token = static_cast<int>(plan_.tokens.size()),
           .num_tokens = num_fed,
           .first_position = 3,
           .num_logits = 1});
      plan_.tokens.resize(plan_.tokens.size() + num_fed, 5);
      plan_.page_indices.push_back(PageId{i % 99});
      plan_.page_indptr.push_back(static_cast<int>(plan_.page_indices.size()));
      owned_.push_back(std::make_unique<DraftSequence>(
          DraftSequence{.request = RequestId{i},
                        .prompt = nullptr,
                        .generated = {5, 5},
                        .num_tokens = num_tokens,
                        .params = params}));
      sequences_.push_back(owned_.back().get());
    }
  }
  void Clear() {
    plan_ = {};
    owned_.clear();
    sequences_.clear();
  }

  const std::shared_ptr<FakeCudaModel> model_ =
      std::make_shared<FakeCudaModel>(HopperDevice(0));
  StepPlan plan_;
  std::vector<std::unique_ptr<DraftSequence>> owned_;
  std::vector<const DraftSequence*> sequences_;
};

// A pending run occupies a buffer until its tokens are released; without a free
// buffer, Start() waits for the run.
TEST_F(CudaDraftSamplerTest, RunsThatAreStartedTakeTurns) {
  ASSERT_OK_AND_ASSIGN(const auto sampler,
                       CudaDraftSampler::Create(model_, {.max_graphs = 0}));
  AddSequences(3, 4, /*by_rejection=*/false);
  std::vector<std::vector<SampledDraft>> held;
  std::set<const TokenId*> places;
  while (true) {
    ASSERT_OK_AND_ASSIGN(auto drafts, sampler->Start(plan_, sequences_));
    ASSERT_EQ(drafts.size(), 3u);
    if (drafts[0].pending.empty()) {
      EXPECT_EQ(drafts[0].tokens.size(), 4u);
      break;
    }
    for (const SampledDraft& draft : drafts) {
      EXPECT_TRUE(draft.tokens.empty());
      EXPECT_EQ(draft.pending.num_tokens(), 4);
      EXPECT_TRUE(places.insert(draft.pending.tokens()).second);
    }
    held.push_back(std::move(drafts));
    ASSERT_LE(held.size(), 10u);
  }
  EXPECT_GE(held.size(), 2u);
  EXPECT_EQ(sampler->counts().num_pending_runs, std::ssize(held));
  held.pop_back();
  ASSERT_OK_AND_ASSIGN(const auto drafts, sampler->Start(plan_, sequences_));
  EXPECT_FALSE(drafts[0].pending.empty());
  ASSERT_OK_AND_ASSIGN(const absl::Duration time, sampler->Wait());
  EXPECT_GT(time, absl::ZeroDuration());
  ASSERT_OK_AND_ASSIGN(const absl::Duration again, sampler->Wait());
  EXPECT_EQ(again, absl::ZeroDuration());
  for (const DryLaunch& launch : TakeDryLaunches()) {
    EXPECT_TRUE(launch.starts_early);
  }
}

TEST_F(CudaDraftSamplerTest, ARunThatCannotBeStartedIsAnError) {
  ASSERT_OK_AND_ASSIGN(const auto sampler,
                       CudaDraftSampler::Create(model_, {.max_graphs = 0}));
  AddSequences(3, 4, /*by_rejection=*/true);
  const int num_free = sampler->num_free_rows();
  int num_failed = 0;
  for (int num_good = 0;; ++num_good) {
    FailDryCall(num_good, cudaErrorLaunchFailure);
    const auto drafts = sampler->Start(plan_, sequences_);
    const auto waited = sampler->Wait();
    FailDryCall(-1, cudaSuccess);
    if (drafts.ok() && waited.ok()) break;
    ++num_failed;
    EXPECT_EQ(sampler->num_free_rows() + (drafts.ok() ? 12 : 0), num_free);
  }
  EXPECT_GT(num_failed, 5);
  ASSERT_OK(sampler->Start(plan_, sequences_).status());
}

TEST_F(CudaDraftSamplerTest, KernelsOfARunAreInOrder) {
  ASSERT_OK_AND_ASSIGN(const auto sampler,
                       CudaDraftSampler::Create(model_, {.max_graphs = 0}));
  for (const int count : {1, 2, 5, 33, 64, 65}) {
    Clear();
    AddSequences(count, 3, count % 2 == 0);
    plan_.page_copies = {{PageId{1}, PageId{2}, 3}};
    const size_t num_calls = model_->batches().size();
    ASSERT_OK_AND_ASSIGN(const auto drafts, sampler->Sample(plan_, sequences_));
    ASSERT_EQ(drafts.size(), static_cast<size_t>(count));
    for (const SampledDraft& draft : drafts) {
      EXPECT_EQ(draft.tokens.size(), 3u);
    }
    // The model takes 64 rows of logits.
    EXPECT_EQ(model_->batches().size() - num_calls, count > 64 ? 6u : 3u);
  }
  for (const DryLaunch& launch : TakeDryLaunches()) {
    EXPECT_TRUE(launch.starts_early);
  }
}

TEST_F(CudaDraftSamplerTest, TheFirstStepFeedsTwoTokensWhereSomeRowDoes) {
  ASSERT_OK_AND_ASSIGN(const auto sampler,
                       CudaDraftSampler::Create(model_, {.max_graphs = 0}));
  AddSequences(1, 3, true);
  ASSERT_OK(sampler->Sample(plan_, sequences_).status());
  AddSequences(2, 3, true);
  ASSERT_OK(sampler->Sample(plan_, sequences_).status());
  std::vector<int> num_tokens;
  for (const CudaBatch& batch : model_->batches()) {
    num_tokens.push_back(batch.num_tokens);
  }
  EXPECT_THAT(num_tokens, ::testing::ElementsAre(1, 1, 1, 8, 4, 4));
}

TEST_F(CudaDraftSamplerTest, RowsAreKeptAsLongAsTheirLogits) {
  // Room for 21 rows.
  ASSERT_OK_AND_ASSIGN(
      const auto sampler,
      CudaDraftSampler::Create(
          model_, {.max_graphs = 0, .kept_logits_bytes = 21 * 32000 * 4}));
  AddSequences(8, 3, true);
  ASSERT_OK_AND_ASSIGN(auto drafts, sampler->Sample(plan_, sequences_));
  EXPECT_EQ(sampler->num_free_rows(), 0);
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(drafts[i].logits.size(), size_t{3} * 32000);
    EXPECT_EQ(drafts[i].logits.device(), 0);
  }
  EXPECT_TRUE(drafts[7].logits.empty());
  EXPECT_EQ(drafts[1].logits.data() - drafts[0].logits.data(), 3 * 32000);
  const DraftLogits one = drafts[2].logits.First(32000);
  drafts.clear();
  EXPECT_EQ(sampler->num_free_rows(), 18);
  Clear();
  AddSequences(8, 3, false);
  ASSERT_OK_AND_ASSIGN(drafts, sampler->Sample(plan_, sequences_));
  EXPECT_TRUE(drafts[0].logits.empty());
  EXPECT_EQ(sampler->num_free_rows(), 18);
}

TEST_F(CudaDraftSamplerTest, ARunFailsWithItsCallAndTheNextRuns) {
  AddSequences(5, 2, true);
  plan_.page_copies = {{PageId{1}, PageId{2}, 3}};
  for (int num_good = 0;; ++num_good) {
    SCOPED_TRACE(num_good);
    ASSERT_OK_AND_ASSIGN(const auto sampler,
                         CudaDraftSampler::Create(model_, {.max_graphs = 0}));
    const int num_free = sampler->num_free_rows();
    FailDryCall(num_good, cudaErrorUnknown);
    const absl::Status status = sampler->Sample(plan_, sequences_).status();
    const bool has_failed = HasDryCallFailed();
    FailDryCall(-1, cudaSuccess);
    EXPECT_EQ(status.ok(), !has_failed);
    EXPECT_EQ(sampler->num_free_rows(), num_free);
    EXPECT_OK(sampler->Sample(plan_, sequences_).status());
    if (!has_failed) break;
  }
}

TEST_F(CudaDraftSamplerTest, WithoutMemoryThereIsNone) {
  int num_good = 0;
  for (;; ++num_good) {
    FailDryCall(num_good, cudaErrorMemoryAllocation);
    const auto made = CudaDraftSampler::Create(model_);
    if (!HasDryCallFailed()) {
      EXPECT_OK(made.status());
      break;
    }
    EXPECT_EQ(made.status().code(), absl::StatusCode::kResourceExhausted)
        << num_good << ": " << made.status();
  }
  EXPECT_GT(num_good, 5);
}

}  // namespace
}  // namespace espalier::testing
