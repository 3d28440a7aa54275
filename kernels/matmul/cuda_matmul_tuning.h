// Limits between the kernels of a product, measured on a GPU. On other GPUs
// every product has the same result and may be slower.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/cuda_resources.h"

namespace espalier {

// The defaults are those of an H100.
struct CudaMatMulTuning {
  // The GPU that was measured: a word of CudaDevice::name, and its
  // multiprocessors. Another variant or a MIG slice has fewer.
  std::string_view gpu;
  int num_sms = 0;

  // L2 bandwidth of all blocks together.
  double l2_bytes_per_second = 5.3e12;
  // The skinny kernel with more than 16 rows: limits of the time that w and x
  // take from L2, as a multiple of the time that w takes from memory, for one
  // tile a multiprocessor and for more. Above them cuBLASLt is faster. For
  // small matrices its launch alone takes longer.
  double max_l2_to_memory_time_of_one_tile = 2.4;
  double max_l2_to_memory_time = 1.6;
  int64_t small_bytes = 8'000'000;

  // Weights of e4m3: up to this many rows the skinny kernel is faster, or
  // nearly. From more than max_fp8_gemm_rows on it is cheaper to widen the
  // weights first.
  int max_fp8_skinny_rows = 16;
  int max_fp8_gemm_rows = 1024;
};

// Returns the row of this GPU, or an H100's if there is none.
const CudaMatMulTuning& MatMulTuningOf(const CudaDevice& device);

// Returns a note for the program's user that this GPU has no row; empty if it
// has one.
std::string UntunedMatMulNote(const CudaDevice& device);

}  // namespace espalier
