#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_tile.h"
#include "kernels/matmul/quantized_tile.h"

namespace espalier {
namespace {

// A task with fewer multiply-adds takes about a microsecond, and is not worth
// waking a thread.
constexpr int64_t kMinTaskWork = 1 << 15;
// Tasks per thread: enough to balance the load, few enough to reuse panels. On
// 16 threads eight took 1 to 7 % off a step of 3 billion weights on one machine
// and added 9 to 18 % to one of 8 billion on another (docs/experiments.md).
constexpr int kTasksPerThread = 4;
// A task's panels of one block of k: a quarter of the second-level cache. With
// smaller tasks, more of them would copy or quantise the same rows of x.
constexpr int64_t kMaxTaskBytes = 256 << 10;

// A larger matrix fits in no cache of a core and is read from memory.
constexpr size_t kMaxCachedBytes = 4 << 20;

// A range of items, as one of several even parts of all.
struct Range {
  int begin = 0;
  int end = 0;
};

Range EvenPart(int count, int num_parts, int part) {
  return {static_cast<int>(int64_t{count} * part / num_parts),
          static_cast<int>(int64_t{count} * (part + 1) / num_parts)};
}

int MaxRowsOf(WeightFormat format) {
  return format == WeightFormat::kAsStored ? MaxTileRows()
                                           : MaxQuantizedTileRows();
}

// One product, divided into tasks: a run of row blocks times a run of panels
// each, so that the panels are reused from the second-level cache.
class Product {
 public:
  Product(const float* x, int num_rows, const PackedMatrix& w, float* y,
          int num_threads)
      : x_(x),
        num_rows_(num_rows),
        w_(w),
        y_(y),
        num_blocks_(CeilDiv(num_rows, MaxRowsOf(w.format()))),
        num_panels_(CeilDiv(w.num_rows(), kPanelWidth)) {
    const int64_t work = int64_t{num_rows} * w.num_rows() * w.num_cols();
    const int64_t most = num_threads == 1 ? 1 : kTasksPerThread * num_threads;
    const int wanted =
        static_cast<int>(std::clamp<int64_t>(work / kMinTaskWork, 1, most));
    // Divides by rows first: every task copies its rows of x, and tasks of many
    // rows and few panels would copy the same rows repeatedly.
    num_panel_tasks_ = static_cast<int>(CeilDiv(
        num_panels_ * static_cast<int64_t>(w.panel_bytes(0)), kMaxTaskBytes));
    num_block_tasks_ = std::min(CeilDiv(wanted, num_panel_tasks_), num_blocks_);
    num_panel_tasks_ =
        std::max(num_panel_tasks_,
                 std::min(CeilDiv(wanted, num_block_tasks_), num_panels_));
  }

  int num_tasks() const { return num_block_tasks_ * num_panel_tasks_; }

  void RunTask(int task) const {
    const Range blocks =
        EvenPart(num_blocks_, num_block_tasks_, task / num_panel_tasks_);
    const Range panels =
        EvenPart(num_panels_, num_panel_tasks_, task % num_panel_tasks_);
    for (int k = 0; k < w_.num_cols(); k += kBlockDepth) {
      for (int block = blocks.begin; block < blocks.end; ++block) {
        RunBlock(EvenPart(num_rows_, num_blocks_, block), panels, k);
      }
    }
  }

 private:
  // Multiplies a few rows by some panels, at the block of k that begins at `k`.
  void RunBlock(Range rows, Range panels, int k) const {
    if (w_.format() == WeightFormat::kAsStored) {
      RunStored(rows, panels, k);
    } else {
      RunQuantized(rows, panels, k);
    }
  }

  void RunStored(Range rows, Range panels, int k) const {
    alignas(64) float x_copy[kTileRowsLimit * kTileStride];
    MatMulTile tile;
    tile.x = x_copy;
    tile.dtype = w_.dtype();
    tile.is_cached = w_.num_bytes() <= kMaxCachedBytes;
    tile.depth = std::min(kBlockDepth, w_.num_cols() - k);
    for (int r = rows.begin; r < rows.end; ++r) {
      std::copy_n(x_ + int64_t{r} * w_.num_cols() + k, tile.depth,
                  x_copy + (r - rows.begin) * kTileStride);
    }
    Run(tile, rows, panels, k);
  }

