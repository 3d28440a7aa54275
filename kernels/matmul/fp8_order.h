// The order of e4m3 weights in device memory. A warp that multiplies tiles of
// them (mma m16n8k16, wgmma m64k16) loads each thread's share as one vector,
// and a tile is contiguous.
//
// Eight outputs are a block, blocks follow each other. In a block, for each run
// of 64 inputs, each output and each of four threads there are 16 bytes,
//
//   [num_inputs / 64][8 outputs][4 threads][4 steps][4 bytes]
//
// of which a step, 16 inputs, gives thread t inputs 2 t, 2 t + 8, 2 t + 1 and
// 2 t + 9: two pairs that widen to bfloat16 as the bytes 0, 2 and 1, 3 of a
// word.
#pragma once

#include <cstddef>

namespace espalier {

inline constexpr int kFp8BlockOutputs = 8;
inline constexpr int kFp8RunInputs = 64;  // num_inputs is a multiple
inline constexpr int kFp8RunBytes = kFp8BlockOutputs * kFp8RunInputs;

// Returns the offset of a weight in its block, by output (of eight) and input.
constexpr size_t Fp8Offset(int output, int input) {
  const int run = input / kFp8RunInputs;
  const int step = input % kFp8RunInputs / 16;
  const int in_step = input % 16;
  const int thread = in_step % 8 / 2;
  const int byte = in_step / 8 + in_step % 2 * 2;
  return size_t(run) * kFp8RunBytes + ((output * 4 + thread) * 4 + step) * 4 +
         byte;
}

}  // namespace espalier
