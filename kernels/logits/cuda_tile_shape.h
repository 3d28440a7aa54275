// How the kernels cut rows of logits: as tiles, each one warp's, of four
// quarters (cuda_row_logits.cuh). Plain C++, for layouts of scratch too.
#pragma once

namespace espalier::cuda_logits {

inline constexpr int kTileSize = 1024;
inline constexpr int kQuarters = 4;  // of a tile, 8 lanes each

// Of a row; the last may be in part.
constexpr int NumTiles(int vocab_size) {
  return (vocab_size + kTileSize - 1) / kTileSize;
}

}  // namespace espalier::cuda_logits
