// MultiplyTile of quantised weights (weight_format.h), the counterpart of
// matmul_tile.h. The rows of x are quantised to integers too: one instruction
// multiplies four of them by four weights of an output and adds the products.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/matmul_tile.h"
#include "kernels/matmul/quantized_panel.h"
#include "kernels/matmul/weight_format.h"

namespace espalier {

inline constexpr int kQuantTileRowsLimit = 6;
// Groups in a block of k.
inline constexpr int kQuantTileGroups =
    kBlockDepth / QuantGroupSize(WeightFormat::kInt4);
static_assert(kBlockDepth % QuantGroupSize(WeightFormat::kInt8) == 0);

// One row of x over one block of k.
struct QuantizedInputs {
  alignas(64) int8_t q[kBlockDepth];  // zeros after the inputs
  float scales[kQuantTileGroups];
  int32_t sums[kQuantTileGroups];  // sum of q, per group
};

// REQUIRES: 1 <= depth <= kBlockDepth.
void QuantizeInputs(const float* x, int depth, WeightFormat format,
                    QuantizedInputs* out);

struct QuantizedTile {
  WeightFormat format = WeightFormat::kInt8;
  const QuantizedInputs* x = nullptr;  // [num_rows]
  int num_rows = 0;                    // in [1, MaxQuantizedTileRows()]
  int depth = 0;                       // inputs, in [1, kBlockDepth]
  // The first panel at the first group of the block; the next panel is
  // `panel_bytes` further.
  const std::byte* panels = nullptr;
  size_t panel_bytes = 0;
  int num_panels = 0;
  // Address to prefetch after the last panel; never read. Not null.
  const std::byte* next_panels = nullptr;
  float* y = nullptr;  // [num_rows, y_stride], num_panels * kPanelWidth wide
  size_t y_stride = 0;
  bool accumulate = false;  // continue from y, else start at zero
};

// Returns the number of rows whose sums this CPU can keep in registers.
int MaxQuantizedTileRows();

void MultiplyTile(const QuantizedTile& tile);

}  // namespace espalier
