// An executor meets a model through CudaModel alone: it runs any, several in
// one process, each on its own device and on no other. Needs no device.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "executor/cuda/cuda_executor.h"
#include "tests/cuda_dry_run.h"
#include "tests/executor/cuda/fake_cuda_model.h"
#include "tests/executor/plan_source.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int kFakePageSize = 16;

// Three tokens of a prompt, and then two beams.
StepPlan PlanOfAPrompt(PlanSource* source) {
  source->AddRow(std::vector<TokenId>{5, 6, 7}, 1);
  source->AddSelection(RequestId{1}, 1, 2, PlanSelection::DefaultParams())
      .choice = BeamSelection{.num_candidates = 4};
  return source->Take();
}

absl::StatusOr<StepResult> RunDry(StepExecutor& steps, StepPlan plan) {
  std::promise<absl::StatusOr<StepResult>> promise;
  steps.Execute(std::move(plan), [&](absl::StatusOr<StepResult> result) {
    promise.set_value(std::move(result));
  });
  return promise.get_future().get();
}

struct OnDryDevice {
  std::shared_ptr<FakeCudaModel> model;
  std::unique_ptr<CudaExecutor> steps;
  PlanSource source{kFakePageSize};
};

OnDryDevice MakeOnDryDevice(int ordinal) {
  OnDryDevice made;
  made.model = std::make_shared<FakeCudaModel>(HopperDevice(ordinal));
  auto steps = CudaExecutor::Create(made.model, {.max_graphs = 0});
  EXPECT_OK(steps.status());
  if (steps.ok()) made.steps = *std::move(steps);
  return made;
}

int CurrentDevice() {
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  return device;
}

TEST(CudaExecutorModelTest, RunsAModelThatItKnowsOnlyByItsInterface) {
  BeginDryRun(90);
  OnDryDevice on = MakeOnDryDevice(0);
  ASSERT_NE(on.steps, nullptr);
  EXPECT_EQ(on.steps->description().vocab_size, 32000);
  EXPECT_EQ(on.steps->description().limits.max_step_tokens, 256);
  EXPECT_EQ(on.steps->description().limits.max_beams, 64);
  EXPECT_EQ(on.steps->figures().memory[0].name, "fake weights");
  const StepPlan plan = PlanOfAPrompt(&on.source);
  const PlanSelection selection = plan.selections[0];
  ASSERT_OK_AND_ASSIGN(const StepResult result, RunDry(*on.steps, plan));
  EXPECT_EQ(result.selections.size(), 1u);
  on.source.Continue(selection);
  ASSERT_OK(RunDry(*on.steps, on.source.Take()).status());
  const std::vector<CudaBatch>& batches = on.model->batches();
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].num_tokens, 3);
  EXPECT_EQ(batches[0].num_logits, 1);
  EXPECT_EQ(batches[1].num_tokens, 2);
  EXPECT_EQ(batches[1].num_logits, 2);
  EXPECT_NE(batches[1].logits_tokens, nullptr);
}

OnDryDevice MakeOnDryDeviceWithEncoder() {
  OnDryDevice made;
  made.model = std::make_shared<FakeCudaModel>(HopperDevice(0));
  made.model->AddEncoder();
  auto steps = CudaExecutor::Create(made.model, {.max_graphs = 0});
  EXPECT_OK(steps.status());
  if (steps.ok()) made.steps = *std::move(steps);
  return made;
}

// The source takes a call of its own; then the group continues as usual.
TEST(CudaExecutorModelTest, ASourceIsReadAheadOfTheDecodersTokens) {
  BeginDryRun(90);
  OnDryDevice on = MakeOnDryDeviceWithEncoder();
  ASSERT_NE(on.steps, nullptr);
  const std::vector<TokenId> source(20, 7);
  on.source.AddRow(source, std::vector<TokenId>{1}, 1);
  const PlanSelection selection = on.source.AddSelection(
      RequestId{1}, 1, 2, PlanSelection::DefaultParams());
  ASSERT_OK(RunDry(*on.steps, on.source.Take()).status());
  on.source.Continue(selection);
  ASSERT_OK(RunDry(*on.steps, on.source.Take()).status());
  const std::vector<CudaBatch>& batches = on.model->batches();
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(batches[0].sources.num_tokens, 20);
  EXPECT_EQ(batches[0].num_tokens, 0);
  EXPECT_EQ(batches[0].cross_attention.tables,
            batches[1].cross_attention.tables);
  EXPECT_EQ(batches[1].sources.num_tokens, 0);
  EXPECT_EQ(batches[1].num_tokens, 1);
  EXPECT_EQ(batches[1].num_logits, 1);
  EXPECT_EQ(batches[1].cross_attention.max_queries, 1);
  EXPECT_EQ(batches[2].sources.num_tokens, 0);
  EXPECT_EQ(batches[2].num_tokens, 2);
  EXPECT_EQ(batches[2].cross_attention.max_queries, 2);
}

