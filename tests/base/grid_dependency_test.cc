#include "base/grid_dependency.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "tests/status_matchers.h"

namespace espalier {
namespace {

using enum GridDependency;

absl::Status AddAll(const std::vector<GridDependency>& kernels) {
  GridDependencyOrder order;
  for (const GridDependency kernel : kernels) {
    if (const absl::Status status = order.Add(kernel); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

TEST(GridDependencyOrderTest, AStepIsInOrder) {
  // A delta, the beginning of a step, its tail copies and edits; the forward
  // pass; selection; the beams advance; and the next step.
  EXPECT_TRUE(AddAll({kWritesEarlyRead, kWritesEarlyRead, kWritesEarlyRead,
                      kWritesEarlyRead, kBarrier, kWaitsFirst, kReadsEarly,
                      kReadsEarly, kWaitsFirst, kReadsEarly, kWritesEarlyRead,
                      kWritesEarlyRead, kBarrier, kReadsEarly})
                  .ok());
}

TEST(GridDependencyOrderTest, WithoutABarrierAnEarlyReadIsRefused) {
  EXPECT_THAT(AddAll({kBarrier, kWritesEarlyRead, kWaitsFirst, kReadsEarly}),
              testing::StatusIs(absl::StatusCode::kInternal,
                                ::testing::HasSubstr("barrier")));
}

TEST(GridDependencyOrderTest, ARefusedKernelLeavesTheOrderAsItWas) {
  GridDependencyOrder order;
  ASSERT_TRUE(order.Add(kWritesEarlyRead).ok());
  EXPECT_FALSE(order.Add(kReadsEarly).ok());
  EXPECT_FALSE(order.Add(kReadsEarly).ok());
  ASSERT_TRUE(order.Add(kBarrier).ok());
  EXPECT_TRUE(order.Add(kReadsEarly).ok());
}

// Against the definition: looks back from a kernel that reads early.
bool MayRead(const std::vector<GridDependency>& before) {
  for (auto kernel = before.rbegin(); kernel != before.rend(); ++kernel) {
    if (*kernel == kBarrier) return true;
    if (*kernel == kWritesEarlyRead) return false;
  }
  return true;
}

RC_GTEST_PROP(GridDependencyOrderTest, RefusesWhatTheDefinitionForbids,
              (const std::vector<uint8_t>& kinds)) {
  GridDependencyOrder order;
  std::vector<GridDependency> before;
  for (const uint8_t kind : kinds) {
    const auto kernel = static_cast<GridDependency>(kind % 4);
    const bool allowed = kernel != kReadsEarly || MayRead(before);
    RC_ASSERT(order.Add(kernel).ok() == allowed);
    if (allowed) before.push_back(kernel);
  }
}

}  // namespace
}  // namespace espalier
