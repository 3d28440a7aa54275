// Pages in records and back against copies in a cache on the host.
#include <gmock/gmock.h>

#include <cstddef>

#include "base/status.h"
#include "kernels/kv_cache/cuda_swap_pages.h"
#include "tests/kernels/kv_cache/paged_cache.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::FilledCache;

class CudaSwapPagesTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CudaSwapPagesTest,
                         ::testing::Values(DType::kBFloat16, DType::kFloat32));

// Page i becomes page 39 - i; the others stay.
TEST_P(CudaSwapPagesTest, RecordsHaveAllLayersAndTokensOfAPage) {
  for (const int head_dim : {8, 80, 128}) {
    for (const int page_size : {1, 3, 16}) {
      SCOPED_TRACE(Concat(head_dim, " ", page_size));
      FilledCache cache(GetParam(), head_dim, page_size);
      CudaPageList from, to;
      for (int i = 0; i < 17; ++i) {
        from.pages[from.count++] = i;
        to.pages[to.count++] = 39 - i;
      }
      const auto records = DeviceBuffer<std::byte>::Create(
          from.count * CudaPageRecordBytes(cache.layout(), cache.tokens()));
      ASSERT_OK(records.status());
      const auto device = CudaDevice::Open(0);
      ASSERT_OK(CudaGatherPages(from, cache.layout(), cache.tokens(),
                                records->data(), *device, nullptr));
      ASSERT_OK(CudaScatterPages(to, records->data(), cache.layout(),
                                 cache.tokens(), *device, nullptr));
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      for (int i = 0; i < from.count; ++i) {
        cache.CopyOnHost(i, 39 - i, page_size);
      }
      cache.ExpectDeviceIsAsHost();
    }
  }
}

}  // namespace
}  // namespace espalier
