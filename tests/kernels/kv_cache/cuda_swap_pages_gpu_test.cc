// Pages in records and back against the host image of a cache.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "kernels/kv_cache/cuda_swap_pages.h"
#include "tests/kernels/kv_cache/paged_cache.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Cache;
using testing::Download;
using testing::Numbers;
using testing::ToBytes;
using testing::Upload;

class CudaSwapPagesTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CudaSwapPagesTest,
                         ::testing::Values(DType::kBFloat16, DType::kFloat32));

// Page i becomes page 39 - i; the others stay.
TEST_P(CudaSwapPagesTest, RecordsHaveAllLayersAndTokensOfAPage) {
  for (const int head_dim : {8, 80, 128}) {
    for (const int page_size : {1, 3, 16}) {
      Cache cache(GetParam(), /*num_kv_heads=*/3, head_dim, page_size,
                  /*num_pages=*/40);
      std::vector<float>& elements = cache.elements();
      Numbers numbers(GetParam(), 9);
      for (float& x : elements) x = numbers.Next();
      const auto memory = Upload(ToBytes(elements, GetParam()));
      std::vector<int> words(40 * page_size);
      std::iota(words.begin(), words.end(), 1000);
      const auto device_words = Upload(words);
      CudaKvCache layout = cache.layout();
      layout.data = memory.data();
      const CudaPageTokens tokens = {device_words.data(), page_size};
      CudaPageList from, to;
      for (int i = 0; i < 17; ++i) {
        from.pages[from.count++] = i;
        to.pages[to.count++] = 39 - i;
      }
      const auto records = DeviceBuffer<std::byte>::Create(
          from.count * CudaPageRecordBytes(layout, tokens));
      ASSERT_OK(records.status());
      const auto device = CudaDevice::Open(0);
      ASSERT_OK(CudaGatherPages(from, layout, tokens, records->data(), *device,
                                nullptr));
      ASSERT_OK(CudaScatterPages(to, records->data(), layout, tokens, *device,
                                 nullptr));
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      for (int i = 0; i < from.count; ++i) {
        std::copy_n(words.begin() + i * page_size, page_size,
                    words.begin() + (39 - i) * page_size);
        for (int layer = 0; layer < layout.num_layers; ++layer) {
          const auto pages = elements.begin() + layer * layout.layer_stride();
          std::copy_n(pages + i * layout.page_stride(), layout.page_stride(),
                      pages + (39 - i) * layout.page_stride());
        }
      }
      EXPECT_EQ(Download(memory), ToBytes(elements, GetParam()))
          << head_dim << " " << page_size;
      EXPECT_EQ(Download(device_words), words) << head_dim << " " << page_size;
    }
  }
}

}  // namespace
}  // namespace espalier
