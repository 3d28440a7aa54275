// Bound by memory: reads each frame once from DRAM and up to three times from
// L2, and writes 3 / stride times as much.
#include "base/cuda_launch.cuh"
#include "base/status.h"
#include "kernels/cuda_element_type.cuh"
#include "kernels/cuda_vectors.cuh"
#include "kernels/elementwise/cuda_im2col.h"

namespace espalier {
namespace {

// A thread writes four numbers: 8 or 16 bytes. Four divide every row.
constexpr int kIm2ColVector = 4;
constexpr int kIm2ColThreads = 256;

struct Im2ColShape {
  int64_t num_vectors = 0;  // in `out`
  int frame_vectors = 0;    // a frame in `out` has
  int num_cols = 0;
  int frames_per_source = 0;
  int stride = 0;
};

// Zeros from num_cols on.
template <typename From>
__device__ __forceinline__ float4 LoadColumns(const From* frame, int first,
                                              int num_cols) {
  if (num_cols % kIm2ColVector == 0) {
    return first < num_cols ? LoadFour(frame + first) : float4{};
  }
  float values[kIm2ColVector] = {};
#pragma unroll
  for (int i = 0; i < kIm2ColVector; ++i) {
    if (first + i < num_cols) values[i] = static_cast<float>(frame[first + i]);
  }
  return {values[0], values[1], values[2], values[3]};
}

template <typename From, typename To>
__global__ void __launch_bounds__(kIm2ColThreads)
    Im2Col(const From* frames, Im2ColShape shape, To* out) {
  LaunchDependents();
  GridDependencyWait();
  const int64_t at = int64_t{blockIdx.x} * kIm2ColThreads + threadIdx.x;
  if (at >= shape.num_vectors) return;
  const int64_t row_and_tap = at / shape.frame_vectors;
  const int first =
      static_cast<int>(at - row_and_tap * shape.frame_vectors) * kIm2ColVector;
  const int tap = static_cast<int>(row_and_tap % kCudaConvolutionTaps);
  const int row = static_cast<int>(row_and_tap / kCudaConvolutionTaps);
  const int frame = row * shape.stride;
  const int in_source = frame % shape.frames_per_source + tap - 1;
  float4 values = {};
  if (in_source >= 0 && in_source < shape.frames_per_source) {
    values = LoadColumns(frames + int64_t{frame + tap - 1} * shape.num_cols,
                         first, shape.num_cols);
  }
  StoreFour(values, out + at * kIm2ColVector);
}

template <typename From, typename To>
absl::Status LaunchIm2Col(const void* frames, const Im2ColShape& shape,
                          void* out, cudaStream_t stream) {
  const int64_t grid =
      (shape.num_vectors + kIm2ColThreads - 1) / kIm2ColThreads;
  return Launch(Im2Col<From, To>,
                {.grid = static_cast<unsigned>(grid), .block = kIm2ColThreads},
                stream, static_cast<const From*>(frames), shape,
                static_cast<To*>(out));
}

}  // namespace

absl::Status CudaIm2Col(const CudaFrames& frames, int stride, DType dtype,
                        int width, void* out, cudaStream_t stream) {
  if (stride < 1 || frames.frames_per_source < 1 ||
      frames.frames_per_source % stride != 0 ||
      frames.num_frames % frames.frames_per_source != 0) {
    return InvalidArgument(frames.num_frames, " frames, ",
                           frames.frames_per_source,
                           " a source, in strides of ", stride);
  }
  if (width % 8 != 0 || width < frames.num_cols) {
    return InvalidArgument("frames of ", frames.num_cols,
                           " columns in rows of ", width,
                           ", which is no multiple of 8 or too few");
  }
  if (frames.dtype != DType::kFloat32 &&
      (frames.dtype != dtype || frames.num_cols != width)) {
    return InvalidArgument("frames of ", NameOf(frames.dtype), " and ",
                           frames.num_cols, " columns in rows of ",
                           NameOf(dtype), " and ", width);
  }
  if (frames.num_frames == 0) return absl::OkStatus();
  const int frame_vectors = width / kIm2ColVector;
  const Im2ColShape shape = {
      .num_vectors = int64_t{frames.num_frames / stride} *
                     kCudaConvolutionTaps * frame_vectors,
      .frame_vectors = frame_vectors,
      .num_cols = frames.num_cols,
      .frames_per_source = frames.frames_per_source,
      .stride = stride};
  return WithType(dtype, [&]<typename T>(T) {
    return frames.dtype == DType::kFloat32
               ? LaunchIm2Col<float, T>(frames.data, shape, out, stream)
               : LaunchIm2Col<T, T>(frames.data, shape, out, stream);
  });
}

}  // namespace espalier
