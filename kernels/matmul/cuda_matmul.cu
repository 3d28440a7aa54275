#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <utility>

#include "base/ceil_div.h"
#include "base/cuda_launch.cuh"
#include "kernels/cuda_element_type.cuh"
#include "kernels/matmul/cuda_blas_matmul.h"
#include "kernels/matmul/cuda_fp8_matmul.h"
#include "kernels/matmul/cuda_fp8_skinny.h"
#include "kernels/matmul/cuda_matmul.h"
#include "kernels/matmul/cuda_matmul_choice.h"
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

// One product, as CudaMatMul::Run takes it.
struct Product {
  const void* x;
  int num_rows;
  const CudaMatrix& w;
  CudaEpilogue epilogue;
  void* out;
  cudaStream_t stream;
};

// The kernels and scratch of a CudaMatMul. Constant after its creation.
struct Resources {
  CudaMatMulKernels kernels;
  int max_rows = 0;
  int silu_rows = 0;
  int max_outputs = 0;
  std::unique_ptr<CudaBlasMatMul> blas;  // null: all matrices are small
  std::unique_ptr<CudaFp8MatMul> fp8;    // null: no weights of e4m3
  DeviceBuffer<float> scratch;  // [silu_rows, max_outputs] of any dtype
};

// ---- Launches ---------------------------------------------------------------

absl::Status LaunchFp8Skinny(const Resources& r, const Product& p) {
  return Fp8SkinnyMatMul(p.x, p.num_rows, p.w, p.epilogue, p.out,
                         r.kernels.device, p.stream);
}

absl::Status LaunchFp8Gemm(const Resources& r, const Product& p) {
  const CudaFp8Gemm& gemm = r.kernels.fp8_gemm;
  return gemm.Run(p.x, p.num_rows, p.w, p.epilogue,
                  gemm.Divide(p.num_rows, p.w, /*may_split=*/false), p.out,
                  p.stream);
}

absl::Status LaunchSkinny(const Resources& r, const Product& p) {
  return SkinnyMatMul(p.x, p.num_rows, p.w, p.epilogue, p.out, r.kernels.device,
                      p.stream);
}

absl::Status LaunchGateUpGemm(const Resources& r, const Product& p) {
  return r.kernels.gate_up.Run(p.x, p.num_rows, p.w, p.out, p.stream);
}

absl::Status LaunchSmallGemm(const Resources&, const Product& p) {
  return SmallGemm(p.x, p.num_rows, p.w, p.epilogue, p.out, p.stream);
}

absl::Status LaunchBlasSiluMul(const Resources& r, const Product& p) {
  const CudaMatrix& w = p.w;
  const int bytes = NumBytes(w.dtype);
  for (int row = 0; row < p.num_rows; row += r.silu_rows) {
    const int n = std::min(r.silu_rows, p.num_rows - row);
    RETURN_IF_ERROR(r.blas->Run(
        static_cast<const char*>(p.x) + int64_t{row} * w.num_cols * bytes, n, w,
        w.dtype, /*add=*/false, r.scratch.data(), p.stream));
    const int64_t num_outputs = int64_t{n} * (w.num_rows / 2);
    RETURN_IF_ERROR(EnqueueSiluMul(
        w.dtype, r.scratch.data(), num_outputs,
        static_cast<char*>(p.out) + int64_t{row} * (w.num_rows / 2) * bytes,
        p.stream));
  }
  return absl::OkStatus();
}

// Reads nothing before the previous kernels have ended.
absl::Status LaunchBlas(const Resources& r, const Product& p) {
  if (p.epilogue == CudaEpilogue::kSiluMul) return LaunchBlasSiluMul(r, p);
  const DType out_dtype =
      p.epilogue == CudaEpilogue::kStore ? p.w.dtype : DType::kFloat32;
  return r.blas->Run(p.x, p.num_rows, p.w, out_dtype,
                     p.epilogue == CudaEpilogue::kAddFloat, p.out, p.stream);
}

absl::Status LaunchFp8Widened(const Resources& r, const Product& p) {
  ASSIGN_OR_RETURN(const CudaMatrix widened, r.fp8->Widen(p.w, p.stream));
  return LaunchBlas(r, {p.x, p.num_rows, widened, p.epilogue, p.out, p.stream});
}

// ---- The candidates ---------------------------------------------------------

