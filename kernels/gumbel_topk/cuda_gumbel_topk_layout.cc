#include "kernels/gumbel_topk/cuda_gumbel_topk_layout.h"

#include <cstdint>

namespace espalier {

CudaGumbelTopKLayout::CudaGumbelTopKLayout(const CudaSelectBounds& bounds,
                                           bool has_edits)
    : vocab_size(bounds.vocab_size),
      of_raw_sample(bounds.num_rows, bounds.vocab_size, has_edits),
      of_processed_sample(bounds.num_rows, bounds.vocab_size, false),
      of_select(bounds) {
  const size_t rows = bounds.num_rows;
  scores = layout.Add("noisy scores", rows * vocab_size, sizeof(float));
  cum = layout.Add("cum", rows, sizeof(float));
  raw_rows = layout.Add("raw rows", rows, kRawRowBytes);
  cuts = layout.Add("row cuts", rows, kRowCutBytes);
  raw_sample = layout.Add("raw sample", of_raw_sample.layout.bytes(), 1);
  processed_sample =
      layout.Add("processed sample", of_processed_sample.layout.bytes(), 1);
  select = layout.Add("select", of_select.layout.bytes(), 1);
}

void CudaGumbelTopKLayout::AuditGroup(const CudaSelectPlace& group,
                                      LayoutAudit* audit) const {
  const int64_t row = group.first_row;
  audit->Use(scores, row * vocab_size, int64_t{group.num_rows} * vocab_size);
  for (const DeviceRange& of_row : {cum, raw_rows, cuts}) {
    audit->Use(of_row, row, group.num_rows);
  }
}

}  // namespace espalier
