// Verification in two launches, or in three:
//
//   ReadTiles     of sampling: reads all rows once, and writes the statistics
//                 of tiles (kernels/sample/cuda_sample_read.cu);
//   JudgeDrafts   one block per row. If a random number decides acceptance: the
//                 tokens that the filters keep, the probability of the drafted
//                 token and, without filters, the token that replaces a
//                 rejected draft. Else the token of plain sampling: bonus,
//                 greedy and coupled tokens. If no sequence needs more, the
//                 last block of each to finish writes its result;
//   RecoverRows   each block finds the end of its sequence's draft. If that is
//                 a rejection that its row alone does not decide, because the
//                 draft has a row too, or filters cut it, the sequence's blocks
//                 read both rows again, one tile per warp, and sum
//                 max(p - q, 0). The last block to arrive finds the tile, and
//                 the token in it.
//
// So all rows are read once, and two rows again for each sequence with a
// rejection, from L2 if they fit. None is read again if the draft has no rows
// and there are no filters, because p without the draft is then the row's tiles
// without it.
#include "base/status.h"
#include "kernels/verify/cuda_verify.h"
#include "kernels/verify/cuda_verify_row.cuh"

namespace espalier {
namespace cuda_sample {
namespace {

static_assert(CudaVerifyLayout::kVerdictBytes == sizeof(RowVerdict));

VerifyParams VerifyParamsAt(const CudaVerifyInputs& in,
                            const CudaVerifyLayout& layout, void* base) {
  CudaSampleInputs rows;
  rows.dtype = in.dtype;
  rows.num_rows = in.num_rows;
  rows.vocab_size = in.vocab_size;
  rows.max_draws = 1;
  rows.logits = in.logits;
  rows.row_params = in.row_params;
  rows.params = in.params;
  rows.row_edits = in.row_edits;
  rows.edits = in.edits;
  rows.masks = in.masks;
  VerifyParams p = {};
  p.in = in;
  p.verdicts = layout.verdicts.At<RowVerdict>(base);
  p.tile_masses = layout.tile_masses.At<Mass>(base);
  p.arrivals = layout.arrivals.At<unsigned>(base);
  p.sample =
      ParamsAt(rows, layout.of_sample, layout.sample.template At<char>(base));
  p.sample.row_addresses = in.row_addresses;
  return p;
}

}  // namespace
}  // namespace cuda_sample

namespace {

CudaVerifyLayout LayoutOf(const CudaVerifyInputs& inputs) {
  return {inputs.num_rows, inputs.vocab_size, inputs.max_sequences,
          inputs.row_edits != nullptr};
}

}  // namespace

size_t CudaVerifyScratchBytes(const CudaVerifyInputs& inputs) {
  return LayoutOf(inputs).layout.bytes();
}

absl::Status CudaVerify(const CudaVerifyInputs& inputs,
                        const CudaVerifyOutputs& outputs, void* scratch,
                        const CudaDevice& device, cudaStream_t stream) {
  if (inputs.max_sequences < 1 || inputs.max_sequences > kMaxCudaLogitsRows) {
    return InvalidArgument("cannot verify the drafts of up to ",
                           inputs.max_sequences, " sequences in one call");
  }
  cuda_sample::VerifyParams p =
      cuda_sample::VerifyParamsAt(inputs, LayoutOf(inputs), scratch);
  p.out = outputs;
  RETURN_IF_ERROR(cuda_sample::CheckShapes(p.sample.in));
  RETURN_IF_ERROR(cuda_sample::ReadRows(p.sample, device, stream));
  RETURN_IF_ERROR(cuda_sample::JudgeRows(p, device, stream));
  if (!p.needs_recovery()) return absl::OkStatus();
  return cuda_sample::AcceptAndRecover(p, stream);
}

}  // namespace espalier
