// Where the parts of CudaSample's and CudaPerturb's scratch are (cuda_sample.h,
// cuda_perturb.h), and what rows index there. Plain C++.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/device_layout.h"
#include "kernels/select/cuda_select_layout.h"

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

struct CudaPerturbLayout {
  // `bounds` are those of the selection from perturbed rows.
  CudaPerturbLayout(const CudaSelectBounds& bounds, bool has_edits);

  static constexpr size_t kRawRowBytes = 8;
  static constexpr size_t kRowCutBytes = 36;

  // Adds what kernels index for a perturbed row: a group of one row.
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

  // From the start of these.
  CudaSampleLayout of_raw_sample;        // of raw rows, with edits
  CudaSampleLayout of_processed_sample;  // of scores
  CudaSelectLayout of_select;
};

}  // namespace espalier
