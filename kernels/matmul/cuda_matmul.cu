#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <utility>

#include "base/ceil_div.h"
#include "base/cuda_launch.cuh"
#include "kernels/cuda_element_type.cuh"
#include "kernels/matmul/cuda_blas_matmul.h"
#include "kernels/matmul/cuda_fp8_matmul.h"
#include "kernels/matmul/cuda_gate_up_gemm.h"
#include "kernels/matmul/cuda_matmul.h"
#include "kernels/matmul/cuda_skinny_matmul.h"
#include "kernels/matmul/cuda_small_gemm.h"

namespace espalier {
namespace {

// Products for kSiluMul go through scratch in runs of this many rows: enough
// to be bound by the multipliers, and few enough (58 MB of bf16 at 28,672
// outputs) that much of them is still in L2 when SiluMul reads them.
constexpr int kSiluRows = 1024;

// RunSplitK divides the inputs so that about every second multiprocessor has a
// tile of this many rows and outputs. Twice as many tiles are multiplied no
// faster, and their sums take longer to add. A part is whole steps of
// cuBLASLt's loop over the inputs. Products with no more inputs than outputs
// gain nothing. On an H200 it takes 100 us off a step of 128 rows of 8b, 46 of
// 1b, 84 of 0.6b.
constexpr int kPartTile = 128;
constexpr int kPartUnit = 64;
constexpr int kMaxParts = 4;
// Two parts may have a tile for every multiprocessor, up to this many rows:
// cuBLASLt itself divides such inputs, and adds the parts in an extra kernel.
// On an H100 RunSplitK takes 98 us off a step of 160 rows of 8b, 170 off one of
// 256, 206 off one of 320 of 1b; 1,024 rows of 0.6b take 2 % longer.
constexpr int kMaxHalvedRows = 512;

// Eight numbers of a gate or an up: a load of 16 or 32 bytes.
template <typename T>
struct alignas(16) Eight {
  T values[8];
};

// One thread a block of sixteen: 256 threads fill a multiprocessor eight times.
constexpr int kSiluThreads = 256;

// out[i] = silu(gate_up[i].gate) * gate_up[i].up.
//   gate_up  [num_blocks, 2: gates, ups]  T
//   out      [num_blocks]                 T
// Moves 3 numbers an output, mostly from L2.
template <typename T>
__global__ void __launch_bounds__(kSiluThreads)
    SiluMul(const Eight<T>* gate_up, int64_t num_blocks, Eight<T>* out) {
  LaunchDependents();
  GridDependencyWait();
  const int64_t i = int64_t{blockIdx.x} * kSiluThreads + threadIdx.x;
  if (i >= num_blocks) return;
  const Eight<T> gates = gate_up[2 * i];
  const Eight<T> ups = gate_up[2 * i + 1];
  Eight<T> result;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float gate = static_cast<float>(gates.values[j]);
    const float up = static_cast<float>(ups.values[j]);
    result.values[j] = T(gate / (1 + __expf(-gate)) * up);
  }
  out[i] = result;
}

absl::Status EnqueueSiluMul(DType dtype, const void* gate_up,
                            int64_t num_outputs, void* out,
                            cudaStream_t stream) {
  const int64_t num_blocks = num_outputs / 8;
  const int64_t grid = (num_blocks + kSiluThreads - 1) / kSiluThreads;
  return WithType(dtype, [&]<typename T>(T) {
    return Launch(SiluMul<T>,
                  {.grid = static_cast<unsigned>(grid), .block = kSiluThreads},
                  stream, static_cast<const Eight<T>*>(gate_up), num_blocks,
                  static_cast<Eight<T>*>(out));
  });
}

}  // namespace

