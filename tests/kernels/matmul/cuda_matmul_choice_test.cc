// The choice among the kernels of a product, for every pair of many shapes and
// many devices: the same as the nested conditions that the table of candidates
// replaced. Another choice adds the terms of a sum in another order, so results
// would change.
#include "kernels/matmul/cuda_matmul_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/ceil_div.h"
#include "kernels/matmul/cuda_fp8_skinny.h"
#include "tests/cuda_dry_run.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Kernel = CudaMatMulKernel;

struct Shape {
  int num_rows = 0;
  CudaMatrix w;
  CudaEpilogue epilogue = CudaEpilogue::kStore;
};

std::vector<Shape> Shapes() {
  constexpr int kRows[] = {1,   8,   9,   15,  16,  17,   24,   25,
                           32,  33,  40,  41,  48,  49,   64,   128,
                           129, 160, 161, 192, 512, 1024, 1025, 2048};
  constexpr int kOutputs[] = {16,    64,    128,   192,   384,   1024,  2048,
                              2112,  2128,  3072,  4096,  4224,  4240,  6144,
                              6336,  6352,  8192,  11008, 12288, 16896, 17024,
                              22016, 28672, 33792, 128256};
  constexpr int kInputs[] = {64,   128,  192,  1024, 2040, 2048,
                             3072, 4088, 4096, 8192, 14336};
  constexpr DType kTypes[] = {DType::kBFloat16, DType::kFloat16,
                              DType::kFloat32};
  static constexpr uint16_t kScale = 0;
  std::vector<Shape> shapes;
  for (const int rows : kRows) {
    for (const int outputs : kOutputs) {
      for (const int inputs : kInputs) {
        for (const auto epilogue :
             {CudaEpilogue::kAddFloat, CudaEpilogue::kSiluMul}) {
          for (const DType dtype : kTypes) {
            shapes.push_back(
                {rows, {nullptr, dtype, outputs, inputs}, epilogue});
          }
          if (inputs % 64 != 0) continue;
          shapes.push_back(
              {rows,
               {nullptr, DType::kBFloat16, outputs, inputs, &kScale},
               epilogue});
        }
      }
    }
  }
  return shapes;
}

// Real capabilities, each with its shared memory of a block.
std::vector<CudaDevice> Devices() {
  struct Generation {
    int compute_capability;
    int shared_kib;
  };
  constexpr Generation kGenerations[] = {{80, 163}, {86, 99},   {89, 99},
                                         {90, 227}, {100, 227}, {120, 99}};
  std::vector<CudaDevice> devices;
  for (const auto& [compute_capability, shared_kib] : kGenerations) {
    for (const int num_sms : {16, 78, 108, 132, 148}) {
      for (const double memory_rate : {0.0, 3.35e12, 4.9e12}) {
        CudaDevice device;
        device.num_sms = num_sms;
        device.compute_capability = compute_capability;
        device.max_shared_bytes = shared_kib * 1024;
        device.memory_bytes_per_second = memory_rate;
        devices.push_back(device);
      }
    }
  }
  return devices;
}

// ---- The nested conditions --------------------------------------------------

bool L2WasFastEnough(int num_rows, int row_tiles, const CudaMatrix& w,
                     const CudaDevice& device) {
  if (int64_t{2} * w.num_rows * w.num_cols < 8'000'000) return true;
  const double reads = 1 + CeilDiv(num_rows, 8) / (2.0 * row_tiles);
  return reads * device.memory_bytes_per_second <=
         (row_tiles == 1 ? 2.4 : 1.6) * 5.3e12;
}

bool WasSkinny(int num_rows, const CudaMatrix& w, const CudaDevice& device,
               int compiled) {
  const int most_rows_in_shared = device.max_shared_bytes < 113 * 1024   ? 0
                                  : device.max_shared_bytes < 227 * 1024 ? 40
                                                                         : 48;
  if (num_rows > most_rows_in_shared || w.dtype == DType::kFloat32) {
    return false;
  }
  if (num_rows <= 16) return true;
  const int row_tiles = CeilDiv(CeilDiv(w.num_rows, 16), device.num_sms);
  if (row_tiles > 3 || device.compute_capability < 90 || compiled < 90) {
    return false;
  }
  int max_rows = 40;
  if (row_tiles > 1 && w.num_cols >= 4096) {
    max_rows = 48;
  } else if (row_tiles == 2 && w.num_cols >= 2048) {
    max_rows = 24;
  }
  return num_rows <= max_rows &&
         L2WasFastEnough(num_rows, row_tiles, w, device);
}

bool WasGateUp(int num_rows, const CudaMatrix& w, const CudaDevice& device,
               int compiled) {
  if (device.compute_capability != 90 || compiled < 90 || num_rows < 17 ||
      num_rows > 160 || w.dtype == DType::kFloat32 || w.num_rows % 128 != 0 ||
      w.num_cols % 128 != 0) {
    return false;
  }
  const auto fills = [&](int num_blocks) {
    return num_blocks * 3 >= device.num_sms * 2;
  };
  if (w.num_rows % 256 == 0 && fills(w.num_rows / 256)) return true;
  const int num_blocks = w.num_rows / 128;
  return fills(num_blocks) && num_blocks <= device.num_sms;
}

