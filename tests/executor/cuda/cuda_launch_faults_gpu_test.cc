// A launch that the device refuses ends the requests of its step, and the
// executor keeps running: afterwards all requests get the same results, to the
// bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/executor/cuda/failing_launches.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

class CudaLaunchFaultsGpuTest : public CudaExecutorTest {
 protected:
  void TearDown() override { FailLaunch(-1); }
};

TEST_F(CudaLaunchFaultsGpuTest, AFailedLaunchEndsItsStepAndTheNextRuns) {
  const std::vector<Request> requests = AnyRequests(Cases(30, 4), 11);
  const DriveOptions drive = {.num_in_flight = 2};
  for (const int max_graphs : {0, 1000}) {
    const OnDevice device =
        Load(Float32(), *device_, {.max_graphs = max_graphs});
    ASSERT_NE(device.steps, nullptr);
    const Answers expected = Drive(*device.steps, requests, drive);
    int num_failures = 0;
    int num_ended = 0;
    for (const int num_good : {0, 1, 2, 3, 5, 8, 13, 34, 89, 233}) {
      SCOPED_TRACE(::testing::Message() << max_graphs << " graphs, after "
                                        << num_good << " launches");
      FailLaunch(num_good);
      const Answers answers = Drive(*device.steps, requests, drive);
      num_failures += HasLaunchFailed() ? 1 : 0;
      FailLaunch(-1);
      for (const absl::StatusOr<Result>& answer : answers) {
        if (answer.ok()) continue;
        ++num_ended;
        EXPECT_EQ(answer.status().code(), absl::StatusCode::kInternal)
            << answer.status();
      }
      ExpectEqual(expected, Drive(*device.steps, requests, drive));
    }
    EXPECT_GT(num_failures, 3);
    EXPECT_GT(num_ended, 0);
  }
}

}  // namespace
}  // namespace espalier::testing
