// Matrix products on the device in the shapes of three Llama models: ours,
// cuBLASLt's alone and the time it takes to read the weights; then all products
// of a decode step in their order, with small kernels between them in the
// places of norms and attention, because starting early shows only there.
//
//   cuda_matmul_benchmark        # products, then steps
//   cuda_matmul_benchmark steps
//   cuda_matmul_benchmark small  # small weights and many rows
//
// Weights come from a ring of 3 GB, so they are cold; x stays in L2. Times are
// medians of a graph's replays, divided by its calls.
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string_view>

#include "base/cuda.h"
#include "base/cuda_launch.cuh"
#include "benchmarks/cuda_replays.h"
#include "kernels/matmul/cuda_blas_matmul.h"
#include "kernels/matmul/cuda_matmul.h"
#include "kernels/matmul/cuda_small_gemm.h"

namespace espalier {
namespace {

constexpr int64_t kRingBytes = int64_t{3} << 30;
constexpr int kMaxRows = 2048;
constexpr int kMaxOutputs = 151936;

struct Model {
  const char* name;
  int hidden;
  int layers;
  int q;
  int kv;
  int ffn;
  int vocab;
};
constexpr Model kModels[] = {
    {"68m", 768, 2, 768, 768, 3072, 32000},
    {"1b", 2048, 16, 2048, 512, 8192, 128256},
    {"8b", 4096, 32, 4096, 1024, 14336, 128256},
};
// Whose products are SmallGemm's, or may be.
constexpr Model kSmallModels[] = {
    {"en-fr", 256, 6, 256, 128, 768, 6000},
    {"68m", 768, 2, 768, 768, 3072, 32000},
    {"0.6b", 1024, 28, 2048, 1024, 3072, 151936},
};

// Uniform numbers in [-scale, scale), a hash of their place.
__global__ void Fill(__nv_bfloat16* out, int64_t size, float scale) {
  GridDependencyWait();
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size;
       i += stride) {
    unsigned h = static_cast<unsigned>(i) * 2654435761u ^
                 static_cast<unsigned>(i >> 22) * 0x9E3779B9u;
    h = (h ^ h >> 16) * 0x85EBCA6Bu;
    h = (h ^ h >> 13) * 0xC2B2AE35u;
    out[i] = __nv_bfloat16((h >> 8) * scale * 0x1p-23f - scale);
  }
}

// 64 KiB a block, which reads faster than any loop we tried.
constexpr int kReadThreads = 256;
constexpr int kReadVectors = 16;
__global__ void __launch_bounds__(kReadThreads)
    Read(const uint4* data, int64_t num_vectors, unsigned* sink) {
  LaunchDependents();
  GridDependencyWait();
  uint4 values[kReadVectors] = {};
  const int64_t begin =
      int64_t{blockIdx.x} * kReadThreads * kReadVectors + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kReadVectors; ++i) {
    const int64_t at = begin + i * kReadThreads;
    if (at < num_vectors) values[i] = __ldcs(&data[at]);
  }
  unsigned all = 0;
#pragma unroll
  for (const uint4& v : values) all |= v.x | v.y | v.z | v.w;
  if (all == 0x12345678u) *sink = all;  // keeps the loads
}

template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T values[4];
};

// In the place of a norm, one block a row: `to` is dense.
template <typename From>
__global__ void Between(const Four<From>* from, Four<__nv_bfloat16>* to,
                        int from_stride) {
  LaunchDependents();
  GridDependencyWait();
  const Four<From> in = from[blockIdx.x * from_stride + threadIdx.x];
  float sum = 0;
  for (const From value : in.values) {
    sum += static_cast<float>(value) * static_cast<float>(value);
  }
  __shared__ float warp_sums[32];
  for (int lane = 16; lane > 0; lane /= 2) {
    sum += __shfl_xor_sync(~0u, sum, lane);
  }
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 1;
  for (int i = 0; i < blockDim.x / 32; ++i) sum += warp_sums[i];
  const float scale = rsqrtf(sum / (4 * blockDim.x));
  Four<__nv_bfloat16> out;
  for (int i = 0; i < 4; ++i) {
    out.values[i] = __nv_bfloat16(static_cast<float>(in.values[i]) * scale);
  }
  to[blockIdx.x * blockDim.x + threadIdx.x] = out;
}

enum class Path { kOurs, kSmall, kBlas, kRead };

class Bench {
 public:
  Bench()
      : device_(Get(CudaDevice::Open(0))),
        stream_(Get(CudaStream::Create())),
        ring_(Numbers(kRingBytes / 2, 0.03f)),
        x_(Numbers(size_t{kMaxRows} * 16384, 1.0f)),
        between_(Numbers(size_t{kMaxRows} * 16384, 1.0f)),
        out_(Numbers(size_t{kMaxRows} * kMaxOutputs * 2, 1.0f)),
        matmul_(Get(CudaMatMul::Create(
            device_,
            {.max_rows = kMaxRows, .max_outputs = 2 * kModels[2].ffn}))),
        blas_(Get(CudaBlasMatMul::Create())) {
    Check(PrepareSmallGemm(device_));
    Check(cudaStreamSynchronize(stream_.get()));
    std::printf("%s, %d multiprocessors\n", device_.name.c_str(),
                device_.num_sms);
  }

