// CudaSampleLayout: where the parts of CudaSample's scratch are
// (cuda_sample.h), and what rows index there. Plain C++.
#pragma once

#include <cstddef>

#include "base/device_layout.h"

namespace espalier {

struct CudaSampleLayout {
  CudaSampleLayout(int num_rows, int vocab_size, bool has_edits);

  static constexpr size_t kQuartersBytes = 16;  // of a tile
  static constexpr size_t kRawTileBytes = 8;

  // Adds what kernels index for rows [first_row, first_row + num_rows).
  void AuditRows(int first_row, int num_rows, LayoutAudit* audit) const;

  int num_tiles = 0;  // of a row
  DeviceLayout layout;
  // [num_rows, tiles]
  DeviceRange maxima;
  DeviceRange sums;
  DeviceRange raw;
  DeviceRange first_edits;  // where rows may have edits
};

}  // namespace espalier
