// Products of e4m3 weights on the device in the shapes of a Llama of 8 billion
// parameters, beside those of bfloat16 weights, in every division.
//
//   cuda_fp8_benchmark [all]     # all: every division, not the best alone
//
// Weights come from a ring of 3 GB, so they are cold; x stays in L2. Times are
// medians of a graph's replays, divided by its calls.
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/cuda.h"
#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "benchmarks/cuda_replays.h"
#include "kernels/matmul/cuda_fp8_dequantize.h"
#include "kernels/matmul/cuda_fp8_gemm.h"
#include "kernels/matmul/cuda_fp8_skinny.h"
#include "kernels/matmul/cuda_matmul.h"

namespace espalier {
namespace {

constexpr int64_t kRingBytes = int64_t{3} << 30;
constexpr int kMaxRows = 2048;
constexpr int kMaxOutputs = 128256;

// Random bits: any two bytes are a bfloat16 of size 1, and neither is a NaN of
// e4m3.
__global__ void Fill(uint32_t* out, int64_t size) {
  GridDependencyWait();
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size;
       i += stride) {
    unsigned h = static_cast<unsigned>(i) * 2654435761u ^
                 static_cast<unsigned>(i >> 22) * 0x9E3779B9u;
    h = (h ^ h >> 16) * 0x85EBCA6Bu;
    h = (h ^ h >> 13) * 0xC2B2AE35u;
    out[i] = (h & 0x80FF80FFu & ~0x00800080u) | 0x3F003F00u | (h & 0x00400040u);
  }
}

struct Product {
  const char* name;
  int num_outputs, num_cols;
  CudaEpilogue epilogue;
  bool may_split;
};
constexpr Product kProducts[] = {
    {"qkv", 6144, 4096, CudaEpilogue::kStore, false},
    {"o", 4096, 4096, CudaEpilogue::kAddFloat, true},
    {"gate_up", 28672, 4096, CudaEpilogue::kSiluMul, false},
    {"down", 4096, 14336, CudaEpilogue::kAddFloat, true},
    {"head", 128256, 4096, CudaEpilogue::kStoreFloat, false},
};

class Bench {
 public:
  Bench()
      : device_(Get(CudaDevice::Open(0))),
        stream_(Get(CudaStream::Create())),
        ring_(Numbers(kRingBytes)),
        x_(Numbers(size_t{kMaxRows} * 14336 * 2)),
        scales_(Numbers(kMaxOutputs * 2)),
        out_(Numbers(size_t{kMaxRows} * 32768 * 4)),
        matmul_(Get(CudaMatMul::Create(
            device_, {.max_rows = kMaxRows, .max_outputs = 28672}))),
        gemm_(Get(CudaFp8Gemm::Create(device_))) {
    Check(PrepareFp8Skinny(device_));
    Check(cudaStreamSynchronize(stream_.get()));
    std::printf("%s, %d multiprocessors\n", device_.name.c_str(),
                device_.num_sms);
  }

  double BFloat16(const Product& p, int n) {
    return Time(int64_t{2} * p.num_outputs * p.num_cols, [&](const void* w) {
      const CudaMatrix m = {w, DType::kBFloat16, p.num_outputs, p.num_cols};
      if (p.may_split) {
        return matmul_->RunSplitK(x_.data(), n, m, out(), stream_.get())
            .status();
      }
      return matmul_->Run(x_.data(), n, m, p.epilogue, out(), stream_.get());
    });
  }
  double Skinny(const Product& p, int n, const SkinnyDivision& division) {
    return Time(int64_t{p.num_outputs} * p.num_cols, [&](const void* w) {
      return Fp8SkinnyDivided(x_.data(), n, Fp8(p, w), p.epilogue, out(),
                              division, stream_.get());
    });
  }
  double Gemm(const Product& p, int n, const Fp8Division& division) {
    return Time(int64_t{p.num_outputs} * p.num_cols, [&](const void* w) {
      return gemm_.Run(
          x_.data(), n, Fp8(p, w),
          division.parts > 1 ? CudaEpilogue::kStoreFloat : p.epilogue, division,
          out(), stream_.get());
    });
  }
  double Dequantize(const Product& p) {
    return Time(int64_t{p.num_outputs} * p.num_cols, [&](const void* w) {
      return CudaDequantizeFp8(Fp8(p, w), out(), stream_.get());
    });
  }