class CudaMatMul::Impl {
 public:
  absl::Status Init(const CudaDevice& device, const CudaMatMulLimits& limits) {
    device_ = device;
    max_rows_ = limits.max_rows;
    silu_rows_ = std::min(max_rows_, kSiluRows);
    max_outputs_ = limits.max_outputs;
    RETURN_IF_ERROR(PrepareSkinnyMatMul(device));
    ASSIGN_OR_RETURN(tile_, CudaGateUpGemm::Create(device));
    if (limits.max_fp8_weights > 0) {
      ASSIGN_OR_RETURN(fp8_,
                       CudaFp8MatMul::Create(device, limits.max_fp8_weights));
    }
    if (limits.largest_matrix > CudaMatMulLimits::kSmallMatrix || fp8_ ||
        !CanRunSmallGemm(device)) {
      ASSIGN_OR_RETURN(blas_, CudaBlasMatMul::Create());
    } else {
      RETURN_IF_ERROR(PrepareSmallGemm(device));
    }
    ASSIGN_OR_RETURN(scratch_, DeviceBuffer<float>::Create(size_t(silu_rows_) *
                                                           max_outputs_));
    // Cleared for the same reason as cuBLASLt's workspace.
    RETURN_IF_CUDA_ERROR(cudaMemset(scratch_.data(), 0, scratch_.size_bytes()));
    // Other streams would not wait for the memset.
    RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(nullptr));
    return absl::OkStatus();
  }

  // `epilogue` is kAddFloat or kStoreFloat: that of a single part.
  absl::StatusOr<SplitKPartials> RunSplitK(const void* x, int num_rows,
                                           const CudaMatrix& w,
                                           CudaEpilogue epilogue, float* out,
                                           cudaStream_t stream) {
    RETURN_IF_ERROR(Check(num_rows, w, epilogue));
    const int num_parts = NumParts(num_rows, w);
    if (w.fp8_scales != nullptr && num_parts > 1) {
      RETURN_IF_ERROR(
          fp8_->RunParts(x, num_rows, w, num_parts, scratch_.data(), stream));
      return SplitKPartials{scratch_.data(), num_parts};
    }
    if (num_parts == 1) {
      RETURN_IF_ERROR(Run(x, num_rows, w, epilogue, out, stream));
      if (epilogue == CudaEpilogue::kAddFloat) return SplitKPartials{};
      return SplitKPartials{out, 1};
    }
    RETURN_IF_ERROR(blas_ ? blas_->RunParts(x, num_rows, w, num_parts,
                                            scratch_.data(), stream)
                          : SmallGemmParts(x, num_rows, w, num_parts,
                                           scratch_.data(), stream));
    return SplitKPartials{scratch_.data(), num_parts};
  }

  absl::Status RunActivated(const void* x, int num_rows, const CudaMatrix& w,
                            const CudaActivation& activation, void* out,
                            cudaStream_t stream) {
    RETURN_IF_ERROR(Check(num_rows, w, CudaEpilogue::kStore));
    RETURN_IF_ERROR(CheckActivation(activation, w.num_rows));
    if (w.num_rows > max_outputs_) {
      return InvalidArgument("a feed-forward part of ", w.num_rows,
                             " rows, at most ", max_outputs_,
                             " were planned for");
    }
    const int bytes = NumBytes(w.dtype);
    const int64_t width =
        activation.has_gate ? int64_t{w.num_rows} / 2 : w.num_rows;
    for (int row = 0; row < num_rows; row += silu_rows_) {
      const int n = std::min(silu_rows_, num_rows - row);
      RETURN_IF_ERROR(
          Run(static_cast<const char*>(x) + int64_t{row} * w.num_cols * bytes,
              n, w, CudaEpilogue::kStore, scratch_.data(), stream));
      RETURN_IF_ERROR(
          CudaActivate(scratch_.data(), w.dtype, n, w.num_rows, activation,
                       static_cast<char*>(out) + row * width * bytes, stream));
    }
    return absl::OkStatus();
  }

  absl::Status Run(const void* x, int num_rows, const CudaMatrix& w,
                   CudaEpilogue epilogue, void* out, cudaStream_t stream) {
    RETURN_IF_ERROR(Check(num_rows, w, epilogue));
    if (num_rows == 0 || w.num_rows == 0) return absl::OkStatus();
    if (w.fp8_scales != nullptr) {
      if (fp8_->CanImplement(num_rows, w)) {
        return fp8_->Run(x, num_rows, w, epilogue, out, stream);
      }
      ASSIGN_OR_RETURN(const CudaMatrix widened, fp8_->Widen(w, stream));
      return RunBlas(x, num_rows, widened, epilogue, out, stream);
    }
    if (SkinnyMatMulIsProfitable(num_rows, w, device_)) {
      return SkinnyMatMul(x, num_rows, w, epilogue, out, device_, stream);
    }
    if (epilogue == CudaEpilogue::kSiluMul && tile_.IsProfitable(num_rows, w)) {
      return tile_.Run(x, num_rows, w, out, stream);
    }
    if (!blas_) return SmallGemm(x, num_rows, w, epilogue, out, stream);
    return RunBlas(x, num_rows, w, epilogue, out, stream);
  }

 private:
  // Reads nothing before the previous kernels have ended.
  absl::Status RunBlas(const void* x, int num_rows, const CudaMatrix& w,
                       CudaEpilogue epilogue, void* out, cudaStream_t stream) {
    if (epilogue == CudaEpilogue::kSiluMul) {
      return RunSiluMul(x, num_rows, w, out, stream);
    }
    const DType out_dtype =
        epilogue == CudaEpilogue::kStore ? w.dtype : DType::kFloat32;
    return blas_->Run(x, num_rows, w, out_dtype,
                      epilogue == CudaEpilogue::kAddFloat, out, stream);
  }

  absl::Status Check(int num_rows, const CudaMatrix& w,
                     CudaEpilogue epilogue) const {
    if (num_rows < 0 || num_rows > max_rows_) {
      return InvalidArgument("a product of ", num_rows, " rows, at most ",
                             max_rows_, " were planned for");
    }
    if (w.num_cols < 8 || w.num_cols % 8 != 0) {
      return InvalidArgument("weights of ", w.num_cols,
                             " columns, not a multiple of 8");
    }
    if (epilogue == CudaEpilogue::kSiluMul &&
        (w.num_rows % 16 != 0 || w.num_rows > max_outputs_)) {
      return InvalidArgument("gates and ups in ", w.num_rows,
                             " rows: not a multiple of 16, or over the ",
                             max_outputs_, " planned for");
    }
    if (!blas_ && w.dtype == DType::kFloat32) {
      return InvalidArgument("weights of f32, of 16 bits were planned for");
    }
    if (const int64_t size = int64_t{w.num_rows} * w.num_cols;
        !blas_ && size > CudaMatMulLimits::kSmallMatrix) {
      return InvalidArgument("a matrix of ", size, " weights, at most ",
                             CudaMatMulLimits::kSmallMatrix,
                             " were planned for");
    }
    if (w.fp8_scales == nullptr) return absl::OkStatus();
    if (fp8_ == nullptr) {
      return InvalidArgument("weights of e4m3, none were planned for");
    }
    return fp8_->Check(w);
  }

  // Returns the number of parts that RunSplitK divides the inputs into.
  int NumParts(int num_rows, const CudaMatrix& w) const {
    const int64_t part_size = int64_t{num_rows} * w.num_rows;
    if (w.fp8_scales != nullptr) {
      const int num_parts = fp8_->NumParts(num_rows, w);
      const bool fits =
          num_parts * part_size <= int64_t{silu_rows_} * max_outputs_;
      return fits ? num_parts : 1;
    }
    if (num_rows == 0 || w.num_rows == 0 || w.num_cols <= w.num_rows ||
        w.dtype == DType::kFloat32 ||
        SkinnyMatMulIsProfitable(num_rows, w, device_)) {
      return 1;
    }
    const int num_tiles =
        CeilDiv(num_rows, kPartTile) * CeilDiv(w.num_rows, kPartTile);
    const auto fits = [&](int num_parts) {
      const int num_blocks = num_parts * num_tiles;
      const bool leaves_half = 2 * num_blocks <= device_.num_sms;
      return (leaves_half || (num_parts == 2 && num_rows <= kMaxHalvedRows &&
                              num_blocks <= device_.num_sms)) &&
             w.num_cols % (num_parts * kPartUnit) == 0 &&
             w.num_rows % 4 == 0 &&  // parts are 16-byte aligned
             num_parts * part_size <= int64_t{silu_rows_} * max_outputs_;
    };
    int num_parts = kMaxParts;
    while (num_parts > 1 && !fits(num_parts)) num_parts /= 2;
    return num_parts;
  }

  absl::Status RunSiluMul(const void* x, int num_rows, const CudaMatrix& w,
                          void* out, cudaStream_t stream) {
    const int bytes = NumBytes(w.dtype);
    for (int row = 0; row < num_rows; row += silu_rows_) {
      const int n = std::min(silu_rows_, num_rows - row);
      RETURN_IF_ERROR(blas_->Run(
          static_cast<const char*>(x) + int64_t{row} * w.num_cols * bytes, n, w,
          w.dtype, /*add=*/false, scratch_.data(), stream));
      const int64_t num_outputs = int64_t{n} * (w.num_rows / 2);
      RETURN_IF_ERROR(EnqueueSiluMul(
          w.dtype, scratch_.data(), num_outputs,
          static_cast<char*>(out) + int64_t{row} * (w.num_rows / 2) * bytes,
          stream));
    }
    return absl::OkStatus();
  }

  // Constant after Init.
  CudaDevice device_;
  int max_rows_ = 0;
  int silu_rows_ = 0;
  int max_outputs_ = 0;
  CudaGateUpGemm tile_;
  std::unique_ptr<CudaBlasMatMul> blas_;  // null: all matrices are small
  std::unique_ptr<CudaFp8MatMul> fp8_;    // null: no weights of e4m3
  DeviceBuffer<float> scratch_;  // [silu_rows_, max_outputs_] of any dtype
};