  void RunQuantized(Range rows, Range panels, int k) const {
    QuantizedInputs x[kQuantTileRowsLimit];
    QuantizedTile tile;
    tile.x = x;
    tile.format = w_.format();
    tile.depth = std::min(kBlockDepth, w_.num_cols() - k);
    for (int r = rows.begin; r < rows.end; ++r) {
      QuantizeInputs(x_ + int64_t{r} * w_.num_cols() + k, tile.depth,
                     tile.format, &x[r - rows.begin]);
    }
    Run(tile, rows, panels, k);
  }

  // Sets the weights and outputs of a tile, and multiplies it.
  template <typename Tile>
  void Run(Tile tile, Range rows, Range panels, int k) const {
    tile.num_rows = rows.end - rows.begin;
    tile.panels = w_.panel(k, panels.begin);
    tile.panel_bytes = w_.panel_bytes(k);
    const int next_k = k + kBlockDepth;
    tile.next_panels =
        next_k < w_.num_cols() ? w_.panel(next_k, panels.begin) : tile.panels;
    const int num_full_panels = w_.num_rows() / kPanelWidth;
    tile.num_panels = std::min(panels.end, num_full_panels) - panels.begin;
    tile.y = y_ + int64_t{rows.begin} * w_.num_rows() +
             int64_t{panels.begin} * kPanelWidth;
    tile.y_stride = w_.num_rows();
    tile.accumulate = k > 0;
    const bool has_ragged = panels.end > num_full_panels;
    if (tile.num_panels > 0) {
      Tile full = tile;
      if (has_ragged) {
        full.next_panels = tile.panels + tile.panel_bytes * tile.num_panels;
      }
      MultiplyTile(full);
    }
    if (has_ragged) RunRaggedPanel(tile);
  }

  // Runs the panel after those of `tile`, only some of whose columns are in y.
  template <typename Tile>
  void RunRaggedPanel(Tile tile) const {
    alignas(64) float y_copy[kTileRowsLimit * kPanelWidth] = {};
    const int num_columns = w_.num_rows() % kPanelWidth;
    const size_t y_stride = std::exchange(tile.y_stride, kPanelWidth);
    float* y = std::exchange(tile.y, y_copy) + tile.num_panels * kPanelWidth;
    tile.panels += tile.panel_bytes * tile.num_panels;
    tile.num_panels = 1;
    for (int r = 0; tile.accumulate && r < tile.num_rows; ++r) {
      std::copy_n(y + r * y_stride, num_columns, y_copy + r * kPanelWidth);
    }
    MultiplyTile(tile);
    for (int r = 0; r < tile.num_rows; ++r) {
      std::copy_n(y_copy + r * kPanelWidth, num_columns, y + r * y_stride);
    }
  }

  const float* x_;
  int num_rows_;
  const PackedMatrix& w_;
  float* y_;
  int num_blocks_;  // blocks of at most MaxTileRows() rows
  int num_panels_;
  int num_panel_tasks_ = 1;
  int num_block_tasks_ = 1;
};

}  // namespace

void MatMul(std::span<const float> x, const PackedMatrix& w, std::span<float> y,
            ThreadPool& pool) {
  const int num_rows = static_cast<int>(x.size() / w.num_cols());
  CHECK_EQ(x.size(), size_t(num_rows) * w.num_cols());
  CHECK_EQ(y.size(), size_t(num_rows) * w.num_rows());
  if (y.empty()) return;
  const Product product(x.data(), num_rows, w, y.data(), pool.num_threads());
  pool.ParallelFor(product.num_tasks(),
                   [&](int task) { product.RunTask(task); });
}

}  // namespace espalier
