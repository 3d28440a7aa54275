// Convolutions over time as matrix products: im2col writes, for each output,
// the frames that it reads as one row.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/dtype.h"

namespace espalier {

// Frames that a convolution reads for an output.
inline constexpr int kCudaConvolutionTaps = 3;

// Frames of sources of equal length, one source after another.
struct CudaFrames {
  const void* data = nullptr;  // [num_frames, num_cols]  dtype  device
  DType dtype = DType::kFloat32;
  int num_frames = 0;  // all sources together
  int num_cols = 0;
  int frames_per_source = 1;
};

// out[i] = frames stride * i - 1, stride * i and stride * i + 1 of `frames`,
// or zeros for a frame outside of its source: convolutions with a padding of 1.
//   out  [num_frames / stride, 3, width]  dtype  device, 16-byte aligned
// Columns from num_cols on are zeros. Float32 frames are rounded to `dtype`, to
// nearest even. Enqueues on `stream` and returns; never allocates, may be
// captured. Moves 3 / stride numbers a number that it reads.
// Errors: kInvalidArgument if a source is not a whole number of strides, a
// width is no multiple of 8 or less than num_cols, or frames of 16 bits have
// another dtype or width; kInternal if the launch is refused.
absl::Status CudaIm2Col(const CudaFrames& frames, int stride, DType dtype,
                        int width, void* out, cudaStream_t stream);

}  // namespace espalier
