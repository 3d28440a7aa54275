// Gathering and scattering pages: bound by reading and writing device memory
// once. The link to the host is slower by one to two orders of magnitude.
#include <algorithm>

#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/kv_cache/cuda_swap_pages.h"

namespace espalier {
namespace {

// A block copies a chunk of one layer of one page, 16 bytes a thread, kAtOnce
// reads before the first write: 32 KiB.
constexpr int kThreads = 512;
constexpr int kAtOnce = 4;
constexpr int kChunk = kThreads * kAtOnce;
constexpr int kBlocksPerSm = 2;

// A CudaKvCache and page records, in pieces of 16 bytes.
struct Layout {
  uint4* data = nullptr;
  int num_layers = 0;
  int chunks_per_layer = 0;
  int page_stride = 0;  // one layer of one page
  int64_t layer_stride = 0;
  int64_t record_stride = 0;
};

template <bool kGather>
__device__ void CopyTokens(CudaPageTokens tokens, int page, uint4* record) {
  int* const of_page = tokens.data + int64_t{page} * tokens.page_size;
  int* const of_record = reinterpret_cast<int*>(record);
  for (int i = threadIdx.x; i < tokens.page_size; i += kThreads) {
    if constexpr (kGather) {
      of_record[i] = of_page[i];
    } else {
      of_page[i] = of_record[i];
    }
  }
}

template <bool kGather>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    SwapPages(const __grid_constant__ CudaPageList list, Layout layout,
              CudaPageTokens tokens, uint4* records) {
  LaunchDependents();
  GridDependencyWait();
  const int per_page = layout.num_layers * layout.chunks_per_layer;
  const int num_chunks = list.count * per_page;
  for (int chunk = blockIdx.x; chunk < num_chunks; chunk += gridDim.x) {
    const int i = chunk / per_page;
    const int layer = chunk % per_page / layout.chunks_per_layer;
    const int begin = chunk % layout.chunks_per_layer * kChunk;
    const int count = min(kChunk, layout.page_stride - begin);
    uint4* const record = records + i * layout.record_stride;
    uint4* const page = layout.data + layer * layout.layer_stride +
                        int64_t{list.pages[i]} * layout.page_stride + begin;
    uint4* const kept = record + int64_t{layer} * layout.page_stride + begin;
    const uint4* const from = kGather ? page : kept;
    uint4* const to = kGather ? kept : page;
    uint4 pieces[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int at = threadIdx.x + k * kThreads;
      if (at < count) pieces[k] = from[at];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int at = threadIdx.x + k * kThreads;
      if (at < count) to[at] = pieces[k];
    }
    if (layer == 0 && begin == 0 && tokens.data != nullptr) {
      CopyTokens<kGather>(
          tokens, list.pages[i],
          record + int64_t{layout.num_layers} * layout.page_stride);
    }
  }
}

template <bool kGather>
absl::Status Swap(const CudaPageList& list, const CudaKvCache& cache,
                  const CudaPageTokens& tokens, std::byte* records,
                  const CudaDevice& device, cudaStream_t stream) {
  if (list.count == 0) return absl::OkStatus();
  const int64_t page_bytes = cache.page_stride() * NumBytes(cache.dtype);
  if (page_bytes % sizeof(uint4) != 0) {
    return InvalidArgument("a page of a layer must be a multiple of ",
                           sizeof(uint4), " bytes, got ", page_bytes);
  }
  Layout layout;
  layout.data = static_cast<uint4*>(cache.data);
  layout.num_layers = cache.num_layers;
  layout.page_stride = static_cast<int>(page_bytes / sizeof(uint4));
  layout.chunks_per_layer = (layout.page_stride + kChunk - 1) / kChunk;
  layout.layer_stride = int64_t{cache.num_pages} * layout.page_stride;
  layout.record_stride =
      CudaPageRecordBytes(cache, tokens) / int64_t{sizeof(uint4)};
  const int64_t num_chunks =
      int64_t{list.count} * layout.num_layers * layout.chunks_per_layer;
  const unsigned grid = static_cast<unsigned>(
      std::min<int64_t>(kBlocksPerSm * device.num_sms, num_chunks));
  // Records are read on another stream, after an event; pages are read early.
  return Launch(SwapPages<kGather>,
                {.grid = grid,
                 .block = kThreads,
                 .dependency = kGather ? GridDependency::kWaitsFirst
                                       : GridDependency::kWritesEarlyRead},
                stream, list, layout, tokens,
                reinterpret_cast<uint4*>(records));
}

}  // namespace

int64_t CudaPageRecordBytes(const CudaKvCache& cache,
                            const CudaPageTokens& tokens) {
  const int64_t pages =
      cache.num_layers * cache.page_stride() * NumBytes(cache.dtype);
  const int64_t words = tokens.data == nullptr ? 0 : tokens.page_size;
  return (pages + words * int64_t{sizeof(int)} + 15) / 16 * 16;
}

absl::Status CudaGatherPages(const CudaPageList& list, const CudaKvCache& cache,
                             const CudaPageTokens& tokens, std::byte* records,
                             const CudaDevice& device, cudaStream_t stream) {
  return Swap<true>(list, cache, tokens, records, device, stream);
}

absl::Status CudaScatterPages(const CudaPageList& list,
                              const std::byte* records,
                              const CudaKvCache& cache,
                              const CudaPageTokens& tokens,
                              const CudaDevice& device, cudaStream_t stream) {
  return Swap<false>(list, cache, tokens, const_cast<std::byte*>(records),
                     device, stream);
}

}  // namespace espalier
