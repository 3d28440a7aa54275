// CudaSampleLayout: offsets of the arrays in CudaSample's scratch
// (cuda_sample.h), and the ranges that rows index there. Plain C++.
#pragma once

#include <cstddef>

#include "base/device_layout.h"

namespace espalier {

struct CudaSampleLayout {
  CudaSampleLayout(int num_rows, int vocab_size, bool has_edits);

  static constexpr size_t kQuartersBytes = 16;  // per tile
  static constexpr size_t kRawTileBytes = 8;

  // Adds the ranges that kernels index for rows [first_row, first_row +
  // num_rows).
  void AuditRows(int first_row, int num_rows, LayoutAudit* audit) const;

  int num_tiles = 0;  // per row
  DeviceLayout layout;
  // [num_rows, tiles]
  DeviceRange maxima;
  DeviceRange sums;
  DeviceRange raw;
  DeviceRange first_edits;  // if rows may have edits
};

}  // namespace espalier
