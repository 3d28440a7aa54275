#include "kernels/sample/cuda_sample_layout.h"

namespace espalier {

CudaSampleLayout::CudaSampleLayout(int num_rows, int vocab_size, bool has_edits)
    : num_tiles((vocab_size + CudaSelectLayout::kTileSize - 1) /
                CudaSelectLayout::kTileSize) {
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

CudaPerturbLayout::CudaPerturbLayout(const CudaSelectBounds& bounds,
                                     bool has_edits)
    : vocab_size(bounds.vocab_size),
      of_raw_sample(bounds.num_rows, bounds.vocab_size, has_edits),
      of_processed_sample(bounds.num_rows, bounds.vocab_size, false),
      of_select(bounds) {
  const size_t rows = bounds.num_rows;
  scores = layout.Add("perturbed scores", rows * vocab_size, sizeof(float));
  cum = layout.Add("cum", rows, sizeof(float));
  raw_rows = layout.Add("raw rows", rows, kRawRowBytes);
  cuts = layout.Add("row cuts", rows, kRowCutBytes);
  raw_sample = layout.Add("raw sample", of_raw_sample.layout.bytes(), 1);
  processed_sample =
      layout.Add("processed sample", of_processed_sample.layout.bytes(), 1);
  select = layout.Add("select", of_select.layout.bytes(), 1);
}

void CudaPerturbLayout::AuditGroup(const CudaSelectPlace& group,
                                   LayoutAudit* audit) const {
  const int64_t row = group.first_row;
  audit->Use(scores, row * vocab_size, int64_t{group.num_rows} * vocab_size);
  for (const DeviceRange& of_row : {cum, raw_rows, cuts}) {
    audit->Use(of_row, row, group.num_rows);
  }
}

}  // namespace espalier
