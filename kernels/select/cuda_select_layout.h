// CudaSelectLayout: offsets of the arrays in CudaSelect's scratch
// (cuda_select.h), and the ranges that groups index there. Plain C++: host
// tests check that no mixture of groups indexes out of range.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/device_layout.h"

namespace espalier {

// Up to this many candidates, one block chooses for a group.
inline constexpr int kMaxNarrowCudaSelect = 64;

// Bounds of all calls that a scratch serves.
struct CudaSelectBounds {
  int num_rows = 1;
  int vocab_size = 1;
  int max_groups = 1;
  int max_candidates = 1;  // per group
  // Bound of first_candidate + num_candidates of every group, including the
  // candidates of groups in between that CudaSample fills.
  int64_t max_total_candidates = 1;
};

// The rows and candidates of a group, as in CudaSelectGroup.
struct CudaSelectPlace {
  int group_idx = 0;
  int first_row = 0;
  int num_rows = 1;
  int num_candidates = 1;
  int first_candidate = 0;

  bool is_wide() const { return num_candidates > kMaxNarrowCudaSelect; }
};

struct CudaSelectLayout {
  explicit CudaSelectLayout(const CudaSelectBounds& bounds);

  // Maxima of a wide group's row, for a first threshold.
  static constexpr int kColumns = 32;
  // Capacity for entries of a wide group, in multiples of its candidates.
  static constexpr int kEntriesPerCandidate = 4;
  static constexpr size_t kRowStatsBytes = 12;
  static constexpr size_t kEntryBytes = 16;
  static constexpr size_t kKeyBytes = 8;

  // Adds the ranges that kernels index for a group.
  void AuditGroup(const CudaSelectPlace& group, LayoutAudit* audit) const;

  int num_tiles = 0;  // per row
  DeviceLayout layout;
  DeviceRange maxima;  // [num_rows, tiles, 4]
  DeviceRange sums;    // [num_rows, tiles]
  DeviceRange tops;    // [num_rows, tiles]
  DeviceRange stats;   // [num_rows]
  // If a group may be wide:
  DeviceRange columns;  // [num_rows, 32]
  DeviceRange cuts;     // [max_groups]
  DeviceRange modes;    // [max_groups]
  DeviceRange counts;   // [max_groups]
  DeviceRange gathers;  // [max_groups]
  DeviceRange entries;  // [max_total_candidates, 4]
  DeviceRange chosen;   // [max_total_candidates]
};

}  // namespace espalier
