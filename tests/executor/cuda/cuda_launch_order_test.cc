// Launches of a step, recorded on the host: in every step, kernels that start
// early follow each other as base/grid_dependency.h requires, and code that
// cannot wait is launched neither early nor in clusters. Needs no device.
#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "executor/cuda/cuda_graph_runner.h"
#include "executor/cuda/step/cuda_fork.h"
#include "kernels/constrain/cuda_token_masks.h"
#include "kernels/kv_cache/cuda_cache_engine.h"
#include "kernels/matmul/cuda_skinny_matmul.h"
#include "tests/cuda_dry_run.h"
#include "tests/executor/cuda/fake_cuda_model.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

constexpr int kMaxRows = 64;
constexpr int kMaxTokens = 256;

// A runner without a device.
class DryRunner {
 public:
  explicit DryRunner(int capability, bool has_barrier = true)
      : model_(HopperDevice(0), has_barrier), stream_(BeginDryRun(capability)) {
    model_.AddEncoder();
    const CudaStepLimits limits = {.max_rows = kMaxRows,
                                   .max_tokens = kMaxTokens,
                                   .num_slots = 2 * kMaxRows,
                                   .table_stride = 32,
                                   .source_stride = 4,
                                   .num_pages = 100,
                                   .max_candidates = 2000,
                                   .max_edits = 1000,
                                   .max_best_tokens = 500,
                                   .max_items = 1000,
                                   .max_partials = 1000};
    auto memory = CudaStepMemory::Create(limits, PageId{99}, 16);
    CHECK(memory.ok());
    memory_ = std::make_unique<CudaStepMemory>(*std::move(memory));
    cache_.emplace(model_.cache(),
                   CudaPageTokens{memory_->arrays().state.page_tokens, 16},
                   model_.device());
    auto runner = CudaGraphRunner::Create(
        &model_, &*cache_, memory_.get(),
        {.max_groups = kMaxRows, .max_candidates = 2000}, {}, /*max_graphs=*/0,
        stream_, &constraints_);
    CHECK(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }

  absl::Status Run(const CudaStep& step) {
    const CudaBeamState& state = memory_->arrays().state;
    for (const CudaGroupMove& move : step.moves) {
      RETURN_IF_ERROR(
          CudaMoveGroup(state, move.from, move.to, move.num_slots, stream_));
    }
    RETURN_IF_ERROR(CudaApplyStagedWrites(nullptr, 1, nullptr, memory_->words(),
                                          state.clock, stream_));
    return runner_->Enqueue(step);
  }

 private:
  FakeCudaModel model_;
  cudaStream_t stream_;
  const CudaConstraint constraints_ = {};  // no kernel reads them
  std::unique_ptr<CudaStepMemory> memory_;
  std::optional<CudaCacheEngine> cache_;
  std::unique_ptr<CudaGraphRunner> runner_;
};

// Any step, of all kinds of choice and mixtures of them.
CudaStep AnyStep() {
  const auto upto = [](int bound) { return *rc::gen::inRange(0, bound + 1); };
  const auto maybe = [&](int bound) {
    return upto(1) == 0 ? 0 : 1 + upto(bound - 1);
  };
  CudaStep step;
  step.is_replayable = upto(1) == 0;
  CudaStepShape& shape = step.shape;
  // None, with a row at least, where all tokens are of drafts.
  shape.num_rows = upto(kMaxRows);
  const int most = step.is_replayable ? kMaxRows : kMaxTokens;
  shape.num_tokens =
      std::clamp(shape.num_rows + std::max(0, upto(120) - 20), 1, most);
  shape.num_logits_rows = std::min(kMaxRows, shape.num_tokens);
  shape.max_groups = 1 + upto(shape.num_logits_rows - 1);
  shape.max_candidates = maybe(100);
  shape.max_group_rows = 1 + upto(shape.num_logits_rows - 1);
  shape.max_draws = maybe(shape.num_logits_rows);
  shape.max_gumbel_top_k = maybe(40);
  shape.max_asked = maybe(100);
  shape.max_best = shape.max_asked > 0 ? maybe(5) : 0;
  shape.max_copies = maybe(shape.num_logits_rows);
  shape.max_verified = maybe(shape.num_logits_rows);
  shape.num_verify_rows =
      shape.max_verified == 0
          ? 0
          : std::min(kMaxRows, shape.num_logits_rows + upto(20));
  shape.verifies_draft_rows = upto(1) == 0;
  shape.verifies_filtered = upto(1) == 0;
  shape.has_edits = upto(1) == 0;
  shape.has_masks = shape.has_edits && upto(1) == 0;
  shape.has_state_masks = shape.has_masks && upto(1) == 0;
  shape.has_item_masks = shape.has_masks && upto(1) == 0;
  shape.has_pushdown_masks = shape.has_masks && upto(1) == 0;
  shape.has_device_edits = shape.has_edits && upto(1) == 0;
  shape.has_partials = upto(1) == 0;
  shape.has_cross_partials = upto(1) == 0;
  for (int i = step.is_replayable ? 0 : maybe(9); i > 0; --i) {
    step.sources.push_back({.input = std::make_shared<const EncoderInput>(
                                std::vector<TokenId>(64))});
  }
  if (upto(9) == 0) step.moves.push_back({5, 2, 2});
  for (int i = upto(3); i > 0; --i) {
    const auto tokens = std::make_shared<const TokenId>(7);
    step.placed_drafts.push_back({PendingDraft(tokens, 1, 1), i});
    if (upto(1) == 0) step.unread_rows.push_back({step.placed_drafts[0].draft});
  }
  return step;
}

RC_GTEST_PROP(CudaLaunchOrderTest, KernelsOfAnyStepsAreInOrder, ()) {
  DryRunner runner(90);
  for (int i = 0; i < 5; ++i) {
    const absl::Status status = runner.Run(AnyStep());
    if (!status.ok()) RC_FAIL(std::string(status.message()));
  }
  const std::vector<DryLaunch> launches = TakeDryLaunches();
  RC_ASSERT(launches.size() > 20u);
  for (const DryLaunch& launch : launches) RC_ASSERT(launch.starts_early);
}

// Uses a thread per case, because a thread caches a kernel's compiled
// architecture.
template <typename Body>
void OnThread(const Body& body) {
  std::thread(body).join();
}

CudaStep StepOfEverything() {
  CudaStep step;
  step.shape = {.num_rows = 4,
                .num_tokens = 9,
                .num_logits_rows = 4,
                .max_groups = 2,
                .max_candidates = 8,
                .max_group_rows = 2,
                .max_draws = 2,
                .max_gumbel_top_k = 4,
                .max_asked = 3,
                .max_best = 2,
                .max_copies = 2,
                .max_verified = 2,
                .num_verify_rows = 6,
                .verifies_draft_rows = true,
                .has_edits = true,
                .has_masks = true,
                .has_state_masks = true,
                .has_item_masks = true,
                .has_pushdown_masks = true,
                .has_partials = true,
                .has_cross_partials = true};
  step.sources.push_back({.input = std::make_shared<const EncoderInput>(
                              std::vector<TokenId>(20))});
  return step;
}

TEST(CudaLaunchOrderTest, CodeThatCannotWaitStartsNeitherEarlyNorInClusters) {
  const auto num_clusters = [](const std::vector<DryLaunch>& launches) {
    return std::ranges::count_if(
        launches, [](const DryLaunch& launch) { return launch.cluster > 1; });
  };
  OnThread([&] {
    DryRunner runner(90);
    EXPECT_OK(runner.Run(StepOfEverything()));
    EXPECT_GT(num_clusters(TakeDryLaunches()), 2);
  });
  OnThread([&] {
    DryRunner runner(80);
    EXPECT_OK(runner.Run(StepOfEverything()));
    const std::vector<DryLaunch> launches = TakeDryLaunches();
    EXPECT_EQ(num_clusters(launches), 0);
    EXPECT_EQ(std::ranges::count_if(
                  launches,
                  [](const DryLaunch& launch) { return launch.starts_early; }),
              0);
  });
}

// With clusters the product is split in two. Without them it stays whole,
// because a single block would add partial sums that no block has sent.
TEST(CudaLaunchOrderTest, ProductsAreDividedOnlyAmongBlocksThatExchangeSums) {
  const CudaMatrix w = {nullptr, DType::kBFloat16, 768, 3072};
  for (const int capability : {80, 90, 100}) {
    OnThread([&] {
      const cudaStream_t stream = BeginDryRun(capability);
      EXPECT_OK(SkinnyMatMul(nullptr, 4, w, CudaEpilogue::kStore, nullptr,
                             HopperDevice(0), stream));
      const std::vector<DryLaunch> launches = TakeDryLaunches();
      ASSERT_EQ(launches.size(), 1u);
      const int blocks = capability >= 90 ? 2 : 1;
      EXPECT_EQ(launches[0].cluster, blocks);
      EXPECT_EQ(launches[0].grid.x, blocks);
      EXPECT_EQ(launches[0].starts_early, capability >= 90);
    });
  }
}

TEST(CudaLaunchOrderTest, AForwardPassWithoutItsBarrierIsRefused) {
  DryRunner runner(90, /*has_barrier=*/false);
  EXPECT_THAT(
      runner.Run(StepOfEverything()),
      StatusIs(absl::StatusCode::kInternal, ::testing::HasSubstr("barrier")));
}

TEST(CudaLaunchOrderTest, AForkWithoutItsBarrierIsRefused) {
  const cudaStream_t stream = BeginDryRun(90);
  auto fork = CudaFork::Create();
  ASSERT_OK(fork.status());
  EXPECT_OK(fork->Begin(stream, [](cudaStream_t beside) {
    return CudaFindMasks({.vocab_size = 1, .num_rows = 1}, 0, nullptr, nullptr,
                         1, beside);
  }));
  EXPECT_THAT(fork->Join(stream), StatusIs(absl::StatusCode::kInternal,
                                           ::testing::HasSubstr("barrier")));
  EXPECT_OK(fork->Begin(stream, &CudaEndMasks));
  EXPECT_OK(fork->Join(stream));
}

}  // namespace
}  // namespace espalier::testing