absl::StatusOr<std::unique_ptr<CudaMatMul>> CudaMatMul::Create(
    const CudaDevice& device, const CudaMatMulLimits& limits) {
  auto impl = std::make_unique<Impl>();
  RETURN_IF_ERROR(impl->Init(device, limits));
  return std::unique_ptr<CudaMatMul>(new CudaMatMul(std::move(impl)));
}

CudaMatMul::CudaMatMul(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaMatMul::~CudaMatMul() = default;

absl::Status CudaMatMul::Run(const void* x, int num_rows, const CudaMatrix& w,
                             CudaEpilogue epilogue, void* out,
                             cudaStream_t stream) {
  return impl_->Run(x, num_rows, w, epilogue, out, stream);
}

absl::StatusOr<SplitKPartials> CudaMatMul::RunSplitK(const void* x,
                                                     int num_rows,
                                                     const CudaMatrix& w,
                                                     float* residual,
                                                     cudaStream_t stream) {
  return impl_->RunSplitK(x, num_rows, w, CudaEpilogue::kAddFloat, residual,
                          stream);
}

absl::StatusOr<SplitKPartials> CudaMatMul::RunPartials(const void* x,
                                                       int num_rows,
                                                       const CudaMatrix& w,
                                                       float* out,
                                                       cudaStream_t stream) {
  return impl_->RunSplitK(x, num_rows, w, CudaEpilogue::kStoreFloat, out,
                          stream);
}

absl::Status CudaMatMul::RunActivated(const void* x, int num_rows,
                                      const CudaMatrix& w,
                                      const CudaActivation& activation,
                                      void* out, cudaStream_t stream) {
  return impl_->RunActivated(x, num_rows, w, activation, out, stream);
}

}  // namespace espalier
