// Attention on the device: one layer of a step, in microseconds.
//
//   bin/cuda_attention_benchmark [part of a case's name]
//   bin/cuda_attention_benchmark --wide [part of a case's name]
//
// --wide has hundreds of beams and more of one group, planned as steps plan
// them: for lengths up to the next multiple of 64. Others are planned for the
// lengths that they have.
//
// Every call of a graph reads another layer, over 256 MB in all, so keys and
// values come from memory and not from the cache. "MB" are those of distinct
// pages and "TB/s" is their rate; "apart" is the same without shared runs,
// every beam reading its prefix by itself; "error" is against a plain float32
// kernel, relative, over some queries.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "base/ceil_div.h"
#include "base/cuda.h"
#include "base/cuda_launch.cuh"
#include "benchmarks/cuda_replays.h"
#include "kernels/attention/cuda_attention.h"
#include "kernels/attention/cuda_attention_plan.h"
#include "kernels/kv_cache/cuda_copy_tails.h"

namespace espalier {
namespace {

constexpr int64_t kMinBytes = 256 << 20;

struct Case {
  const char* name;
  int num_heads, num_kv_heads, head_dim, page_size;
  int num_groups, num_beams;
  int prefix;  // shared by a group
  int tail;    // per beam
  int chunk;   // tokens of a row: above 1 a prompt's, after `tail` - chunk
};

constexpr Case kCases[] = {
    {"8b  8x1 of 5 on 512", 32, 8, 128, 16, 8, 1, 0, 517, 5},
    {"8b  8x1 on 512", 32, 8, 128, 16, 8, 1, 0, 517, 1},
    {"8b  32x1 of 5 on 512", 32, 8, 128, 16, 32, 1, 0, 517, 5},
    {"8b  32x1 on 512", 32, 8, 128, 16, 32, 1, 0, 517, 1},
    {"8b  8 on 8192+32", 32, 8, 128, 16, 1, 8, 8192, 32, 1},
    {"8b  128 on 1024+8", 32, 8, 128, 16, 1, 128, 1024, 8, 1},
    {"8b  16x8 on 512+32", 32, 8, 128, 16, 16, 8, 512, 32, 1},
    {"8b  4 on 128+32", 32, 8, 128, 16, 1, 4, 128, 32, 1},
    {"8b  128 on 300+8", 32, 8, 128, 16, 1, 128, 288, 20, 1},
    {"8b  128 on 4096+8", 32, 8, 128, 16, 1, 128, 4096, 8, 1},
    {"8b  4 on 512+32", 32, 8, 128, 16, 1, 4, 512, 32, 1},
    {"8b  8 on 256+32", 32, 8, 128, 16, 1, 8, 256, 32, 1},
    {"8b  4 on 2048+64", 32, 8, 128, 16, 1, 4, 2048, 64, 1},
    {"8b  4x4 on 256+64", 32, 8, 128, 16, 4, 4, 256, 64, 1},
    {"8b  32x4 on 256+64", 32, 8, 128, 16, 32, 4, 256, 64, 1},
    {"8b  32 on 128+32", 32, 8, 128, 16, 1, 32, 128, 32, 1},
    {"1b  4 on 128+32", 32, 8, 64, 16, 1, 4, 128, 32, 1},
    {"1b  8 on 2048+32", 32, 8, 64, 16, 1, 8, 2048, 32, 1},
    {"68m 5 on 64+64", 12, 12, 64, 16, 1, 5, 64, 64, 1},
    {"68m 8 on 512+32", 12, 12, 64, 16, 1, 8, 512, 32, 1},
    {"68m 5 rows of 128", 12, 12, 64, 16, 5, 1, 0, 128, 1},
    {"68m 32x1 on 512", 12, 12, 64, 16, 32, 1, 0, 517, 1},
    {"68m 32x1 of 2 on 512", 12, 12, 64, 16, 32, 1, 0, 517, 2},
    {"1b  4 rows of 160", 32, 8, 64, 16, 4, 1, 0, 160, 1},
    {"1b  4 rows of 2000", 32, 8, 64, 16, 4, 1, 0, 2000, 1},
    {"8b  1 row of 8192", 32, 8, 128, 16, 1, 1, 0, 8192, 1},
    {"8b  64 rows of 500", 32, 8, 128, 16, 64, 1, 0, 500, 1},
    {"8b  256 rows of 100", 32, 8, 128, 16, 256, 1, 0, 100, 1},
    {"8b  512 at 0", 32, 8, 128, 16, 1, 1, 0, 512, 512},
    {"8b  2048 at 0", 32, 8, 128, 16, 1, 1, 0, 2048, 2048},
    {"8b  512 at 7680", 32, 8, 128, 16, 1, 1, 0, 8192, 512},
    {"8b  2048 at 6144", 32, 8, 128, 16, 1, 1, 0, 8192, 2048},
    {"8b  8 on 8192 p64", 32, 8, 128, 64, 1, 8, 8192, 32, 1},
    {"8b  8x4 on 512+32", 32, 8, 128, 16, 8, 4, 512, 32, 1},
    {"0.6b 512 on 512+8", 16, 8, 128, 16, 1, 512, 512, 8, 1},
    {"0.6b 5000 on 512+8", 16, 8, 128, 16, 1, 5000, 512, 8, 1},
    {"0.6b 5000 on 512+16", 16, 8, 128, 16, 1, 5000, 512, 16, 1},
    {"0.6b 5000 on 512+40", 16, 8, 128, 16, 1, 5000, 512, 40, 1},
};

constexpr Case kWideCases[] = {
    {"0.6b 256 on 512+8", 16, 8, 128, 16, 1, 256, 512, 8, 1},
    {"0.6b 512 on 512+8", 16, 8, 128, 16, 1, 512, 512, 8, 1},
    {"0.6b 512 on 512+60", 16, 8, 128, 16, 1, 512, 512, 60, 1},
    {"0.6b 512 on 512+100", 16, 8, 128, 16, 1, 512, 512, 100, 1},
    {"0.6b 512 on 2048+8", 16, 8, 128, 16, 1, 512, 2048, 8, 1},
    {"0.6b 1100 on 512+8", 16, 8, 128, 16, 1, 1100, 512, 8, 1},
    {"0.6b 5000 on 512+8", 16, 8, 128, 16, 1, 5000, 512, 8, 1},
    {"0.6b 5000 on 512+16", 16, 8, 128, 16, 1, 5000, 512, 16, 1},
    {"0.6b 5000 on 512+60", 16, 8, 128, 16, 1, 5000, 512, 60, 1},
    {"0.6b 5000 on 512+100", 16, 8, 128, 16, 1, 5000, 512, 100, 1},
    {"8b  300 on 512+8", 32, 8, 128, 16, 1, 300, 512, 8, 1},
    {"1b  512 on 512+8", 32, 8, 64, 16, 1, 512, 512, 8, 1},
};
constexpr int kStepMultiple = 64;  // planned lengths are rounded up to it

constexpr Case kFloatCases[] = {
    {"68m 5 rows of 128", 12, 12, 64, 16, 5, 1, 0, 128, 1},
    {"1b  8 on 512+32", 32, 8, 64, 16, 1, 8, 512, 32, 1},
    {"8b  8 on 2048+32", 32, 8, 128, 16, 1, 8, 2048, 32, 1},
    {"8b  512 at 0", 32, 8, 128, 16, 1, 1, 0, 512, 512},
};

__device__ float ToFloat(float x) { return x; }
__device__ float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__global__ void FillRandom(T* x, int64_t n, uint32_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n;
       i += step) {
    uint32_t h = static_cast<uint32_t>(i) * 2654435761u + seed;
    float sum = 0;  // about normal, of variance 1
    for (int j = 0; j < 4; ++j) {
      h = (h ^ (h >> 15)) * 0x2C1B3C6Du;
      h = (h ^ (h >> 12)) * 0x297A2D39u;
      sum += static_cast<float>(h >> 8) * 0x1p-24f - 0.5f;
    }
    x[i] = T(sum * 1.732f);
  }
}

template <typename T>
DeviceBuffer<T> Random(int64_t size, uint32_t seed) {
  auto buffer = Get(DeviceBuffer<T>::Create(size));
  FillRandom<<<1024, 256>>>(buffer.data(), size, seed);
  return buffer;
}

// The plain kernel: a warp a query and head, a position at a time.
template <typename T>
__global__ void AttendPlainly(CudaAttentionShape shape, CudaKvCache cache,
                              const T* q, const int* positions,
                              const int* tables, const int* table_of_query,
                              int table_stride, const int* queries,
                              float* out) {
  const int query = queries[blockIdx.x], head = blockIdx.y;
  const int lane = threadIdx.x;
  const int per_lane = shape.head_dim / 32;
  const int kv_head = head / (shape.num_heads / shape.num_kv_heads);
  const T* const row = q + (query * shape.num_heads + head) * shape.head_dim;
  float sums[4] = {}, sum = 0, maximum = -INFINITY;
  for (int p = 0; p <= positions[query]; ++p) {
    const int page =
        tables[table_of_query[query] * table_stride + p / shape.page_size];
    const T* const key =
        static_cast<const T*>(cache.data) + page * cache.page_stride() +
        kv_head * cache.head_stride() + p % shape.page_size * shape.head_dim;
    float score = 0;
    for (int i = lane; i < shape.head_dim; i += 32) {
      score += ToFloat(row[i]) * ToFloat(key[i]);
    }
    for (int step = 16; step > 0; step /= 2) {
      score += __shfl_xor_sync(~0u, score, step);
    }
    score /= sqrtf(shape.head_dim);
    const float new_maximum = fmaxf(maximum, score);
    const float factor = expf(maximum - new_maximum);
    const float weight = expf(score - new_maximum);
    maximum = new_maximum;
    sum = sum * factor + weight;
    for (int i = 0; i < per_lane; ++i) {
      const float value = ToFloat(key[cache.values_offset() + lane + 32 * i]);
      sums[i] = sums[i] * factor + weight * value;
    }
  }
  for (int i = 0; i < per_lane; ++i) {
    out[(blockIdx.x * shape.num_heads + head) * shape.head_dim + lane +
        32 * i] = sums[i] / sum;
  }
}

// Rows, runs and tables of a case.
struct Problem {
  CudaAttentionShape shape;
  CudaKvCache cache;
  std::vector<CudaAttentionRow> rows;
  std::vector<CudaSharedPrefix> runs;
  std::vector<int> positions, table_of_query, tables;
  int table_stride = 0;
  int64_t bytes = 0;  // distinct keys and values read

