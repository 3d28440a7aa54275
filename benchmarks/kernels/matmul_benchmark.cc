// Matrix products with the shapes of models/en-fr: speed, and the share of
// what one thread can at most do.
//
//   matmul_benchmark --benchmark_filter='bf16.*threads:1'
//
// GFLOP/s counts a multiply-add as two; GB/s counts the weights once. Weights
// of the small shapes stay in the caches from one iteration to the next, as
// those of a small model do from one step to the next.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/matmul/matmul.h"

namespace espalier {
namespace {

PackedMatrix RandomMatrix(int num_rows, int num_cols, DType dtype) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const int num_bytes = NumBytes(dtype);
  std::vector<std::byte> data(size_t(num_rows) * num_cols * num_bytes);
  for (size_t i = 0; i < data.size(); i += num_bytes) {
    const float value = normal(random);
    // The upper half of a float32 is a bfloat16.
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    std::memcpy(&data[i], bytes + 4 - num_bytes, num_bytes);
  }
  const PackedMatrix::Part part = {data, dtype, num_rows};
  ThreadPool pool;
  return PackedMatrix::Pack({&part, 1}, num_cols, pool);
}

void RunMatMul(benchmark::State& state, DType dtype) {
  const int num_cols = static_cast<int>(state.range(0));
  const int num_outputs = static_cast<int>(state.range(1));
  const int num_rows = static_cast<int>(state.range(2));
  const auto pool =
      ThreadPool::Create(static_cast<int>(state.range(3))).value();
  const PackedMatrix w = RandomMatrix(num_outputs, num_cols, dtype);
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
      benchmark::Counter(1e-9 * weights * NumBytes(dtype),
                         benchmark::Counter::kIsIterationInvariantRate);
}

// {inputs, outputs} of the products of a layer of models/en-fr, its language
// model head, and one of a large model.
constexpr int kShapes[][2] = {{256, 512}, {256, 256},  {256, 1536},
                              {768, 256}, {256, 6000}, {4096, 4096}};

void AddShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"k", "n", "rows", "threads"})->UseRealTime();
  for (const auto& shape : kShapes) {
    for (const int rows : {1, 4, 5, 16, 64, 256}) {
      for (const int threads : {1, 2}) {
        benchmark->Args({shape[0], shape[1], rows, threads});
      }
    }
  }
}

BENCHMARK_CAPTURE(RunMatMul, bf16, DType::kBFloat16)->Apply(AddShapes);
BENCHMARK_CAPTURE(RunMatMul, f32, DType::kFloat32)->Apply(AddShapes);

}  // namespace
}  // namespace espalier
