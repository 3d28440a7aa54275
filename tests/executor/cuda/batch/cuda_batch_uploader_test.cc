// Uploads of batches after any other batches, into host words in place of
// device memory: every array that a step reads has a place of its own, and
// nothing is sent twice. Needs no device.
#include "executor/cuda/batch/cuda_batch_uploader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/cuda_dry_run.h"
#include "tests/executor/cuda/uploader_fixture.h"
#include "tests/few_cases.h"

namespace espalier::testing {
namespace {

class CudaBatchUploaderTest : public UploaderFixture {
 protected:
  void SetUp() override {
    BeginDryRun(90);
    CudaDevice device;
    device.num_sms = 132;
    device.compute_capability = 90;
    Create(device);
    words_.assign(memory().num_bytes() / sizeof(int), 0);
  }

  void Apply(const CudaDelta& delta) override {
    for (const CudaStagedWrite& segment : delta.segments()) {
      std::copy_n(delta.payload().begin() + segment.source, segment.count,
                  words_.begin() + segment.target);
    }
  }
  void Overwrite(const void* array, size_t num_bytes) override {
    std::memset(words_.data() + PlaceOf(array), 0x5A, num_bytes);
  }
  void Read(const void* from, void* to, size_t num_bytes) const override {
    std::memcpy(to, words_.data() + PlaceOf(from), num_bytes);
  }

 private:
  int64_t PlaceOf(const void* address) const {
    return static_cast<const int*>(address) - memory().words();
  }

  std::vector<int> words_;  // in place of the device's
};

TEST_F(CudaBatchUploaderTest, BatchesAreSentOnce) {
  ExpectBatchesAreSentOnce(Cases(1000, 100));
}

TEST_F(CudaBatchUploaderTest, OverwrittenEditsAreSentAgain) {
  ExpectOverwrittenEditsAreSentAgain();
}

TEST_F(CudaBatchUploaderTest, LostArraysAreSentAgain) {
  ExpectLostArraysAreSentAgain(Cases(200, 20));
}

TEST_F(CudaBatchUploaderTest, EveryArrayHasAPlaceOfItsOwn) {
  std::vector<std::pair<const char*, const char*>> ranges;
  const auto add = [&]<typename T>(const CudaArrayInfo& info, const T* array) {
    const int64_t size = info.max_size(kLimits);
    ASSERT_NE(array, nullptr) << info.name;
    ASSERT_GT(size, 0) << info.name;
    const auto* const begin = reinterpret_cast<const char*>(array);
    ranges.emplace_back(begin, begin + size * sizeof(T));
  };
  ForEachBatchArray(add, arrays());
  ForEachAttentionArray(add, arrays());
  std::sort(ranges.begin(), ranges.end());
  const auto* const words = reinterpret_cast<const char*>(memory().words());
  EXPECT_GE(ranges.front().first, words);
  EXPECT_LE(ranges.back().second, words + memory().num_bytes());
  for (size_t i = 1; i < ranges.size(); ++i) {
    EXPECT_LE(ranges[i - 1].second, ranges[i].first);
  }
}

}  // namespace
}  // namespace espalier::testing
