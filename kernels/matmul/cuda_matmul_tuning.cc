#include "kernels/matmul/cuda_matmul_tuning.h"

#include "base/status.h"

namespace espalier {
namespace {

// The L2 of an H200 is that of an H100; its memory, which is faster, is a field
// of the device.
constexpr CudaMatMulTuning kTunings[] = {{.gpu = "H100", .num_sms = 132},
                                         {.gpu = "H200", .num_sms = 132}};

// Returns null if there is none.
const CudaMatMulTuning* FindTuning(const CudaDevice& device) {
  // Whole words: a GH200 is no H200.
  const std::string words = Concat(" ", device.name, " ");
  for (const CudaMatMulTuning& tuning : kTunings) {
    if (tuning.num_sms == device.num_sms &&
        words.find(Concat(" ", tuning.gpu, " ")) != std::string::npos) {
      return &tuning;
    }
  }
  return nullptr;
}

}  // namespace

const CudaMatMulTuning& MatMulTuningOf(const CudaDevice& device) {
  const CudaMatMulTuning* const tuning = FindTuning(device);
  return tuning == nullptr ? kTunings[0] : *tuning;
}

std::string UntunedMatMulNote(const CudaDevice& device) {
  if (FindTuning(device) != nullptr) return "";
  return Concat("matrix products are not tuned for ", device.name,
                " (compute capability ", device.compute_capability / 10, ".",
                device.compute_capability % 10, ", ", device.num_sms,
                " multiprocessors): their kernels are chosen as on an ",
                kTunings[0].gpu);
}

}  // namespace espalier