  int num_queries() const { return static_cast<int>(positions.size()); }
};

// Planned for lengths up to a multiple of `multiple`. Tables have pages up to
// there.
Problem MakeProblem(const Case& c, DType dtype, int multiple) {
  Problem p;
  p.shape = {c.num_heads, c.num_kv_heads, c.head_dim, c.page_size, dtype};
  p.cache.dtype = dtype;
  const int shared_pages = c.prefix / c.page_size;
  const int max_positions = CeilDiv(c.prefix + c.tail, multiple) * multiple;
  const int own_pages = CeilDiv(max_positions - c.prefix, c.page_size);
  p.table_stride = shared_pages + own_pages;
  const int num_pages = c.num_groups * (shared_pages + c.num_beams * own_pages);
  std::vector<int> pages(num_pages);
  for (int i = 0; i < num_pages; ++i) pages[i] = i;
  std::shuffle(pages.begin(), pages.end(), std::mt19937(1));
  const auto take = [&] {
    const int page = pages.back();
    pages.pop_back();
    return page;
  };
  for (int g = 0; g < c.num_groups; ++g) {
    std::vector<int> prefix(shared_pages);
    for (int& page : prefix) page = take();
    if (c.prefix > 0) {
      p.runs.push_back({p.num_queries(), c.num_beams,
                        static_cast<int>(p.rows.size()), 0, c.prefix});
    }
    for (int b = 0; b < c.num_beams; ++b) {
      const int table = static_cast<int>(p.rows.size());
      p.rows.push_back(
          {p.num_queries(), c.chunk, table, c.prefix, max_positions});
      for (int i = 0; i < c.chunk; ++i) {
        p.positions.push_back(c.prefix + c.tail - c.chunk + i);
        p.table_of_query.push_back(table);
      }
      p.tables.insert(p.tables.end(), prefix.begin(), prefix.end());
      for (int i = 0; i < own_pages; ++i) p.tables.push_back(take());
    }
  }
  p.cache.num_pages = num_pages;
  p.cache.page_size = c.page_size;
  p.cache.num_kv_heads = c.num_kv_heads;
  p.cache.head_dim = c.head_dim;
  p.bytes = int64_t{2} * NumBytes(dtype) * c.num_kv_heads * c.head_dim *
            c.num_groups * (c.prefix + c.num_beams * c.tail);
  p.cache.num_layers = static_cast<int>(std::clamp<int64_t>(
      kMinBytes / (p.cache.page_stride() * num_pages * NumBytes(dtype)) + 1, 4,
      400));
  return p;
}

// A problem in device memory.
template <typename T>
class Runner {
 public:
  Runner(const Problem& problem, const CudaDevice& device)
      : problem_(problem), device_(device) {
    Check(PrepareCudaAttention(problem.shape, device));
    CudaKvCache& cache = problem_.cache;
    memory_ = Random<T>(cache.num_layers * cache.layer_stride(), 1);
    cache.data = memory_.data();
    const int64_t size = int64_t{problem.num_queries()} *
                         problem.shape.num_heads * problem.shape.head_dim;
    q_ = Random<T>(size, 2);
    out_ = Random<T>(size, 3);
    positions_ = Get(Upload(problem.positions));
    tables_ = Get(Upload(problem.tables));
    table_of_query_ = Get(Upload(problem.table_of_query));
  }