 private:
  DeviceBuffer<char> Numbers(size_t bytes) {
    auto buffer = Get(DeviceBuffer<char>::Create(bytes));
    Check(Launch(Fill, {.grid = 1024, .block = 256}, stream_.get(),
                 reinterpret_cast<uint32_t*>(buffer.data()),
                 static_cast<int64_t>(bytes / 4)));
    return buffer;
  }
  float* out() const { return reinterpret_cast<float*>(out_.data()); }
  CudaMatrix Fp8(const Product& p, const void* w) const {
    return {w, DType::kBFloat16, p.num_outputs, p.num_cols,
            reinterpret_cast<const uint16_t*>(scales_.data())};
  }

  // Returns the median microseconds of a call with `bytes` of weights.
  double Time(int64_t bytes,
              const std::function<absl::Status(const void*)>& enqueue) {
    const int calls = static_cast<int>(
        std::clamp<int64_t>((int64_t{400} << 20) / bytes, 2, 24));
    const CudaGraph graph = Get(CaptureGraph(stream_.get(), [&] {
      for (int i = 0; i < calls; ++i) {
        if (next_ + bytes > kRingBytes) next_ = 0;
        RETURN_IF_ERROR(enqueue(ring_.data() + next_));
        next_ += bytes;
      }
      return absl::OkStatus();
    }));
    return Get(MedianMicroseconds(graph, calls, stream_.get()));
  }

  CudaDevice device_;
  CudaStream stream_;
  DeviceBuffer<char> ring_, x_, scales_, out_;
  int64_t next_ = 0;
  std::unique_ptr<CudaMatMul> matmul_;
  CudaFp8Gemm gemm_;
};

struct Best {
  double us = 99999;
  std::string what = "-";
  void Add(double time, const std::string& name, bool shows) {
    if (shows) std::printf("    %-20s %8.2f\n", name.c_str(), time);
    if (time < us) us = time, what = name;
  }
};

Best BestSkinny(Bench& bench, const Product& p, int n, bool shows) {
  Best best;
  const int tiles = (p.num_outputs + 15) / 16;
  for (const int splits : {1, 2, 4}) {
    if (splits > 2 && p.num_cols < 8192) continue;
    for (const int blocks : {132, 264}) {
      const int groups = std::min(blocks / splits, tiles);
      for (const int row_tiles : {1, 2, 3, 4}) {
        if (row_tiles > (tiles + groups - 1) / groups) continue;
        best.Add(bench.Skinny(p, n, {splits, groups, row_tiles}),
                 Concat("s", splits, " g", groups, " t", row_tiles), shows);
      }
    }
  }
  return best;
}

Best BestGemm(Bench& bench, const Product& p, int n, bool shows) {
  Best best;
  for (const int tiles : {1, 2, 4}) {
    for (const int parts : {1, 2, 4}) {
      if (parts > 1 && !p.may_split) continue;
      const int blocks = p.num_outputs / (64 * tiles);
      if (p.num_outputs % (64 * tiles) != 0 || blocks * parts < 48) continue;
      best.Add(bench.Gemm(p, n, {.tiles = tiles, .parts = parts}),
               Concat("t", tiles, " p", parts), shows);
    }
  }
  return best;
}

void Print(Bench& bench, bool shows) {
  std::printf("%-8s %5s %9s %9s %-14s %9s %-12s %8s\n", "product", "rows",
              "bf16 us", "skinny", "", "gemm", "", "TB/s");
  for (const Product& p : kProducts) {
    for (const int n : {1, 4, 8, 16, 32, 64, 128, 256, 512, 2048}) {
      if (n > 512 && p.num_outputs > 100'000) continue;
      if (n > 128 && p.num_outputs > 100'000) continue;
      const double bf16 = bench.BFloat16(p, n);
      Best skinny;
      if (n <= 16) skinny = BestSkinny(bench, p, n, shows);
      const Best gemm = BestGemm(bench, p, n, shows);
      std::printf(
          "%-8s %5d %9.2f %9.2f %-14s %9.2f %-12s %8.2f\n", p.name, n, bf16,
          skinny.us, skinny.what.c_str(), gemm.us, gemm.what.c_str(),
          1e-6 * p.num_outputs * p.num_cols / std::min(skinny.us, gemm.us));
      std::fflush(stdout);
    }
    if (p.num_outputs < 100'000) {
      std::printf("%-8s dequantise %.2f us\n", p.name, bench.Dequantize(p));
    }
  }
}

}  // namespace
}  // namespace espalier

int main(int argc, char**) {
  espalier::Bench bench;
  espalier::Print(bench, argc > 1);
}
