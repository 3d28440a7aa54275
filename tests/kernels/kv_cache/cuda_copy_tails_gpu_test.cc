// Tail copies on the device against copies in the host image of a cache and its
// tokens.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/kv_cache/cuda_copy_tails.h"
#include "tests/kernels/kv_cache/paged_cache.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::Cache;
using testing::Download;
using testing::Numbers;
using testing::ToBytes;
using testing::Upload;

class CudaCopyTailsTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CudaCopyTailsTest,
                         ::testing::Values(DType::kBFloat16, DType::kFloat32));

TEST_P(CudaCopyTailsTest, CopiesTheFilledSlotsOfAllLayersAndNothingElse) {
  for (const int head_dim : {8, 80, 128}) {
    const DType dtype = GetParam();
    Cache cache(dtype, /*num_kv_heads=*/3, head_dim, /*page_size=*/16,
                /*num_pages=*/40);
    std::vector<float>& elements = cache.elements();
    Numbers numbers(dtype, 9);
    for (float& x : elements) x = numbers.Next();
    std::vector<PageCopy> copies;
    for (int i = 0; i < 18; ++i) {
      copies.push_back({PageId{i / 2}, PageId{39 - i}, i % 16});
    }
    const auto memory = Upload(ToBytes(elements, dtype));
    const auto device_copies = Upload(copies);
    const int num_copies = 17;  // the last is not asked for
    const auto device_count = Upload(std::vector<int>{num_copies});
    std::vector<int> tokens(40 * 16);
    std::iota(tokens.begin(), tokens.end(), 1000);
    const auto device_tokens = Upload(tokens);
    CudaKvCache layout = cache.layout();
    layout.data = memory.data();
    auto device = CudaDevice::Open(0);
    ASSERT_OK(CudaCopyTails(device_copies.data(), device_count.data(), 18,
                            layout, {device_tokens.data(), 16}, *device,
                            nullptr));
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (int c = 0; c < num_copies; ++c) {
      std::copy_n(tokens.begin() + copies[c].from.value * 16,
                  copies[c].num_tokens,
                  tokens.begin() + copies[c].to.value * 16);
      for (int run = 0; run < layout.num_layers * 2 * 3; ++run) {
        const auto page = elements.begin() + run / 6 * layout.layer_stride() +
                          run % 6 * layout.head_stride();
        std::copy_n(page + copies[c].from.value * layout.page_stride(),
                    copies[c].num_tokens * head_dim,
                    page + copies[c].to.value * layout.page_stride());
      }
    }
    EXPECT_EQ(Download(memory), ToBytes(elements, dtype)) << head_dim;
    EXPECT_EQ(Download(device_tokens), tokens) << head_dim;
  }
}

}  // namespace
}  // namespace espalier
