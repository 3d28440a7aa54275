#include "kernels/select/cuda_select_layout.h"

#include "kernels/logits/cuda_tile_shape.h"

namespace espalier {

using cuda_logits::kQuarters;

CudaSelectLayout::CudaSelectLayout(const CudaSelectBounds& bounds)
    : num_tiles(cuda_logits::NumTiles(bounds.vocab_size)) {
  const size_t rows = bounds.num_rows;
  const size_t tiles = rows * num_tiles;
  maxima = layout.Add("maxima", tiles * kQuarters, sizeof(float));
  sums = layout.Add("sums", tiles, sizeof(float));
  tops = layout.Add("tops", tiles, sizeof(float));
  stats = layout.Add("stats", rows, kRowStatsBytes);
  if (bounds.max_candidates <= kMaxNarrowCudaSelect) return;
  const size_t groups = bounds.max_groups;
  const size_t candidates = bounds.max_total_candidates;
  columns = layout.Add("columns", rows * kColumns, sizeof(float));
  cuts = layout.Add("cuts", groups, sizeof(uint32_t));
  modes = layout.Add("modes", groups, sizeof(int));
  counts = layout.Add("counts", groups, sizeof(int));
  gathers = layout.Add("gathers", groups, sizeof(bool));
  entries =
      layout.Add("entries", candidates * kEntriesPerCandidate, kEntryBytes);
  chosen = layout.Add("chosen", candidates, kKeyBytes);
}

void CudaSelectLayout::AuditGroup(const CudaSelectPlace& group,
                                  LayoutAudit* audit) const {
  const int64_t row = group.first_row;
  const int64_t rows = group.num_rows;
  audit->Use(maxima, row * num_tiles * kQuarters, rows * num_tiles * kQuarters);
  audit->Use(sums, row * num_tiles, rows * num_tiles);
  audit->Use(tops, row * num_tiles, rows * num_tiles);
  audit->Use(stats, row, rows);
  if (!group.is_wide()) return;
  audit->Use(columns, row * kColumns, rows * kColumns);
  for (const DeviceRange& of_group : {cuts, modes, counts, gathers}) {
    audit->Use(of_group, group.group_idx, 1);
  }
  const int64_t first = group.first_candidate;
  const int64_t count = group.num_candidates;
  audit->Use(entries, first * kEntriesPerCandidate,
             count * kEntriesPerCandidate);
  audit->Use(chosen, first, count);
}

}  // namespace espalier
