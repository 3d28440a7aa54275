// Calls of the CUDA runtime that fail, one after the other: making an executor
// fails and leaves nothing, a step fails with the call's error, and the
// executor runs the next. Needs no device.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "executor/cuda/cuda_executor.h"
#include "tests/cuda_dry_run.h"
#include "tests/executor/cuda/fake_cuda_model.h"
#include "tests/executor/plan_source.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kPageSizeOfFake = 16;

StepPlan PromptOf(PlanSource* source, RequestId request) {
  source->AddRow(std::vector<TokenId>{5, 6, 7}, 1);
  source->AddSelection(request, 1, 2, PlanSelection::DefaultParams()).choice =
      BeamSelection{.num_candidates = 4};
  return source->Take();
}

absl::StatusOr<StepResult> RunStepDry(StepExecutor& steps, StepPlan plan) {
  std::promise<absl::StatusOr<StepResult>> promise;
  steps.Execute(std::move(plan), [&](absl::StatusOr<StepResult> result) {
    promise.set_value(std::move(result));
  });
  return promise.get_future().get();
}

absl::StatusOr<std::unique_ptr<CudaExecutor>> MakeDry(
    std::shared_ptr<FakeCudaModel> model) {
  return CudaExecutor::Create(std::move(model), {.max_graphs = 0});
}

class CudaLaunchFaultsTest : public ::testing::Test {
 protected:
  CudaLaunchFaultsTest() { BeginDryRun(90); }
  ~CudaLaunchFaultsTest() override { FailDryCall(-1, cudaSuccess); }
};

TEST_F(CudaLaunchFaultsTest, WithoutMemoryNoExecutorIsMade) {
  int num_good = 0;
  for (;; ++num_good) {
    FailDryCall(num_good, cudaErrorMemoryAllocation);
    const auto made = MakeDry(std::make_shared<FakeCudaModel>(HopperDevice(0)));
    if (!HasDryCallFailed()) {
      EXPECT_OK(made.status());
      break;
    }
    EXPECT_EQ(made.status().code(), absl::StatusCode::kResourceExhausted)
        << num_good << ": " << made.status();
  }
  EXPECT_GT(num_good, 10);
}

// Tests a step that feeds a prompt, and one that continues a group.
TEST_F(CudaLaunchFaultsTest, AStepFailsWithItsCallAndTheNextRuns) {
  for (const bool goes_on : {false, true}) {
    int num_good = 0;
    int num_run = 0;  // failures after the step had run
    for (;; ++num_good) {
      SCOPED_TRACE(::testing::Message() << "after " << num_good << " calls");
      const auto model = std::make_shared<FakeCudaModel>(HopperDevice(0));
      ASSERT_OK_AND_ASSIGN(const auto steps, MakeDry(model));
      PlanSource source{kPageSizeOfFake};
      StepPlan plan = PromptOf(&source, RequestId{1});
      const PlanSelection selection = plan.selections[0];
      if (goes_on) {
        ASSERT_OK(RunStepDry(*steps, std::move(plan)));
        source.Continue(selection);
        plan = source.Take();
      }
      FailDryCall(num_good, cudaErrorLaunchFailure);
      const absl::StatusOr<StepResult> result =
          RunStepDry(*steps, std::move(plan));
      const bool has_failed = HasDryCallFailed();
      FailDryCall(-1, cudaSuccess);
      if (!has_failed) {
        EXPECT_OK(result);
        break;
      }
      EXPECT_THAT(result.status(), StatusIs(absl::StatusCode::kInternal,
                                            HasSubstr("unspecified launch")));
      // The group's state is lost and nothing is fed, except after the call
      // that fails when the step has run.
      const size_t num_fed = model->batches().size();
      source.Continue(selection);
      ASSERT_OK_AND_ASSIGN(const StepResult lost,
                           RunStepDry(*steps, source.Take()));
      ASSERT_EQ(lost.selections.size(), 1u);
      const bool has_run =
          result.status().message().find("a step on the device") !=
          absl::string_view::npos;
      num_run += has_run ? 1 : 0;
      EXPECT_EQ(model->batches().size() > num_fed, has_run);
      PlanSource other{kPageSizeOfFake};
      EXPECT_OK(RunStepDry(*steps, PromptOf(&other, RequestId{2})));
    }
    EXPECT_GT(num_good, 3);
    EXPECT_EQ(num_run, 1);
  }
}

}  // namespace
}  // namespace espalier::testing
