#include "executor/cuda/draft/cuda_draft_runner.h"

#include <algorithm>
#include <bit>

#include "base/cuda.h"
#include "base/cuda_memory.h"
#include "base/status.h"
#include "kernels/verify/cuda_draft_steps.h"

namespace espalier {

absl::StatusOr<std::unique_ptr<CudaDraftRunner>> CudaDraftRunner::Create(
    const Memory& memory, int max_graphs, cudaStream_t stream) {
  std::unique_ptr<CudaDraftRunner> runner(
      new CudaDraftRunner(memory, max_graphs, stream));
  const int max_rows = runner->limits().max_rows;
  ASSIGN_OR_RETURN(runner->logits_,
                   TakeDeviceMemory<float>(
                       "drafting", size_t(max_rows) * runner->vocab_size()));
  const Shape largest = {.num_rows = max_rows, .has_edits = true};
  ASSIGN_OR_RETURN(
      runner->scratch_,
      TakeDeviceMemory<std::byte>(
          "drafting", CudaSampleScratchBytes(runner->SampleInputs(largest))));
  return runner;
}

absl::Status CudaDraftRunner::Enqueue(const Shape& run) {
  Shape shape = run;
  int num_left = run.num_steps;
  while (num_left > 0) {
    shape.num_steps = std::min<int>(
        std::bit_floor(static_cast<unsigned>(num_left)), kMaxGraphSteps);
    // A graph of only the first step does not depend on partials of later
    // steps.
    const bool has_next = shape.num_steps > 1 || !shape.feeds_two;
    shape.has_partials = has_next && run.has_partials;
    RETURN_IF_ERROR(Replay(shape));
    num_left -= shape.num_steps;
    shape.feeds_two = shape.first_has_partials = false;
  }
  return absl::OkStatus();
}

absl::Status CudaDraftRunner::Replay(const Shape& shape) {
  ASSIGN_OR_RETURN(const CudaGraph* const graph, graphs_.Get(shape, [&] {
    return CaptureGraph(stream_, [&] { return EnqueueEach(shape); });
  }));
  if (graph == nullptr) return EnqueueEach(shape);
  ++num_graph_launches_;
  return CudaStatus(cudaGraphLaunch(graph->get(), stream_), "cudaGraphLaunch");
}

absl::Status CudaDraftRunner::EnqueueEach(const Shape& shape) {
  for (int step = 0; step < shape.num_steps; ++step) {
    RETURN_IF_ERROR(EnqueueStep(shape, step == 0 && shape.feeds_two));
  }
  return absl::OkStatus();
}

// The next step's forward pass begins with a PDL barrier, so that it sees the
// inputs that this step writes.
absl::Status CudaDraftRunner::EnqueueStep(const Shape& shape, bool feeds_two) {
  const CudaDraftArrays& arrays = memory_.inputs->arrays();
  RETURN_IF_ERROR(memory_.model->Enqueue(BatchOf(shape, feeds_two),
                                         logits_.data(), stream_));
  RETURN_IF_ERROR(CudaSample(SampleInputs(shape), arrays.candidates,
                             scratch_.data(), memory_.model->device(),
                             stream_));
  return CudaAdvanceDrafts({.rows = arrays.rows,
                            .tokens = arrays.next.tokens,
                            .positions = arrays.next.positions,
                            .token_tables = arrays.next.token_tables,
                            .draws = arrays.draws,
                            .row_edits = arrays.row_edits,
                            .kept_rows = arrays.kept_rows,
                            .candidates = arrays.candidates,
                            .drafted = memory_.drafted,
                            .max_rows = limits().max_rows,
                            .null_table = memory_.inputs->null_table()},
                           shape.num_rows, stream_);
}

CudaBatch CudaDraftRunner::BatchOf(const Shape& shape, bool feeds_two) const {
  const CudaDraftArrays& arrays = memory_.inputs->arrays();
  const CudaDraftInputs& inputs = feeds_two ? arrays.first : arrays.next;
  const int num_tokens =
      shape.num_rows * (feeds_two ? limits().max_row_tokens : 1);
  const bool has_partials =
      feeds_two ? shape.first_has_partials : shape.has_partials;
  return {
      .num_tokens = num_tokens,
      .tokens = inputs.tokens,
      .positions = inputs.positions,
      .token_tables = inputs.token_tables,
      .attention = {.items = inputs.items,
                    .item_counts = inputs.item_counts,
                    .partial_indptr = inputs.partial_indptr,
                    .max_queries = num_tokens,
                    .max_items = limits().max_items,
                    .max_partials = has_partials ? limits().max_partials : 0,
                    .has_own_tables = false,  // it has no runs
                    .positions = inputs.positions,
                    .tables = arrays.tables,
                    .table_stride = limits().table_stride},
      .num_logits = shape.num_rows,
      .logits_tokens = feeds_two ? arrays.first_logits_tokens : nullptr};
}

CudaSampleInputs CudaDraftRunner::SampleInputs(const Shape& shape) const {
  const CudaDraftArrays& arrays = memory_.inputs->arrays();
  return {.num_rows = shape.num_rows,
          .vocab_size = vocab_size(),
          .max_draws = shape.num_rows,
          .logits = logits_.data(),
          .num_draws = arrays.num_draws,
          .draws = arrays.draws,
          .row_params = arrays.row_params,
          .params = arrays.params,
          .cum_log_probs = arrays.cum_log_probs,
          .row_edits = shape.has_edits ? arrays.row_edits : nullptr,
          .edits = arrays.edits,
          .copies = shape.keeps_logits ? memory_.kept->data() : nullptr,
          .copied_rows = arrays.kept_rows};
}

}  // namespace espalier