  void Plan(bool with_runs) {
    std::vector<CudaAttentionRow> rows = problem_.rows;
    std::vector<CudaSharedPrefix> runs = problem_.runs;
    if (!with_runs) {
      runs.clear();
      for (CudaAttentionRow& row : rows) row.kv_begin = 0;
    }
    const CudaAttentionWork work =
        PlanCudaAttention(rows, runs, problem_.num_queries(), problem_.shape,
                          1 << 20, 1 << 20, device_);
    items_ = Get(Upload(work.items));
    counts_ = Get(
        Upload(std::vector(work.item_counts.begin(), work.item_counts.end())));
    indptr_ = Get(Upload(work.partial_indptr));
    inputs_.items = items_.data();
    inputs_.item_counts = counts_.data();
    inputs_.partial_indptr = indptr_.data();
    inputs_.max_queries = problem_.num_queries();
    inputs_.max_items = static_cast<int>(work.items.size());
    inputs_.max_partials = work.partial_indptr.back();
    inputs_.has_own_tables = work.has_own_tables;
    inputs_.positions = positions_.data();
    inputs_.tables = tables_.data();
    inputs_.table_stride = problem_.table_stride;
    scratch_ = Get(Upload(std::vector<std::byte>(
        CudaAttentionScratchBytes(inputs_, problem_.shape))));
    block_items_ = work.item_counts[0];
    warp_items_ = work.item_counts[1];
  }

