// Copies and swaps up to their launches, without a device: lists longer than a
// launch takes, and host slots for which there is no memory.
#include "kernels/kv_cache/cuda_cache_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/cuda_dry_run.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using ::testing::_;
using ::testing::HasSubstr;

constexpr int kNumSlots = 300;

CudaDevice Device() {
  CudaDevice device;
  device.num_sms = 132;
  return device;
}

class CudaCacheEngineDryTest : public ::testing::Test {
 protected:
  ~CudaCacheEngineDryTest() override { FailDryCall(-1, cudaSuccess); }

  // Swaps each page to its slot and back.
  absl::Status SwapAll() {
    std::vector<PageSave> saves;
    std::vector<PageLoad> loads;
    for (int i = 0; i < kNumSlots; ++i) {
      saves.push_back({PageId{i}, HostSlotId{i}});
      loads.push_back({HostSlotId{i}, PageId{i}});
    }
    return engine_.SwapPages(saves, loads, stream_);
  }

  const cudaStream_t stream_ = BeginDryRun(90);
  CudaCacheEngine engine_{
      {.num_layers = 2, .num_pages = kNumSlots}, CudaPageTokens(), Device()};
};

TEST_F(CudaCacheEngineDryTest, ListsOfTheHostGoInPieces) {
  ASSERT_OK(engine_.ReserveCopyList());
  for (const auto& [num_copies, num_launches] :
       std::vector<std::pair<int, int>>{{0, 0}, {1024, 1}, {1025, 2}}) {
    const std::vector<PageCopy> copies(num_copies, {PageId{1}, PageId{2}, 3});
    ASSERT_OK(engine_.CopyPages(copies, stream_));
    EXPECT_EQ(std::ssize(TakeDryLaunches()), num_launches) << num_copies;
  }
}

TEST_F(CudaCacheEngineDryTest, FailedAdditionLeavesNoSlots) {
  int num_failed = 0;
  for (; num_failed < 100; ++num_failed) {
    FailDryCall(num_failed, cudaErrorMemoryAllocation);
    const absl::Status added =
        engine_.AddHostSlots(kNumSlots * engine_.page_bytes());
    FailDryCall(-1, cudaSuccess);
    if (added.ok()) break;
    EXPECT_THAT(added, StatusIs(absl::StatusCode::kResourceExhausted, _));
    EXPECT_EQ(engine_.num_host_slots(), 0);
    for (const CudaMemoryPart& part : engine_.memory()) {
      EXPECT_EQ(part.bytes, 0) << part.name;
    }
    EXPECT_THAT(SwapAll(), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("host slot")));
  }
  EXPECT_GT(num_failed, 5);
  EXPECT_EQ(engine_.num_host_slots(), kNumSlots);
  EXPECT_TRUE(TakeDryLaunches().empty());
  ASSERT_OK(SwapAll());
  // Two launches for the saves and two for the loads.
  EXPECT_EQ(TakeDryLaunches().size(), 4u);
}

}  // namespace
}  // namespace espalier::testing
