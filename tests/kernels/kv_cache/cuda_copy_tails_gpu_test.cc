// Tail copies on the device against copies in a cache on the host and its
// tokens.
#include <gmock/gmock.h>

#include <vector>

#include "kernels/kv_cache/cuda_copy_tails.h"
#include "tests/kernels/kv_cache/paged_cache.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::FilledCache;
using testing::Upload;

class CudaCopyTailsTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CudaCopyTailsTest,
                         ::testing::Values(DType::kBFloat16, DType::kFloat32));

TEST_P(CudaCopyTailsTest, CopiesTheFilledSlotsOfAllLayersAndNothingElse) {
  for (const int head_dim : {8, 80, 128}) {
    SCOPED_TRACE(head_dim);
    FilledCache cache(GetParam(), head_dim, /*page_size=*/16);
    std::vector<PageCopy> copies;
    for (int i = 0; i < 18; ++i) {
      copies.push_back({PageId{i / 2}, PageId{39 - i}, i % 16});
    }
    const auto device_copies = Upload(copies);
    const int num_copies = 17;  // the last must not be copied
    const auto device_count = Upload(std::vector<int>{num_copies});
    auto device = CudaDevice::Open(0);
    ASSERT_OK(CudaCopyTails(device_copies.data(), device_count.data(), 18,
                            cache.layout(), cache.tokens(), *device, nullptr));
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (int c = 0; c < num_copies; ++c) {
      cache.CopyOnHost(copies[c].from.value, copies[c].to.value,
                       copies[c].num_tokens);
    }
    cache.ExpectDeviceIsAsHost();
  }
}

}  // namespace
}  // namespace espalier