  absl::Status Enqueue(int layer) {
    return CudaAttention(inputs_, problem_.shape, q_.data(),
                         problem_.shape.num_heads * problem_.shape.head_dim,
                         problem_.cache, layer, out_.data(), scratch_.data(),
                         device_, stream_.get());
  }

  // Relative, over 16 of the queries, in layer 0.
  double Error() {
    const int n = problem_.num_queries();
    const int num = std::min(n, 16);
    std::vector<int> queries;
    for (int i = 0; i < num; ++i) {
      queries.push_back(
          static_cast<int>(int64_t{n - 1} * i / std::max(num - 1, 1)));
    }
    const int row = problem_.shape.num_heads * problem_.shape.head_dim;
    const auto device_queries = Get(Upload(queries));
    auto expected = Get(DeviceBuffer<float>::Create(num * row));
    AttendPlainly<<<dim3(num, problem_.shape.num_heads), 32, 0,
                    stream_.get()>>>(
        problem_.shape, problem_.cache, q_.data(), positions_.data(),
        tables_.data(), table_of_query_.data(), problem_.table_stride,
        device_queries.data(), expected.data());
    Check(Enqueue(0));
    Check(cudaStreamSynchronize(stream_.get()));
    std::vector<float> a(num * row);
    std::vector<T> b(out_.size());
    Check(cudaMemcpy(a.data(), expected.data(), expected.size_bytes(),
                     cudaMemcpyDeviceToHost));
    Check(cudaMemcpy(b.data(), out_.data(), out_.size_bytes(),
                     cudaMemcpyDeviceToHost));
    double difference = 0, size = 0;
    for (int i = 0; i < num; ++i) {
      for (int j = 0; j < row; ++j) {
        const double x = a[i * row + j];
        const double y = static_cast<float>(b[int64_t{queries[i]} * row + j]);
        difference += (x - y) * (x - y);
        size += x * x;
      }
    }
    return std::sqrt(difference / size);
  }

  // Returns the time of one call, from a graph of all layers.
  double Microseconds() {
    const int num_layers = problem_.cache.num_layers;
    const CudaGraph graph = Get(CaptureGraph(stream_.get(), [&] {
      for (int layer = 0; layer < num_layers; ++layer) {
        RETURN_IF_ERROR(Enqueue(layer));
      }
      return absl::OkStatus();
    }));
    return Get(MedianMicroseconds(graph, num_layers, stream_.get()));
  }

