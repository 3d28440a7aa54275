// Pages on their way to the host and back, more of them than staging memory
// has room for, and written again at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "base/status.h"
#include "kernels/kv_cache/cuda_cache_engine.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

// Pages of 256 KiB in 4 layers, so that 64 are in a batch.
constexpr int kNumPages = 400;
constexpr int kPageSize = 16;

class CudaCacheEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = *CudaDevice::Open(0);
    cache_ = {.dtype = DType::kFloat32,
              .num_layers = 4,
              .num_pages = kNumPages,
              .page_size = kPageSize,
              .num_kv_heads = 4,
              .head_dim = 128};
    const size_t size = cache_.num_layers * cache_.layer_stride();
    values_ = *DeviceBuffer<float>::Create(size);
    cache_.data = values_.data();
    words_ = *DeviceBuffer<int>::Create(kNumPages * kPageSize);
    stream_ = *CudaStream::Create();
    std::vector<float> values(size);
    for (size_t i = 0; i < size; ++i) {
      values[i] = static_cast<float>((i * 2654435761u) % 1000003);
    }
    std::vector<int> words(kNumPages * kPageSize);
    std::iota(words.begin(), words.end(), 7);
    Put(values, values_);
    Put(words, words_);
    engine_.emplace(cache_, CudaPageTokens{words_.data(), kPageSize}, device_);
    ASSERT_OK(engine_->AddHostSlots(kNumSlots * engine_->page_bytes()));
    ASSERT_EQ(engine_->num_host_slots(), kNumSlots);
  }

  template <typename T>
  static void Put(const std::vector<T>& from, const DeviceBuffer<T>& to) {
    ASSERT_EQ(cudaMemcpy(to.data(), from.data(), to.size_bytes(),
                         cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  template <typename T>
  static std::vector<T> Get(const DeviceBuffer<T>& from) {
    std::vector<T> to(from.size());
    EXPECT_EQ(cudaMemcpy(to.data(), from.data(), from.size_bytes(),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return to;
  }
  // All pages, as a step might.
  void Overwrite() {
    ASSERT_EQ(cudaMemsetAsync(values_.data(), 0xff, values_.size_bytes(),
                              stream_.get()),
              cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(words_.data(), 0xff, words_.size_bytes(),
                              stream_.get()),
              cudaSuccess);
  }
  // Page `now` of `values` and `words` is page `then` of the others.
  void ExpectPage(const std::vector<float>& values,
                  const std::vector<int>& words, int now,
                  const std::vector<float>& old_values,
                  const std::vector<int>& old_words, int then) const {
    for (int layer = 0; layer < cache_.num_layers; ++layer) {
      const int64_t first = layer * cache_.layer_stride();
      for (int64_t i = 0; i < cache_.page_stride(); ++i) {
        ASSERT_EQ(values[first + now * cache_.page_stride() + i],
                  old_values[first + then * cache_.page_stride() + i])
            << "layer " << layer << " of page " << now;
      }
    }
    for (int i = 0; i < kPageSize; ++i) {
      ASSERT_EQ(words[now * kPageSize + i], old_words[then * kPageSize + i]);
    }
  }

  static constexpr int kNumSlots = 350;
  CudaDevice device_;
  CudaKvCache cache_;
  DeviceBuffer<float> values_;
  DeviceBuffer<int> words_;
  CudaStream stream_;
  std::optional<CudaCacheEngine> engine_;
};

TEST_F(CudaCacheEngineTest, PagesComeBackAsTheyWere) {
  const std::vector<float> values = Get(values_);
  const std::vector<int> words = Get(words_);
  std::vector<PageSave> saves;
  std::vector<PageLoad> loads;
  for (int i = 0; i < 300; ++i) {
    const HostSlotId slot{i * 37 % kNumSlots};
    saves.push_back({PageId{i}, slot});
    loads.push_back({slot, PageId{kNumPages - 1 - i}});
  }
  ASSERT_OK(engine_->SwapPages(saves, {}, stream_.get()));
  Overwrite();
  ASSERT_OK(engine_->SwapPages({}, loads, stream_.get()));
  ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
  const std::vector<float> now = Get(values_);
  const std::vector<int> now_words = Get(words_);
  for (int i = 0; i < 300; i += 13) {
    ExpectPage(now, now_words, kNumPages - 1 - i, values, words, i);
  }
  EXPECT_EQ(now_words[0], -1);  // page 0 was not loaded into
}

// A page that is saved may be loaded into by the same call.
TEST_F(CudaCacheEngineTest, SavesComeBeforeLoads) {
  const std::vector<float> values = Get(values_);
  const std::vector<int> words = Get(words_);
  ASSERT_OK(engine_->SwapPages(std::vector<PageSave>{{PageId{1}, {0}}}, {},
                               stream_.get()));
  ASSERT_OK(engine_->SwapPages(std::vector<PageSave>{{PageId{2}, {1}}},
                               std::vector<PageLoad>{{{0}, PageId{2}}},
                               stream_.get()));
  ASSERT_OK(engine_->SwapPages({}, std::vector<PageLoad>{{{1}, PageId{1}}},
                               stream_.get()));
  ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
  const std::vector<float> now = Get(values_);
  const std::vector<int> now_words = Get(words_);
  ExpectPage(now, now_words, 2, values, words, 1);
  ExpectPage(now, now_words, 1, values, words, 2);
}

// A slot is given to the next while the load from it is on its way.
TEST_F(CudaCacheEngineTest, ASlotIsUsedAgainAtOnce) {
  const std::vector<float> values = Get(values_);
  const std::vector<int> words = Get(words_);
  std::vector<PageSave> first, second;
  std::vector<PageLoad> loads;
  for (int i = 0; i < 100; ++i) {
    first.push_back({PageId{i}, HostSlotId{i}});
    second.push_back({PageId{100 + i}, HostSlotId{i}});
    loads.push_back({HostSlotId{i}, PageId{200 + i}});
  }
  ASSERT_OK(engine_->SwapPages(first, {}, stream_.get()));
  ASSERT_OK(engine_->SwapPages({}, loads, stream_.get()));
  ASSERT_OK(engine_->SwapPages(second, {}, stream_.get()));
  ASSERT_EQ(cudaStreamSynchronize(stream_.get()), cudaSuccess);
  const std::vector<float> now = Get(values_);
  const std::vector<int> now_words = Get(words_);
  for (int i = 0; i < 100; i += 9) {
    ExpectPage(now, now_words, 200 + i, values, words, i);
  }
}

TEST_F(CudaCacheEngineTest, WhatIsNotThereIsRefused) {
  EXPECT_THAT(
      engine_->SwapPages(std::vector<PageSave>{{PageId{0}, {kNumSlots}}}, {},
                         stream_.get()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("host slot 350")));
  EXPECT_GT(engine_->host_bandwidth(), 0);
}

}  // namespace
}  // namespace espalier
