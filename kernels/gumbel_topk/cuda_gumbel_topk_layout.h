// CudaGumbelTopKLayout: offsets of the arrays in CudaGumbelTopK's scratch
// (cuda_gumbel_topk.h), and the ranges that rows index there. Plain C++.
#pragma once

#include <cstddef>

#include "base/device_layout.h"
#include "kernels/sample/cuda_sample_layout.h"
#include "kernels/select/cuda_select_layout.h"

namespace espalier {

struct CudaGumbelTopKLayout {
  // `bounds` are those of the selection from noisy rows.
  CudaGumbelTopKLayout(const CudaSelectBounds& bounds, bool has_edits);

  static constexpr size_t kRawRowBytes = 8;
  static constexpr size_t kRowCutBytes = 36;

  // Adds the ranges that kernels index for a row with noise: a group of one
  // row.
  void AuditGroup(const CudaSelectPlace& group, LayoutAudit* audit) const;

  int vocab_size = 0;
  DeviceLayout layout;
  DeviceRange scores;    // [num_rows, vocab_size]
  DeviceRange cum;       // [num_rows]
  DeviceRange raw_rows;  // [num_rows]
  DeviceRange cuts;      // [num_rows]
  // Bytes, laid out as the members of the same names below.
  DeviceRange raw_sample;
  DeviceRange processed_sample;
  DeviceRange select;

  // Layouts of the byte ranges above.
  CudaSampleLayout of_raw_sample;        // raw rows, with edits
  CudaSampleLayout of_processed_sample;  // rows of scores
  CudaSelectLayout of_select;
};

}  // namespace espalier
