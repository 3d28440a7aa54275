#include "kernels/sample/cuda_sample_layout.h"

#include <cstdint>

#include "kernels/logits/cuda_tile_shape.h"

namespace espalier {

CudaSampleLayout::CudaSampleLayout(int num_rows, int vocab_size, bool has_edits)
    : num_tiles(cuda_logits::NumTiles(vocab_size)) {
  const size_t tiles = size_t(num_rows) * num_tiles;
  maxima = layout.Add("maxima of draws", tiles, kQuartersBytes);
  sums = layout.Add("sums of draws", tiles, kQuartersBytes);
  raw = layout.Add("raw tiles", tiles, kRawTileBytes);
  if (has_edits) first_edits = layout.Add("first edits", tiles, sizeof(int));
}

void CudaSampleLayout::AuditRows(int first_row, int num_rows,
                                 LayoutAudit* audit) const {
  const int64_t first = int64_t{first_row} * num_tiles;
  const int64_t count = int64_t{num_rows} * num_tiles;
  audit->Use(maxima, first, count);
  audit->Use(sums, first, count);
  audit->Use(raw, first, count);
  if (first_edits.count > 0) audit->Use(first_edits, first, count);
}

}  // namespace espalier