// A call of the model has room for 256 tokens of 16 pages.
TEST(CudaExecutorModelTest, SourcesOfAStepAreReadInAsManyCallsAsTheyTake) {
  BeginDryRun(90);
  OnDryDevice on = MakeOnDryDeviceWithEncoder();
  ASSERT_NE(on.steps, nullptr);
  for (int i = 0; i < 9; ++i) {
    const std::vector<TokenId> source(33, i);
    on.source.AddRow(source, std::vector<TokenId>{1}, 1);
    on.source.AddSelection(RequestId{i}, 1, 2, PlanSelection::DefaultParams());
  }
  ASSERT_OK(RunDry(*on.steps, on.source.Take()).status());
  std::vector<int> num_tokens;
  for (const CudaBatch& batch : on.model->batches()) {
    num_tokens.push_back(batch.sources.num_tokens);
  }
  EXPECT_THAT(num_tokens, ElementsAre(5 * 33, 4 * 33, 0));
  EXPECT_EQ(on.model->batches().back().num_tokens, 9);
}

// Some pages of a source may be lost while others are not: all of it is read
// again.
TEST(CudaExecutorModelTest, ASourceOfWhichAPartIsStoredIsReadAsAWhole) {
  BeginDryRun(90);
  OnDryDevice on = MakeOnDryDeviceWithEncoder();
  ASSERT_NE(on.steps, nullptr);
  const std::vector<TokenId> source(20, 7);
  on.source.AddRow(source, std::vector<TokenId>{1}, 0);
  on.source.plan.sources[0].num_stored = 16;
  ASSERT_OK(RunDry(*on.steps, on.source.Take()).status());
  ASSERT_EQ(on.model->batches().size(), 2u);
  EXPECT_EQ(on.model->batches()[0].sources.num_tokens, 20);
  EXPECT_EQ(on.model->batches()[1].num_tokens, 1);
}

// The second and third as a model and its draft.
TEST(CudaExecutorModelTest, EachOfSeveralModelsRunsOnItsOwnDeviceAlone) {
  BeginDryRun(90);
  constexpr int kOrdinals[] = {1, 3, 3};
  std::vector<OnDryDevice> all;
  for (const int ordinal : kOrdinals) {
    all.push_back(MakeOnDryDevice(ordinal));
    ASSERT_NE(all.back().steps, nullptr);
    EXPECT_THAT(TakeDryDevices(), ElementsAre(ordinal));
    EXPECT_EQ(CurrentDevice(), 0);
  }
  for (int round = 1; round <= 2; ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_OK(RunDry(*all[i].steps, PlanOfAPrompt(&all[i].source)).status());
      EXPECT_THAT(TakeDryDevices(), ElementsAre(kOrdinals[i]));
      EXPECT_EQ(all[i].model->batches().size(), round);
    }
  }
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].steps.reset();
    EXPECT_THAT(TakeDryDevices(), ElementsAre(kOrdinals[i]));
    EXPECT_EQ(CurrentDevice(), 0);
  }
}

TEST(CudaExecutorModelTest, StepsOfSeveralModelsRunAtTheSameTime) {
  BeginDryRun(90);
  OnDryDevice one = MakeOnDryDevice(2);
  OnDryDevice other = MakeOnDryDevice(5);
  TakeDryDevices();
  std::vector<std::future<absl::Status>> done;
  for (OnDryDevice* const on : {&one, &other}) {
    done.push_back(std::async(std::launch::async, [on] {
      for (int i = 0; i < 20; ++i) {
        RETURN_IF_ERROR(
            RunDry(*on->steps, PlanOfAPrompt(&on->source)).status());
        if (CurrentDevice() != 0) return Internal("the device was changed");
      }
      return absl::OkStatus();
    }));
  }
  for (std::future<absl::Status>& status : done) EXPECT_OK(status.get());
  EXPECT_THAT(TakeDryDevices(), UnorderedElementsAre(2, 5));
  EXPECT_EQ(one.model->batches().size(), 20u);
  EXPECT_EQ(other.model->batches().size(), 20u);
}

TEST(CudaExecutorModelTest, GraphsAreNotNegative) {
  BeginDryRun(90);
  EXPECT_THAT(
      CudaExecutor::Create(std::make_shared<FakeCudaModel>(HopperDevice(0)),
                           {.max_graphs = -1})
          .status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "max_graphs must not be negative, got -1"));
  EXPECT_THAT(TakeDryDevices(), IsEmpty());
}

}  // namespace
}  // namespace espalier::testing
