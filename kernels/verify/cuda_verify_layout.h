// CudaVerifyLayout: offsets of the arrays in CudaVerify's scratch
// (cuda_verify.h). Plain C++.
#pragma once

#include <cstddef>

#include "base/device_layout.h"
#include "kernels/sample/cuda_sample_layout.h"

namespace espalier {

struct CudaVerifyLayout {
  CudaVerifyLayout(int num_rows, int vocab_size, int max_sequences,
                   bool has_edits);

  static constexpr size_t kVerdictBytes = 80;

  DeviceLayout layout;
  DeviceRange verdicts;     // [num_rows]
  DeviceRange tile_masses;  // [max_sequences, tiles of a row]
  DeviceRange arrivals;     // [max_sequences]
  DeviceRange sample;       // bytes, laid out as the member below

  CudaSampleLayout of_sample;  // from the start of `sample`
};

}  // namespace espalier
