// Sampling in two launches, or in one:
//
//   ReadTiles  reads the logits once and writes for every tile of 1,024 the
//              maxima of its quarters and their sums of weights, both after
//              edits, and the raw row's sum of exponentials;
//   DrawRows   one block per draw. A greedy draw reads the best quarters again.
//              Without filters the tiles' sums give the tile of the token,
//              which is read again. With top_k or min_p, the maxima select a
//              few quarters, whose tokens are listed. A filter's bound is then
//              found by histograms of counts or weights, of 512 bins in
//              distance from the best, then within one bin; and so is the
//              sampled token, in bins of tokens;
//   DrawInClusters  both for few draws, up to 16 of 131,072 tokens on an H200:
//              a cluster of blocks per draw, which keeps its row in registers
//              (cuda_sample_few.cu).
//
// If a list would be too long, the row is read again: for a histogram of all
// quarters that reach the cut, and to list the bin of the cut and sum the rest
// of the tiles. So rows that keep thousands of tokens are slow. With few draws,
// each has a cluster of up to 16 blocks for that, which divide the quarters,
// add their histograms, and merge their lists. With many draws each has one
// block.
//
// For costs see docs/performance.md (bin/cuda_sample_benchmark): on an NVIDIA
// H200, 512 rows of 128,256 f32 logits take 80 us with top_k, top_p and min_p,
// which is 3.3 TB/s.
#include "kernels/sample/cuda_sample.h"
#include "kernels/sample/cuda_sample_row.cuh"

namespace espalier {
namespace cuda_sample {
static_assert(CudaSampleLayout::kQuartersBytes == sizeof(float4));
static_assert(CudaSampleLayout::kRawTileBytes == sizeof(RawTile));

Params ParamsAt(const CudaSampleInputs& inputs, const CudaSampleLayout& layout,
                void* base) {
  Params p = {};
  p.in = inputs;
  p.maxima = layout.maxima.At<float4>(base);
  p.sums = layout.sums.At<float4>(base);
  p.raw = layout.raw.At<RawTile>(base);
  p.first_edits = layout.first_edits.At<int>(base);
  p.num_tiles = layout.num_tiles;
  return p;
}

absl::Status CheckShapes(const CudaSampleInputs& in) {
  if (in.dtype != DType::kFloat32 && in.dtype != DType::kBFloat16) {
    return InvalidArgument("logits are neither float32 nor bfloat16");
  }
  if (in.copies != nullptr && in.dtype != DType::kFloat32) {
    return InvalidArgument("rows to copy are not float32");
  }
  if (in.num_rows < 1 || in.vocab_size < 1 || in.max_draws < 1) {
    return InvalidArgument("cannot draw up to ", in.max_draws, " tokens from ",
                           in.num_rows, " rows of ", in.vocab_size);
  }
  if (in.num_rows > kMaxCudaLogitsRows || in.vocab_size > kMaxCudaSampleVocab ||
      int64_t{in.num_rows} * in.vocab_size > kMaxCudaLogits) {
    return InvalidArgument("too many logits for one call: ", in.num_rows,
                           " rows of ", in.vocab_size);
  }
  return absl::OkStatus();
}

}  // namespace cuda_sample

namespace {

// The layout of the scratch of a call.
CudaSampleLayout LayoutOf(const CudaSampleInputs& inputs) {
  return {inputs.num_rows, inputs.vocab_size, inputs.row_edits != nullptr};
}

}  // namespace

size_t CudaSampleScratchBytes(const CudaSampleInputs& inputs) {
  return LayoutOf(inputs).layout.bytes();
}

absl::Status CudaSample(const CudaSampleInputs& inputs, Candidate* candidates,
                        void* scratch, const CudaDevice& device,
                        cudaStream_t stream) {
  RETURN_IF_ERROR(cuda_sample::CheckShapes(inputs));
  cuda_sample::Params p =
      cuda_sample::ParamsAt(inputs, LayoutOf(inputs), scratch);
  p.candidates = candidates;
  ASSIGN_OR_RETURN(const bool is_done,
                   cuda_sample::DrawFewTokens(p, device, stream));
  if (is_done) return absl::OkStatus();
  RETURN_IF_ERROR(cuda_sample::ReadRows(p, device, stream));
  return cuda_sample::DrawTokens(p, device, stream);
}

}  // namespace espalier
