// Matrix products with the shapes of models/en-fr: speed, and the share of
// what one thread can at most do.
//
//   matmul_benchmark --benchmark_filter='bf16.*threads:1'
//
// GFLOP/s counts a multiply-add as two; GB/s counts the weights once. Weights
// of the small shapes stay in the caches from one iteration to the next, as
// those of a small model do from one step to the next.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/matmul/matmul.h"

namespace espalier {
namespace {

PackedMatrix RandomMatrix(int num_rows, int num_cols, DType dtype,
                          WeightFormat format) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const int num_bytes = NumBytes(dtype);
  std::vector<std::byte> data(size_t(num_rows) * num_cols * num_bytes);
  for (size_t i = 0; i < data.size(); i += num_bytes) {
    const float value = normal(random);
    // The upper half of a float32 is a bfloat16, and some finite f16.
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    std::memcpy(&data[i], bytes + 4 - num_bytes, num_bytes);
  }
  const PackedMatrix::Part part = {data, dtype, num_rows};
  ThreadPool pool;
  return PackedMatrix::Pack({&part, 1}, num_cols, pool, format);
}

void RunMatMul(benchmark::State& state, DType dtype,
               WeightFormat format = WeightFormat::kAsStored) {
  const int num_cols = static_cast<int>(state.range(0));
  const int num_outputs = static_cast<int>(state.range(1));
  const int num_rows = static_cast<int>(state.range(2));
  const auto pool =
      ThreadPool::Create(static_cast<int>(state.range(3))).value();
  const PackedMatrix w = RandomMatrix(num_outputs, num_cols, dtype, format);
  std::vector<float> x(size_t(num_rows) * num_cols, 0.5f);
  std::vector<float> y(size_t(num_rows) * num_outputs);
  for (auto _ : state) {
    MatMul(x, w, y, *pool);
    benchmark::ClobberMemory();
  }
  const double weights = double(num_cols) * num_outputs;
  state.counters["GFLOP/s"] = benchmark::Counter(
      2e-9 * weights * num_rows, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] =
      benchmark::Counter(1e-9 * static_cast<double>(w.num_bytes()),
                         benchmark::Counter::kIsIterationInvariantRate);
}

// Time of reading alone.
void Read(benchmark::State& state) {
  const std::vector<uint64_t> words(size_t{1} << 24, 3);
  for (auto _ : state) {
    uint64_t sums[8] = {};
    for (size_t i = 0; i < words.size(); i += 8) {
      for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
    }
    benchmark::DoNotOptimize(sums);
  }
  state.counters["GB/s"] =
      benchmark::Counter(8e-9 * static_cast<double>(words.size()),
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(Read);

// {inputs, outputs} of the products of a layer of models/en-fr, its language
// model head, and the gates and ups of a layer of 1 billion parameters, which
// no cache holds.
constexpr int kShapes[][2] = {{256, 512}, {256, 256},  {256, 1536},
                              {768, 256}, {256, 6000}, {2048, 16384}};

void AddShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"k", "n", "rows", "threads"})->UseRealTime();
  for (const auto& shape : kShapes) {
    for (const int rows : {1, 4, 8, 16, 64, 256}) {
      for (const int threads : {1, 2}) {
        benchmark->Args({shape[0], shape[1], rows, threads});
      }
    }
  }
}

BENCHMARK_CAPTURE(RunMatMul, bf16, DType::kBFloat16)->Apply(AddShapes);
BENCHMARK_CAPTURE(RunMatMul, f16, DType::kFloat16)->Apply(AddShapes);
BENCHMARK_CAPTURE(RunMatMul, f32, DType::kFloat32)->Apply(AddShapes);
BENCHMARK_CAPTURE(RunMatMul, int8, DType::kBFloat16, WeightFormat::kInt8)
    ->Apply(AddShapes);
BENCHMARK_CAPTURE(RunMatMul, int4, DType::kBFloat16, WeightFormat::kInt4)
    ->Apply(AddShapes);

}  // namespace
}  // namespace espalier