  // Microseconds of one product of cold weights.
  double Product(Path path, int num_rows, int num_outputs, int num_cols,
                 CudaEpilogue epilogue) {
    const int64_t bytes = int64_t{2} * num_outputs * num_cols;
    const int calls = static_cast<int>(
        std::clamp<int64_t>((int64_t{300} << 20) / bytes, 2, 64));
    return Time([&] {
             for (int i = 0; i < calls; ++i) {
               Multiply(path, x_.data(), num_rows, num_outputs, num_cols,
                        epilogue, out_.data());
             }
           }) /
           calls;
  }

  // Microseconds of a step's products and what stands between them.
  double Step(Path path, const Model& m, int num_rows) {
    return Time([&] {
      for (int i = 0; i < m.layers; ++i) Layer(path, m, num_rows);
      EnqueueBetween(residual(), x_.data(), m.hidden, m.hidden, num_rows);
      Multiply(path, x_.data(), num_rows, m.vocab, m.hidden,
               CudaEpilogue::kStoreFloat, out_.data());
    });
  }

 private:
  using Half = __nv_bfloat16;

  DeviceBuffer<Half> Numbers(size_t size, float scale) {
    auto buffer = Get(DeviceBuffer<Half>::Create(size));
    Check(Launch(Fill, {.grid = 1024, .block = 256}, stream_.get(),
                 buffer.data(), static_cast<int64_t>(size), scale));
    return buffer;
  }
  float* residual() const { return reinterpret_cast<float*>(out_.data()); }

  // Returns the next `size` weights of the ring.
  const Half* NextWeights(int64_t size) {
    if (next_ + size > static_cast<int64_t>(ring_.size())) next_ = 0;
    next_ += size;
    return ring_.data() + next_ - size;
  }

  void Multiply(Path path, const void* x, int num_rows, int num_outputs,
                int num_cols, CudaEpilogue epilogue, void* out) {
    const CudaMatrix w = {NextWeights(int64_t{num_outputs} * num_cols),
                          DType::kBFloat16, num_outputs, num_cols};
    switch (path) {
      case Path::kOurs:
        Check(matmul_->Run(x, num_rows, w, epilogue, out, stream_.get()));
        return;
      case Path::kSmall:
        Check(SmallGemm(x, num_rows, w, epilogue, out, stream_.get()));
        return;
      case Path::kBlas:
        // Gates and ups are stored as they are: a product alone.
        Check(blas_->Run(x, num_rows, w,
                         epilogue == CudaEpilogue::kStore ||
                                 epilogue == CudaEpilogue::kSiluMul
                             ? DType::kBFloat16
                             : DType::kFloat32,
                         epilogue == CudaEpilogue::kAddFloat, out,
                         stream_.get()));
        return;
      case Path::kRead:
        break;
    }
    const int64_t num_vectors = int64_t{num_outputs} * num_cols / 8;
    const int64_t vectors_a_block = kReadThreads * kReadVectors;
    const auto grid = static_cast<unsigned>(
        (num_vectors + vectors_a_block - 1) / vectors_a_block);
    Check(Launch(Read, {.grid = grid, .block = kReadThreads}, stream_.get(),
                 static_cast<const uint4*>(w.data), num_vectors,
                 reinterpret_cast<unsigned*>(x_.data())));
  }

  template <typename From>
  void EnqueueBetween(const From* from, Half* to, int from_stride, int size,
                      int num_rows) {
    Check(Launch(Between<From>,
                 {.grid = static_cast<unsigned>(num_rows),
                  .block = static_cast<unsigned>(size / 4)},
                 stream_.get(), reinterpret_cast<const Four<From>*>(from),
                 reinterpret_cast<Four<Half>*>(to), from_stride / 4));
  }

  void Layer(Path path, const Model& m, int num_rows) {
    const int qkv_size = m.q + 2 * m.kv;
    Half* const qkv = out_.data() + size_t{kMaxRows} * 16384;
    Half* const ffn = qkv + size_t{kMaxRows} * 16384;
    EnqueueBetween(residual(), x_.data(), m.hidden, m.hidden, num_rows);
    Multiply(path, x_.data(), num_rows, qkv_size, m.hidden,
             CudaEpilogue::kStore, qkv);
    EnqueueBetween(qkv, between_.data(), qkv_size, m.q, num_rows);
    Multiply(path, between_.data(), num_rows, m.hidden, m.q,
             CudaEpilogue::kAddFloat, residual());
    EnqueueBetween(residual(), x_.data(), m.hidden, m.hidden, num_rows);
    Multiply(path, x_.data(), num_rows, 2 * m.ffn, m.hidden,
             CudaEpilogue::kSiluMul, ffn);
    Multiply(path, ffn, num_rows, m.hidden, m.ffn, CudaEpilogue::kAddFloat,
             residual());
  }