// A kernel, with functions of a product's shapes.
struct KernelCandidate {
  using Condition = bool (*)(const CudaMatMulKernels& kernels, int num_rows,
                             const CudaMatrix& w, CudaEpilogue epilogue);

  CudaMatMulKernel kernel;
  bool is_fp8;  // the weights are e4m3 codes
  // The kernel supports the product on this device.
  Condition can_run;
  // By the GPU's tuning it is faster than the candidates after it.
  // REQUIRES: can_run.
  Condition is_fastest;
  absl::Status (*launch)(const Resources& resources, const Product& product);
};

bool Always(const CudaMatMulKernels&, int, const CudaMatrix&, CudaEpilogue) {
  return true;
}

// Fastest first. The last candidate of each kind of weights runs every product
// that the ones before it do not.
constexpr KernelCandidate kCandidates[] = {
    {.kernel = CudaMatMulKernel::kFp8Skinny,
     .is_fp8 = true,
     .can_run =
         [](const CudaMatMulKernels& kernels, int num_rows, const CudaMatrix&,
            CudaEpilogue) { return HasFp8Skinny(num_rows, kernels.device); },
     .is_fastest =
         [](const CudaMatMulKernels& kernels, int num_rows, const CudaMatrix&,
            CudaEpilogue) {
           return num_rows <= kernels.tuning->max_fp8_skinny_rows;
         },
     .launch = LaunchFp8Skinny},
    {.kernel = CudaMatMulKernel::kFp8Gemm,
     .is_fp8 = true,
     .can_run = [](const CudaMatMulKernels& kernels, int, const CudaMatrix& w,
                   CudaEpilogue) { return kernels.fp8_gemm.CanImplement(w); },
     .is_fastest =
         [](const CudaMatMulKernels& kernels, int num_rows, const CudaMatrix&,
            CudaEpilogue) {
           return num_rows <= kernels.tuning->max_fp8_gemm_rows;
         },
     .launch = LaunchFp8Gemm},
    {.kernel = CudaMatMulKernel::kFp8Widened,
     .is_fp8 = true,
     .can_run = Always,
     .is_fastest = Always,
     .launch = LaunchFp8Widened},
    {.kernel = CudaMatMulKernel::kSkinny,
     .is_fp8 = false,
     .can_run =
         [](const CudaMatMulKernels& kernels, int num_rows, const CudaMatrix& w,
            CudaEpilogue) {
           return CanRunSkinnyMatMul(num_rows, w, kernels.device);
         },
     .is_fastest =
         [](const CudaMatMulKernels& kernels, int num_rows, const CudaMatrix& w,
            CudaEpilogue) {
           return SkinnyMatMulIsProfitable(num_rows, w, kernels.device,
                                           *kernels.tuning);
         },
     .launch = LaunchSkinny},
    {.kernel = CudaMatMulKernel::kGateUpGemm,
     .is_fp8 = false,
     .can_run =
         [](const CudaMatMulKernels& kernels, int num_rows, const CudaMatrix& w,
            CudaEpilogue epilogue) {
           return epilogue == CudaEpilogue::kSiluMul &&
                  kernels.gate_up.CanImplement(num_rows, w);
         },
     .is_fastest =
         [](const CudaMatMulKernels& kernels, int num_rows, const CudaMatrix& w,
            CudaEpilogue) { return kernels.gate_up.IsProfitable(num_rows, w); },
     .launch = LaunchGateUpGemm},
    {.kernel = CudaMatMulKernel::kBlas,
     .is_fp8 = false,
     .can_run = [](const CudaMatMulKernels& kernels, int, const CudaMatrix&,
                   CudaEpilogue) { return kernels.has_blas; },
     .is_fastest = Always,
     .launch = LaunchBlas},
    {.kernel = CudaMatMulKernel::kSmallGemm,
     .is_fp8 = false,
     .can_run = Always,
     .is_fastest = Always,
     .launch = LaunchSmallGemm},
};

const KernelCandidate& FindCandidate(const CudaMatMulKernels& kernels,
                                     int num_rows, const CudaMatrix& w,
                                     CudaEpilogue epilogue) {
  const bool is_fp8 = w.fp8_scales != nullptr;
  return *std::ranges::find_if(
      kCandidates, [&](const KernelCandidate& candidate) {
        return candidate.is_fp8 == is_fp8 &&
               candidate.can_run(kernels, num_rows, w, epilogue) &&
               candidate.is_fastest(kernels, num_rows, w, epilogue);
      });
}

}  // namespace

