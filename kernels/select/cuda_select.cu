// Selection, in one launch where groups are few (cuda_select_cluster.cu), else
// in two:
//
//   ReadTiles    reads the logits once, and leaves of every tile of 1,024 the
//                maxima of its quarters and its sum of exponentials;
//   MergeGroups  one block a group: the rows' log-sum-exps; a threshold under
//                the m-th best sum, from the maxima alone; the few quarters
//                that reach it are read again; what reaches it there, hardly
//                more than m, is ranked by counting.
//
// No step keeps a running list of the best, so the scan is a load, a maximum
// and an exponential per logit. Where more elements tie than a block keeps, or
// rounding could let a tie at the cut go to the wrong one, the group is chosen
// row by row instead (cuda_select_exact.cuh).
//
// Cost: 4 or 2 bytes a logit are read once, 1 % of that is written and read as
// maxima and sums, and some m quarters of 256 logits are read again. Figures,
// beside reading alone and torch, are in docs/performance.md
// (bin/cuda_select_benchmark). In two launches 4 x 32,000 logits take 6.4 us
// and 16 x 128,256 8.2 on an H200: of the 3.3 us of merging, nearly a third
// goes into the sums and as much into reading quarters again, the rest into
// threshold, list and ranks in like parts, some 2,000 instructions that run
// once.
//
// Edits cost more: 4 rows of 128,256 with m = 8, 6.4 us without, take 14 us
// with 200 penalties a row and 42 us with 2,000. And if all logits of these
// rows are equal, choosing row by row takes 0.48 ms.
#include "base/status.h"
#include "kernels/select/cuda_select_row.cuh"
#include "kernels/select/cuda_select_steps.h"

namespace espalier {
namespace cuda_select {
namespace {

size_t MaxTotalCandidates(const CudaSelectInputs& inputs) {
  if (inputs.max_total_candidates > 0) return inputs.max_total_candidates;
  return size_t(inputs.max_groups) * inputs.max_candidates;
}

// Lays the parts of scratch memory out from `base`; returns the bytes.
size_t LayOut(const CudaSelectInputs& inputs, char* base, Scratch& scratch) {
  size_t bytes = 0;
  const auto place = [&](auto*& part, size_t size) {
    part =
        reinterpret_cast<std::remove_reference_t<decltype(part)>>(base + bytes);
    bytes += (size * sizeof(*part) + 255) / 256 * 256;
  };
  const size_t rows = inputs.num_rows;
  const size_t tiles = rows * NumTiles(inputs);
  place(scratch.maxima, tiles * kQuarters);
  place(scratch.sums, tiles);
  place(scratch.stats, rows);
  if (inputs.max_candidates <= kMaxNarrow) return bytes;
  const size_t groups = inputs.max_groups;
  const size_t candidates = MaxTotalCandidates(inputs);
  place(scratch.columns, rows * kColumns);
  place(scratch.cuts, groups);
  place(scratch.modes, groups);
  place(scratch.counts, groups);
  place(scratch.gathers, groups);
  place(scratch.entries, kEntriesPerCandidate * candidates);
  place(scratch.chosen, candidates);
  return bytes;
}

absl::Status CheckShapes(const CudaSelectInputs& in) {
  if (in.dtype != DType::kFloat32 && in.dtype != DType::kBFloat16) {
    return InvalidArgument("logits are neither float32 nor bfloat16");
  }
  if (in.num_rows < 1 || in.vocab_size < 1 || in.max_groups < 1 ||
      in.max_candidates < 1 || in.max_total_candidates < 0) {
    return InvalidArgument("cannot select from ", in.num_rows, " rows of ",
                           in.vocab_size, " for up to ", in.max_groups,
                           " groups of up to ", in.max_candidates);
  }
  if (in.num_rows > kMaxCudaSelectRows ||
      int64_t{in.num_rows} * in.vocab_size > kMaxCudaSelectLogits) {
    return InvalidArgument("too many logits for one call: ", in.num_rows,
                           " rows of ", in.vocab_size);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace cuda_select

size_t CudaSelectScratchBytes(const CudaSelectInputs& inputs) {
  cuda_select::Scratch scratch;
  return cuda_select::LayOut(inputs, nullptr, scratch);
}

absl::Status CudaSelect(const CudaSelectInputs& inputs,
                        const CudaSelectOutputs& outputs, void* scratch,
                        const CudaDevice& device, cudaStream_t stream) {
  RETURN_IF_ERROR(cuda_select::CheckShapes(inputs));
  cuda_select::Params p = {.in = inputs, .out = outputs, .scratch = {}};
  cuda_select::LayOut(inputs, static_cast<char*>(scratch), p.scratch);
  p.tiles = cuda_select::NumTiles(inputs);
  ASSIGN_OR_RETURN(const bool done,
                   cuda_select::SelectInClusters(p, device, stream));
  if (done) return absl::OkStatus();
  RETURN_IF_ERROR(cuda_select::ReadAllTiles(p, device, stream));
  RETURN_IF_ERROR(cuda_select::MergeNarrowGroups(p, device, stream));
  if (inputs.max_candidates <= kMaxNarrowCudaSelect) return absl::OkStatus();
  return cuda_select::MergeWideGroups(p, device, stream);
}

}  // namespace espalier