  // Median microseconds of a graph of what `enqueue` enqueues.
  double Time(const std::function<void()>& enqueue) {
    const CudaGraph graph = Get(CaptureGraph(stream_.get(), [&] {
      enqueue();
      return absl::OkStatus();
    }));
    return Get(MedianMicroseconds(graph, /*num_calls=*/1, stream_.get()));
  }

  CudaDevice device_;
  CudaStream stream_;
  DeviceBuffer<Half> ring_;
  int64_t next_ = 0;
  DeviceBuffer<Half> x_;
  DeviceBuffer<Half> between_;
  DeviceBuffer<Half> out_;
  std::unique_ptr<CudaMatMul> matmul_;
  std::unique_ptr<CudaBlasMatMul> blas_;
};

constexpr int kRows[] = {1, 4, 8, 16, 24, 32, 40, 48, 64, 128, 160};

void PrintProduct(Bench& bench, const char* model, const char* name,
                  int num_outputs, int num_cols, CudaEpilogue epilogue) {
  const double megabytes = 2e-6 * num_outputs * num_cols;
  const double read =
      bench.Product(Path::kRead, 1, num_outputs, num_cols, epilogue);
  for (const int n : kRows) {
    const double ours =
        bench.Product(Path::kOurs, n, num_outputs, num_cols, epilogue);
    const double blas =
        bench.Product(Path::kBlas, n, num_outputs, num_cols, epilogue);
    std::printf("%-4s %-8s %4d %7.1f %8.2f %6.2f %9.2f %8.2f %8.2f\n", model,
                name, n, megabytes, ours, megabytes / ours, blas, read,
                blas / ours);
  }
  std::fflush(stdout);
}

void PrintProducts(Bench& bench) {
  std::printf("%-4s %-8s %4s %7s %8s %6s %9s %8s %8s\n", "", "product", "rows",
              "MB", "ours us", "TB/s", "cublaslt", "read", "speedup");
  for (const Model& m : kModels) {
    PrintProduct(bench, m.name, "qkv", m.q + 2 * m.kv, m.hidden,
                 CudaEpilogue::kStore);
    PrintProduct(bench, m.name, "o", m.hidden, m.q, CudaEpilogue::kAddFloat);
    PrintProduct(bench, m.name, "gate_up", 2 * m.ffn, m.hidden,
                 CudaEpilogue::kSiluMul);
    PrintProduct(bench, m.name, "down", m.hidden, m.ffn,
                 CudaEpilogue::kAddFloat);
    PrintProduct(bench, m.name, "head", m.vocab, m.hidden,
                 CudaEpilogue::kStoreFloat);
  }
}

void PrintSmall(Bench& bench) {
  std::printf("%-5s %-8s %5s %8s %9s %8s\n", "", "product", "rows", "small us",
              "cublaslt", "speedup");
  for (const Model& m : kSmallModels) {
    const auto print = [&](const char* name, int num_outputs, int num_cols,
                           CudaEpilogue epilogue) {
      for (const int n : {17, 32, 64, 128, 256, 512, 1024, 2048}) {
        const double small =
            bench.Product(Path::kSmall, n, num_outputs, num_cols, epilogue);
        const double blas =
            bench.Product(Path::kBlas, n, num_outputs, num_cols, epilogue);
        std::printf("%-5s %-8s %5d %8.2f %9.2f %8.2f\n", m.name, name, n, small,
                    blas, blas / small);
      }
    };
    print("qkv", m.q + 2 * m.kv, m.hidden, CudaEpilogue::kStore);
    print("o", m.hidden, m.q, CudaEpilogue::kAddFloat);
    print("gate_up", 2 * m.ffn, m.hidden, CudaEpilogue::kSiluMul);
    print("down", m.hidden, m.ffn, CudaEpilogue::kAddFloat);
    print("head", m.vocab, m.hidden, CudaEpilogue::kStoreFloat);
  }
}

void PrintSteps(Bench& bench) {
  std::printf("step rows  ours us  cublaslt     read  speedup\n");
  for (const Model& m : kModels) {
    for (const int n : kRows) {
      const double ours = bench.Step(Path::kOurs, m, n);
      const double blas = bench.Step(Path::kBlas, m, n);
      const double read = bench.Step(Path::kRead, m, n);
      std::printf("%-4s %4d %8.1f %9.1f %8.1f %8.2f\n", m.name, n, ours, blas,
                  read, blas / ours);
    }
  }
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  espalier::Bench bench;
  if (argc > 1 && argv[1] == std::string_view("small")) {
    espalier::PrintSmall(bench);
    return 0;
  }
  if (argc == 1) espalier::PrintProducts(bench);
  espalier::PrintSteps(bench);
}