absl::StatusOr<CudaMatMulKernels> CudaMatMulKernels::Prepare(
    const CudaDevice& device, bool has_fp8_weights) {
  CudaMatMulKernels kernels;
  kernels.device = device;
  kernels.tuning = &MatMulTuningOf(device);
  ASSIGN_OR_RETURN(kernels.gate_up, CudaGateUpGemm::Create(device));
  if (has_fp8_weights) {
    ASSIGN_OR_RETURN(kernels.fp8_gemm, CudaFp8Gemm::Create(device));
  }
  return kernels;
}

CudaMatMulKernel ChooseMatMulKernel(const CudaMatMulKernels& kernels,
                                    int num_rows, const CudaMatrix& w,
                                    CudaEpilogue epilogue) {
  return FindCandidate(kernels, num_rows, w, epilogue).kernel;
}

class CudaMatMul::Impl {
 public:
  absl::Status Init(const CudaDevice& device, const CudaMatMulLimits& limits) {
    r_.max_rows = limits.max_rows;
    r_.silu_rows = std::min(r_.max_rows, kSiluRows);
    r_.max_outputs = limits.max_outputs;
    RETURN_IF_ERROR(PrepareSkinnyMatMul(device));
    const bool has_fp8_weights = limits.max_fp8_weights > 0;
    ASSIGN_OR_RETURN(r_.kernels,
                     CudaMatMulKernels::Prepare(device, has_fp8_weights));
    if (has_fp8_weights) {
      ASSIGN_OR_RETURN(r_.fp8,
                       CudaFp8MatMul::Create(device, r_.kernels.fp8_gemm,
                                             limits.max_fp8_weights));
    }
    r_.kernels.has_blas =
        limits.largest_matrix > CudaMatMulLimits::kSmallMatrix ||
        has_fp8_weights || !CanRunSmallGemm(device);
    if (r_.kernels.has_blas) {
      ASSIGN_OR_RETURN(r_.blas, CudaBlasMatMul::Create());
    } else {
      RETURN_IF_ERROR(PrepareSmallGemm(device));
    }
    ASSIGN_OR_RETURN(r_.scratch, DeviceBuffer<float>::Create(
                                     size_t(r_.silu_rows) * r_.max_outputs));
    // Cleared for the same reason as cuBLASLt's workspace.
    RETURN_IF_CUDA_ERROR(
        cudaMemset(r_.scratch.data(), 0, r_.scratch.size_bytes()));
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
      RETURN_IF_ERROR(r_.fp8->RunParts(x, num_rows, w, num_parts,
                                       r_.scratch.data(), stream));
      return SplitKPartials{r_.scratch.data(), num_parts};
    }
    if (num_parts == 1) {
      RETURN_IF_ERROR(Run(x, num_rows, w, epilogue, out, stream));
      if (epilogue == CudaEpilogue::kAddFloat) return SplitKPartials{};
      return SplitKPartials{out, 1};
    }
    RETURN_IF_ERROR(r_.blas ? r_.blas->RunParts(x, num_rows, w, num_parts,
                                                r_.scratch.data(), stream)
                            : SmallGemmParts(x, num_rows, w, num_parts,
                                             r_.scratch.data(), stream));
    return SplitKPartials{r_.scratch.data(), num_parts};
  }

  absl::Status RunActivated(const void* x, int num_rows, const CudaMatrix& w,
                            const CudaActivation& activation, void* out,
                            cudaStream_t stream) {
    RETURN_IF_ERROR(Check(num_rows, w, CudaEpilogue::kStore));
    RETURN_IF_ERROR(CheckActivation(activation, w.num_rows));
    if (activation.has_gate && w.num_rows > r_.max_outputs) {
      return InvalidArgument("a feed-forward part of ", w.num_rows,
                             " rows, at most ", r_.max_outputs,
                             " were planned for");
    }
    const int bytes = NumBytes(w.dtype);
    const int64_t width =
        activation.has_gate ? int64_t{w.num_rows} / 2 : w.num_rows;
    // Without a gate there are as many activations as sums, and they replace
    // them.
    const int most = activation.has_gate ? r_.silu_rows : num_rows;
    for (int row = 0; row < num_rows; row += most) {
      const int n = std::min(most, num_rows - row);
      void* const out_rows = static_cast<char*>(out) + row * width * bytes;
      void* const sums = activation.has_gate ? r_.scratch.data() : out_rows;
      RETURN_IF_ERROR(
          Run(static_cast<const char*>(x) + int64_t{row} * w.num_cols * bytes,
              n, w, CudaEpilogue::kStore, sums, stream));
      RETURN_IF_ERROR(CudaActivate(sums, w.dtype, n, w.num_rows, activation,
                                   out_rows, stream));
    }
    return absl::OkStatus();
  }

  absl::Status Run(const void* x, int num_rows, const CudaMatrix& w,
                   CudaEpilogue epilogue, void* out, cudaStream_t stream) {
    RETURN_IF_ERROR(Check(num_rows, w, epilogue));
    if (num_rows == 0 || w.num_rows == 0) return absl::OkStatus();
    return FindCandidate(r_.kernels, num_rows, w, epilogue)
        .launch(r_, {x, num_rows, w, epilogue, out, stream});
  }

 private:
  absl::Status Check(int num_rows, const CudaMatrix& w,
                     CudaEpilogue epilogue) const {
    if (num_rows < 0 || num_rows > r_.max_rows) {
      return InvalidArgument("a product of ", num_rows, " rows, at most ",
                             r_.max_rows, " were planned for");
    }
    if (w.num_cols < 8 || w.num_cols % 8 != 0) {
      return InvalidArgument("weights of ", w.num_cols,
                             " columns, not a multiple of 8");
    }
    if (epilogue == CudaEpilogue::kSiluMul &&
        (w.num_rows % 16 != 0 || w.num_rows > r_.max_outputs)) {
      return InvalidArgument("gates and ups in ", w.num_rows,
                             " rows: not a multiple of 16, or over the ",
                             r_.max_outputs, " planned for");
    }
    if (!r_.blas && w.dtype == DType::kFloat32) {
      return InvalidArgument("weights of f32, of 16 bits were planned for");
    }
    if (const int64_t size = int64_t{w.num_rows} * w.num_cols;
        !r_.blas && size > CudaMatMulLimits::kSmallMatrix) {
      return InvalidArgument("a matrix of ", size, " weights, at most ",
                             CudaMatMulLimits::kSmallMatrix,
                             " were planned for");
    }
    if (w.fp8_scales == nullptr) return absl::OkStatus();
    if (r_.fp8 == nullptr) {
      return InvalidArgument("weights of e4m3, none were planned for");
    }
    return r_.fp8->Check(w);
  }

  // Returns the number of parts that RunSplitK divides the inputs into.
  int NumParts(int num_rows, const CudaMatrix& w) const {
    const int64_t part_size = int64_t{num_rows} * w.num_rows;
    if (w.fp8_scales != nullptr) {
      const int num_parts = r_.fp8->NumParts(num_rows, w);
      const bool fits =
          num_parts * part_size <= int64_t{r_.silu_rows} * r_.max_outputs;
      return fits ? num_parts : 1;
    }
    if (num_rows == 0 || w.num_rows == 0 || w.num_cols <= w.num_rows ||
        w.dtype == DType::kFloat32 ||
        ChooseMatMulKernel(r_.kernels, num_rows, w, CudaEpilogue::kAddFloat) ==
            CudaMatMulKernel::kSkinny) {
      return 1;
    }
    const int num_tiles =
        CeilDiv(num_rows, kPartTile) * CeilDiv(w.num_rows, kPartTile);
    const auto fits = [&](int num_parts) {
      const int num_blocks = num_parts * num_tiles;
      const bool leaves_half = 2 * num_blocks <= r_.kernels.device.num_sms;
      return (leaves_half || (num_parts == 2 && num_rows <= kMaxHalvedRows &&
                              num_blocks <= r_.kernels.device.num_sms)) &&
             w.num_cols % (num_parts * kPartUnit) == 0 &&
             w.num_rows % 4 == 0 &&  // parts are 16-byte aligned
             num_parts * part_size <= int64_t{r_.silu_rows} * r_.max_outputs;
    };
    int num_parts = kMaxParts;
    while (num_parts > 1 && !fits(num_parts)) num_parts /= 2;
    return num_parts;
  }

  Resources r_;  // constant after Init
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