  int block_items() const { return block_items_; }
  int warp_items() const { return warp_items_; }

 private:
  Problem problem_;
  const CudaDevice& device_;
  CudaStream stream_ = Get(CudaStream::Create());
  CudaAttentionInputs inputs_;
  DeviceBuffer<T> memory_, q_, out_;
  DeviceBuffer<int> positions_, tables_, table_of_query_, counts_, indptr_;
  DeviceBuffer<CudaAttentionItem> items_;
  DeviceBuffer<std::byte> scratch_;
  int block_items_ = 0, warp_items_ = 0;
};

template <typename T>
void Measure(const Case& c, DType dtype, int multiple,
             const CudaDevice& device) {
  const Problem problem = MakeProblem(c, dtype, multiple);
  Runner<T> runner(problem, device);
  runner.Plan(true);
  const double error = runner.Error();
  const double us = runner.Microseconds();
  const int block_items = runner.block_items();
  const int warp_items = runner.warp_items();
  double apart = us;
  if (!problem.runs.empty()) {
    runner.Plan(false);
    apart = runner.Microseconds();
  }
  std::printf("%-20s %6.1f %5d+%-5d %8.2f %8.2f %6.2f %8.1e%s\n", c.name,
              problem.bytes * 1e-6, block_items, warp_items, us, apart,
              problem.bytes / us * 1e-6, error, error < 0.005 ? "" : "  WRONG");
  std::fflush(stdout);
}

// Tail copies of the 8b shape: 32 layers, 8 tokens each.
void MeasureCopies(int num_copies, const CudaDevice& device) {
  CudaKvCache cache;
  cache.num_layers = 32;
  cache.num_pages = 512;
  cache.num_kv_heads = 8;
  cache.head_dim = 128;
  const auto memory =
      Random<__nv_bfloat16>(cache.num_layers * cache.layer_stride(), 1);
  cache.data = memory.data();
  constexpr int kMaxCopies = 64, kCalls = 4;
  std::vector<PageCopy> copies;
  for (int i = 0; i < kMaxCopies * kCalls; ++i) {
    copies.push_back({PageId{i}, PageId{511 - i}, 8});
  }
  const auto device_copies = Get(Upload(copies));
  const auto count = Get(Upload(std::vector<int>{num_copies}));
  const CudaStream stream = Get(CudaStream::Create());
  const CudaGraph graph = Get(CaptureGraph(stream.get(), [&] {
    for (int i = 0; i < kCalls; ++i) {
      RETURN_IF_ERROR(CudaCopyTails(device_copies.data() + i * kMaxCopies,
                                    count.data(), kMaxCopies, cache, {}, device,
                                    stream.get()));
    }
    return absl::OkStatus();
  }));
  const double us = Get(MedianMicroseconds(graph, kCalls, stream.get()));
  const double bytes = 2.0 * num_copies * 32 * 2 * 8 * 8 * 128 * 2;
  std::printf("copy %2d tails of 8 tokens: %6.2f us, %5.2f TB/s\n", num_copies,
              us, bytes / us * 1e-6);
}

template <typename T>
void MeasureAll(std::span<const Case> cases, DType dtype, int multiple,
                const char* part, const CudaDevice& device) {
  for (const Case& c : cases) {
    if (std::strstr(c.name, part) == nullptr) continue;
    Measure<T>(c, dtype, multiple, device);
  }
}

int Main(bool wide, const char* part) {
  const CudaDevice device = Get(CudaDevice::Open(0));
  std::printf("%s\n%-20s %6s %11s %8s %8s %6s %8s\n", device.name.c_str(),
              "bf16", "MB", "items", "us", "apart", "TB/s", "error");
  if (wide) {
    MeasureAll<__nv_bfloat16>(kWideCases, DType::kBFloat16, kStepMultiple, part,
                              device);
    return 0;
  }
  MeasureAll<__nv_bfloat16>(kCases, DType::kBFloat16, 1, part, device);
  std::printf("f32\n");
  MeasureAll<float>(kFloatCases, DType::kFloat32, 1, part, device);
  if (*part != 0) return 0;
  for (const int num_copies : {0, 1, 4, 64}) MeasureCopies(num_copies, device);
  return 0;
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  const bool wide = argc > 1 && std::strcmp(argv[1], "--wide") == 0;
  const int part = wide ? 2 : 1;
  return espalier::Main(wide, argc > part ? argv[part] : "");
}
