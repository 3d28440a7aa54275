// The division of rows of logits into tiles, one per warp, of four quarters
// (cuda_row_logits.cuh). Plain C++, as scratch layouts use it too.
#pragma once

namespace espalier::cuda_logits {

inline constexpr int kTileSize = 1024;
inline constexpr int kQuarters = 4;  // per tile, 8 lanes each

// Returns the tiles of a row; the last may be partial.
constexpr int NumTiles(int vocab_size) {
  return (vocab_size + kTileSize - 1) / kTileSize;
}

}  // namespace espalier::cuda_logits
