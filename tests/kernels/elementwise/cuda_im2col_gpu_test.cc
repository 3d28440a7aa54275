#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/status.h"
#include "kernels/elementwise/cuda_im2col.h"
#include "tests/kernels/float_arrays.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::DeviceArray;
using ::espalier::testing::kDTypes;
using ::espalier::testing::RandomFloats;
using ::espalier::testing::Rounded;
using ::espalier::testing::StatusIs;

// The rows by their definition.
std::vector<float> RowsOnTheHost(const std::vector<float>& values,
                                 const CudaFrames& frames, int stride,
                                 int width) {
  std::vector<float> rows;
  for (int i = 0; i < frames.num_frames / stride; ++i) {
    const int source = i * stride / frames.frames_per_source;
    const int begin = source * frames.frames_per_source;
    for (int frame = i * stride - 1; frame <= i * stride + 1; ++frame) {
      const bool is_inside =
          frame >= begin && frame < begin + frames.frames_per_source;
      for (int col = 0; col < width; ++col) {
        rows.push_back(is_inside && col < frames.num_cols
                           ? values[size_t(frame) * frames.num_cols + col]
                           : 0.0f);
      }
    }
  }
  return rows;
}

struct Im2ColCase {
  int frames_per_source;
  int num_sources;
  int stride;
  int num_cols;
  int width;
};

void ExpectRows(const Im2ColCase& c, DType from, DType to) {
  CudaFrames frames = {.dtype = from,
                       .num_frames = c.frames_per_source * c.num_sources,
                       .num_cols = c.num_cols,
                       .frames_per_source = c.frames_per_source};
  const std::vector<float> values = Rounded(
      RandomFloats(size_t(frames.num_frames) * c.num_cols, c.num_cols), from);
  const DeviceArray on_device(values, from);
  frames.data = on_device.data();
  const std::vector<float> expected =
      Rounded(RowsOnTheHost(values, frames, c.stride, c.width), to);
  const DeviceArray out = DeviceArray::Poisoned(expected.size(), to);
  ASSERT_OK(CudaIm2Col(frames, c.stride, to, c.width, out.data(), nullptr));
  EXPECT_EQ(out.Read(), expected)
      << Concat(c.frames_per_source, " frames of ", c.num_cols, " in ",
                NameOf(from), ", strides of ", c.stride, ", to ", NameOf(to));
}

TEST(CudaIm2ColTest, RowsAreTheThreeFramesAroundEach) {
  for (const Im2ColCase& c : {Im2ColCase{2, 1, 1, 8, 8},
                              {2, 3, 2, 8, 8},
                              {40, 2, 1, 80, 80},
                              {40, 2, 2, 80, 80},
                              {3000, 2, 1, 128, 128},
                              {3000, 1, 2, 512, 512}}) {
    for (const DType dtype : kDTypes) {
      ExpectRows(c, dtype, dtype);
      ExpectRows(c, DType::kFloat32, dtype);
    }
  }
}

TEST(CudaIm2ColTest, ColumnsOfPaddingAreZeros) {
  for (const DType dtype : kDTypes) {
    ExpectRows({66, 3, 1, 5, 8}, DType::kFloat32, dtype);
    ExpectRows({66, 1, 2, 12, 16}, DType::kFloat32, dtype);
  }
}

TEST(CudaIm2ColTest, RefusesShapesThatDoNotFit) {
  const auto refused = [](const CudaFrames& frames, int stride, int width) {
    return CudaIm2Col(frames, stride, DType::kFloat16, width, nullptr, nullptr);
  };
  EXPECT_THAT(
      refused({.num_frames = 10, .num_cols = 8, .frames_per_source = 5}, 2, 8),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "10 frames, 5 a source, in strides of 2"));
  EXPECT_THAT(
      refused({.num_frames = 9, .num_cols = 8, .frames_per_source = 4}, 2, 8),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "9 frames, 4 a source, in strides of 2"));
  EXPECT_THAT(
      refused({.num_frames = 4, .num_cols = 9, .frames_per_source = 4}, 1, 8),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "frames of 9 columns in rows of 8, which is no multiple "
               "of 8 or too few"));
  EXPECT_THAT(refused({.dtype = DType::kBFloat16,
                       .num_frames = 4,
                       .num_cols = 8,
                       .frames_per_source = 4},
                      1, 8),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "frames of bf16 and 8 columns in rows of f16 and 8"));
  EXPECT_OK(refused({.num_cols = 8, .frames_per_source = 4}, 2, 8));
}

}  // namespace
}  // namespace espalier