Kernel OldChoice(const Shape& shape, const CudaDevice& device, int compiled,
                 bool has_blas) {
  const auto& [num_rows, w, epilogue] = shape;
  if (w.fp8_scales != nullptr) {
    const bool has_skinny = HasFp8Skinny(num_rows, device);
    const bool has_gemm = device.compute_capability == 90 && compiled >= 90 &&
                          w.num_rows % 64 == 0 && w.num_cols % 128 == 0;
    if (has_skinny || (has_gemm && num_rows <= 1024)) {
      if (has_skinny && (num_rows <= 16 || !has_gemm)) {
        return Kernel::kFp8Skinny;
      }
      return Kernel::kFp8Gemm;
    }
    return Kernel::kFp8Widened;
  }
  if (WasSkinny(num_rows, w, device, compiled)) return Kernel::kSkinny;
  if (epilogue == CudaEpilogue::kSiluMul &&
      WasGateUp(num_rows, w, device, compiled)) {
    return Kernel::kGateUpGemm;
  }
  return has_blas ? Kernel::kBlas : Kernel::kSmallGemm;
}

// ---- Tests ------------------------------------------------------------------

// Compares every shape on `device`, and counts the choices of each kernel.
void ExpectOldChoices(const std::vector<Shape>& shapes,
                      const CudaDevice& device, int compiled,
                      std::map<Kernel, int>* counts) {
  ASSERT_OK_AND_ASSIGN(CudaMatMulKernels kernels,
                       CudaMatMulKernels::Prepare(device, true));
  int num_differences = 0;
  for (const bool has_blas : {true, false}) {
    kernels.has_blas = has_blas;
    for (const Shape& shape : shapes) {
      const auto& [num_rows, w, epilogue] = shape;
      // Refused without cuBLASLt.
      if (!has_blas && (w.dtype == DType::kFloat32 || w.fp8_scales)) continue;
      const Kernel kernel = ChooseMatMulKernel(kernels, num_rows, w, epilogue);
      ++(*counts)[kernel];
      if (kernel == OldChoice(shape, device, compiled, has_blas)) continue;
      if (++num_differences > 3) return;
      ADD_FAILURE() << num_rows << " rows of " << w.num_cols << ", "
                    << w.num_rows << " outputs, dtype "
                    << static_cast<int>(w.dtype) << ", epilogue "
                    << static_cast<int>(epilogue) << ", fp8 "
                    << (w.fp8_scales != nullptr) << ", capability "
                    << device.compute_capability << ", " << device.num_sms
                    << " multiprocessors, compiled for " << compiled << ": "
                    << static_cast<int>(kernel);
    }
  }
}

TEST(CudaMatMulChoiceTest, ChoicesAreThoseOfTheNestedConditions) {
  const std::vector<Shape> shapes = Shapes();
  std::map<Kernel, int> counts;
  testing::BeginDryRun(90);
  for (const CudaDevice& device : Devices()) {
    ExpectOldChoices(shapes, device, 90, &counts);
  }
  EXPECT_EQ(counts.size(), 7u);  // every kernel is chosen somewhere
}

// A build for compute capability 8.0, whose code newer devices run too.
TEST(CudaMatMulChoiceTest, ChoicesOfOlderCodeAreThoseOfTheNestedConditions) {
  const std::vector<Shape> shapes = Shapes();
  std::map<Kernel, int> counts;
  std::thread([&] {  // a thread caches the architecture
    testing::BeginDryRun(80);
    for (const CudaDevice& device : Devices()) {
      ExpectOldChoices(shapes, device, 80, &counts);
    }
    testing::BeginDryRun(90);
  })
      .join();
  EXPECT_EQ(counts.count(Kernel::kGateUpGemm), 0u);
  EXPECT_EQ(counts.count(Kernel::kFp8Gemm), 0u);
}

TEST(CudaMatMulChoiceTest, GpusWithoutATunedRowAreNamed) {
  CudaDevice device;
  device.compute_capability = 90;
  device.num_sms = 132;
  for (const char* tuned :
       {"NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL", "NVIDIA H200"}) {
    device.name = tuned;
    EXPECT_THAT(UntunedMatMulNote(device), IsEmpty()) << tuned;
  }
  device.name = "NVIDIA GH200 480GB";
  EXPECT_THAT(UntunedMatMulNote(device), HasSubstr(device.name));
  device.num_sms = 114;
  device.name = "NVIDIA H100 PCIe";
  EXPECT_THAT(UntunedMatMulNote(device), HasSubstr("114 multiprocessors"));
  device.compute_capability = 80;
  device.num_sms = 108;
  device.name = "NVIDIA A100-SXM4-80GB";
  EXPECT_EQ(UntunedMatMulNote(device),
            "matrix products are not tuned for NVIDIA A100-SXM4-80GB (compute "
            "capability 8.0, 108 multiprocessors): their kernels are chosen as "
            "on an H100");
  EXPECT_EQ(&MatMulTuningOf(device), &MatMulTuningOf({}));
}

}  // namespace
}  // namespace espalier
