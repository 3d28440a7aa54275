// CudaSelectLayout: where the parts of CudaSelect's scratch are
// (cuda_select.h), and what a group indexes there. Plain C++: tests on the host
// check that no mixture of groups indexes what it should not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/device_layout.h"

namespace espalier {

// Up to so many candidates each, a group is one block's work.
inline constexpr int kMaxNarrowCudaSelect = 64;

// What sizes the scratch: bounds of all calls that it serves.
struct CudaSelectBounds {
  int num_rows = 1;
  int vocab_size = 1;
  int max_groups = 1;
  int max_candidates = 1;  // of a group
  // Of first_candidate + num_candidates of every group: also counts the
  // candidates of groups in between that are chosen for by others.
  int64_t max_total_candidates = 1;
};

// The place of a group's rows and candidates: what CudaSelectGroup says.
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

  // Of a row of a wide group: maxima for a first threshold.
  static constexpr int kColumns = 32;
  // Entries that a wide group has room for, in multiples of its candidates.
  static constexpr int kEntriesPerCandidate = 4;
  static constexpr size_t kRowStatsBytes = 12;
  static constexpr size_t kEntryBytes = 16;
  static constexpr size_t kKeyBytes = 8;

  // Adds what kernels index for a group.
  void AuditGroup(const CudaSelectPlace& group, LayoutAudit* audit) const;

  int num_tiles = 0;  // of a row
  DeviceLayout layout;
  DeviceRange maxima;  // [num_rows, tiles, 4]
  DeviceRange sums;    // [num_rows, tiles]
  DeviceRange stats;   // [num_rows]
  // Where a group may be wide:
  DeviceRange columns;  // [num_rows, 32]
  DeviceRange cuts;     // [max_groups]
  DeviceRange modes;    // [max_groups]
  DeviceRange counts;   // [max_groups]
  DeviceRange gathers;  // [max_groups]
  DeviceRange entries;  // [max_total_candidates, 4]
  DeviceRange chosen;   // [max_total_candidates]
};

}  // namespace espalier
