// Uploads of batches after any other batches: the device has every array that a
// step reads, and nothing is sent twice.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/resident/cuda_resident.h"
#include "tests/device_arrays.h"
#include "tests/executor/cuda/uploader_fixture.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Cases;
using testing::Upload;

class CudaBatchUploaderGpuTest : public testing::UploaderFixture {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(const CudaDevice device, CudaDevice::Open(0));
    Create(device);
    auto stream = CudaStream::Create();
    ASSERT_OK(stream.status());
    stream_ = *std::move(stream);
  }

  void Apply(const CudaDelta& delta) override {
    if (delta.empty()) return;
    const auto segments = Upload(std::vector<CudaStagedWrite>(
        delta.segments().begin(), delta.segments().end()));
    const auto payload = Upload(
        std::vector<int>(delta.payload().begin(), delta.payload().end()));
    ASSERT_OK(CudaApplyStagedWrites(
        segments.data(), static_cast<int>(delta.segments().size()),
        payload.data(), memory().words(), arrays().state.clock, stream_.get()));
    ASSERT_OK(CudaStatus(cudaStreamSynchronize(stream_.get()), "kernels"));
  }
  void Overwrite(const void* array, size_t num_bytes) override {
    ASSERT_EQ(cudaMemset(const_cast<void*>(array), 0xEE, num_bytes),
              cudaSuccess);
  }
  void Read(const void* from, void* to, size_t num_bytes) const override {
    ASSERT_EQ(cudaMemcpy(to, from, num_bytes, cudaMemcpyDeviceToHost),
              cudaSuccess);
  }

 private:
  CudaStream stream_;
};

TEST_F(CudaBatchUploaderGpuTest, BatchesAreSentOnce) {
  ExpectBatchesAreSentOnce(Cases(400, 40));
}

TEST_F(CudaBatchUploaderGpuTest, OverwrittenEditsAreSentAgain) {
  ExpectOverwrittenEditsAreSentAgain();
}

TEST_F(CudaBatchUploaderGpuTest, LostArraysAreSentAgain) {
  ExpectLostArraysAreSentAgain(Cases(50, 5));
}

}  // namespace
}  // namespace espalier
