// Which graphs are kept, which go, and what happens without memory for one.
// Needs no device: a graph here is a number.
#include "executor/cuda/step/cuda_graph_cache.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "tests/status_matchers.h"

namespace espalier {
namespace {

// Graphs that count themselves, of a device with room for some of them.
class FakeDevice {
 public:
  explicit FakeDevice(int room) : room_(room) {}

  class Graph {
   public:
    Graph(FakeDevice* device, int shape) : device_(device), shape_(shape) {
      ++device_->num_alive_;
    }
    Graph(Graph&& other) noexcept
        : device_(std::exchange(other.device_, nullptr)),
          shape_(other.shape_) {}
    Graph& operator=(Graph&&) = delete;
    ~Graph() {
      if (device_ != nullptr) --device_->num_alive_;
    }
    int shape() const { return shape_; }

   private:
    FakeDevice* device_;
    int shape_;
  };

  absl::StatusOr<Graph> Capture(int shape) {
    ++num_captures_;
    if (num_alive_ >= room_) return absl::ResourceExhaustedError("full");
    return Graph(this, shape);
  }

  void set_room(int room) { room_ = room; }
  int num_alive() const { return num_alive_; }
  int num_captures() const { return num_captures_; }

 private:
  int room_;
  int num_alive_ = 0;
  int num_captures_ = 0;
};

using Cache = CudaGraphCache<int, FakeDevice::Graph>;

// Null: the step runs without.
const FakeDevice::Graph* Get(Cache& cache, FakeDevice& device, int shape) {
  auto graph = cache.Get(shape, [&] { return device.Capture(shape); });
  EXPECT_OK(graph.status());
  return graph.ok() ? *graph : nullptr;
}

TEST(CudaGraphCacheTest, AShapeIsCapturedOnceWhileItIsKept) {
  FakeDevice device(100);
  Cache cache(2);
  for (const int shape : {7, 8, 7, 8, 8, 7}) {
    ASSERT_NE(Get(cache, device, shape), nullptr);
    EXPECT_EQ(Get(cache, device, shape)->shape(), shape);
  }
  EXPECT_EQ(device.num_captures(), 2);
  EXPECT_EQ(cache.num_captured(), 2);
}

TEST(CudaGraphCacheTest, BeyondTheBoundTheLeastRecentlyUsedGoes) {
  FakeDevice device(100);
  Cache cache(2);
  for (const int shape : {1, 2, 1, 3, 1}) Get(cache, device, shape);
  EXPECT_EQ(device.num_captures(), 3) << "1 was used after 2, so 2 went";
  Get(cache, device, 2);
  EXPECT_EQ(device.num_captures(), 4);
  EXPECT_EQ(device.num_alive(), 2);
}

TEST(CudaGraphCacheTest, WithoutMemoryOldGraphsGoUntilThereIsSome) {
  FakeDevice device(4);
  Cache cache(10);
  for (const int shape : {1, 2, 3, 4}) Get(cache, device, shape);
  device.set_room(2);
  ASSERT_NE(Get(cache, device, 5), nullptr);
  EXPECT_EQ(device.num_alive(), 2);
  const int num_captures = device.num_captures();
  Get(cache, device, 4);
  Get(cache, device, 5);
  EXPECT_EQ(device.num_captures(), num_captures) << "the newest stayed";
}

TEST(CudaGraphCacheTest, WithoutAnyMemoryStepsRunWithoutAndCapturesPause) {
  FakeDevice device(0);
  Cache cache(10);
  EXPECT_EQ(Get(cache, device, 1), nullptr);
  EXPECT_EQ(device.num_captures(), 1);
  device.set_room(5);
  for (int i = 0; i < Cache::kPause; ++i) {
    ASSERT_EQ(Get(cache, device, i), nullptr);
  }
  EXPECT_EQ(device.num_captures(), 1);
  EXPECT_NE(Get(cache, device, 1), nullptr);
}

TEST(CudaGraphCacheTest, OfABoundOfZeroNothingIsCaptured) {
  FakeDevice device(5);
  Cache cache(0);
  EXPECT_EQ(Get(cache, device, 1), nullptr);
  EXPECT_EQ(device.num_captures(), 0);
}

TEST(CudaGraphCacheTest, OtherErrorsOfACaptureAreTheCallers) {
  Cache cache(2);
  const auto capture = []() -> absl::StatusOr<FakeDevice::Graph> {
    return absl::InternalError("no such kernel");
  };
  EXPECT_THAT(cache.Get(1, capture).status(),
              testing::StatusIs(absl::StatusCode::kInternal,
                                ::testing::HasSubstr("kernel")));
}

// Against a list in the order of use.
RC_GTEST_PROP(CudaGraphCacheTest, KeepsWhatAListInOrderOfUseKeeps,
              (const std::vector<uint8_t>& shapes)) {
  const int max_graphs = *rc::gen::inRange(1, 6);
  FakeDevice device(100);
  Cache cache(max_graphs);
  std::deque<int> kept;  // the most recently used in front
  int num_captures = 0;
  for (const int shape : shapes) {
    const int small = shape % 9;
    const auto* const graph = Get(cache, device, small);
    RC_ASSERT(graph != nullptr && graph->shape() == small);
    const auto at = std::find(kept.begin(), kept.end(), small);
    if (at == kept.end()) {
      ++num_captures;
    } else {
      kept.erase(at);
    }
    kept.push_front(small);
    if (kept.size() > max_graphs) kept.pop_back();
    RC_ASSERT(device.num_captures() == num_captures);
    RC_ASSERT(cache.size() == static_cast<int>(kept.size()));
    RC_ASSERT(device.num_alive() == cache.size());
  }
}

}  // namespace
}  // namespace espalier
