// Selection, in one launch for few groups (cuda_select_cluster.cu), else in
// two:
//
//   ReadTiles    reads the logits once, and writes for every tile of 1,024 the
//                maxima of its quarters and its sum of exponentials;
//   MergeGroups  one block per group: the rows' log-sum-exps; a threshold below
//                the m-th best sum, from the maxima only; the few quarters that
//                reach it are read again; their elements that reach it, hardly
//                more than m, are ranked by counting.
//
// No step keeps a running list of the best, so the scan is a load, a maximum
// and an exponential per logit. If more elements tie than a block keeps, or
// rounding could break a tie at the cut wrongly, the group is chosen row by row
// (cuda_select_exact.cuh).
//
// Cost: 4 or 2 bytes a logit are read once, 1 % of that is written and read as
// maxima and sums, and some m quarters of 256 logits are read again.
// Measurements, with a pure read and torch for comparison, are in
// docs/performance.md (bin/cuda_select_benchmark). In two launches 4 x 32,000
// logits take 6.4 us and 16 x 128,256 8.2 on an H200. Of the 3.3 us of merging,
// the sums take nearly a third, reading quarters again another third, and
// threshold, list and ranks the rest in equal parts: some 2,000 instructions
// that run once.
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

static_assert(CudaSelectLayout::kColumns == kColumns);
static_assert(CudaSelectLayout::kEntriesPerCandidate == kEntriesPerCandidate);
static_assert(CudaSelectLayout::kRowStatsBytes == sizeof(RowStats));
static_assert(CudaSelectLayout::kEntryBytes == sizeof(Entry));
static_assert(CudaSelectLayout::kKeyBytes == sizeof(ScoreKey));

// Returns the arrays of the scratch memory at `base`.
Scratch PartsAt(const CudaSelectLayout& layout, void* base) {
  return {.maxima = layout.maxima.At<float>(base),
          .sums = layout.sums.At<float>(base),
          .tops = layout.tops.At<float>(base),
          .stats = layout.stats.At<RowStats>(base),
          .columns = layout.columns.At<float>(base),
          .cuts = layout.cuts.At<uint32_t>(base),
          .modes = layout.modes.At<int>(base),
          .counts = layout.counts.At<int>(base),
          .gathers = layout.gathers.At<bool>(base),
          .entries = layout.entries.At<Entry>(base),
          .chosen = layout.chosen.At<ScoreKey>(base)};
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
  if (in.num_rows > kMaxCudaLogitsRows ||
      int64_t{in.num_rows} * in.vocab_size > kMaxCudaLogits) {
    return InvalidArgument("too many logits for one call: ", in.num_rows,
                           " rows of ", in.vocab_size);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace cuda_select

CudaSelectBounds BoundsOf(const CudaSelectInputs& inputs) {
  const int64_t total =
      inputs.max_total_candidates > 0
          ? inputs.max_total_candidates
          : int64_t{inputs.max_groups} * inputs.max_candidates;
  return {.num_rows = inputs.num_rows,
          .vocab_size = inputs.vocab_size,
          .max_groups = inputs.max_groups,
          .max_candidates = inputs.max_candidates,
          .max_total_candidates = total};
}

size_t CudaSelectScratchBytes(const CudaSelectInputs& inputs) {
  return CudaSelectLayout(BoundsOf(inputs)).layout.bytes();
}

absl::Status CudaSelect(const CudaSelectInputs& inputs,
                        const CudaSelectOutputs& outputs, void* scratch,
                        const CudaDevice& device, cudaStream_t stream) {
  RETURN_IF_ERROR(cuda_select::CheckShapes(inputs));
  const CudaSelectLayout layout(BoundsOf(inputs));
  const cuda_select::Params p = {
      .in = inputs,
      .out = outputs,
      .scratch = cuda_select::PartsAt(layout, scratch),
      .tiles = layout.num_tiles};
  ASSIGN_OR_RETURN(const bool done,
                   cuda_select::SelectInClusters(p, device, stream));
  if (done) return absl::OkStatus();
  RETURN_IF_ERROR(cuda_select::ReadAllTiles(p, device, stream));
  RETURN_IF_ERROR(cuda_select::MergeNarrowGroups(p, device, stream));
  if (inputs.max_candidates <= kMaxNarrowCudaSelect) return absl::OkStatus();
  return cuda_select::MergeWideGroups(p, device, stream);
}

}  // namespace espalier
