#include "model/cuda_step_runner.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/status.h"

namespace espalier {
namespace {

// The least bound of a group's candidates: 16 cost what fewer do.
constexpr int kMinCandidates = 16;

int PowerOfTwoFrom(int value) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(value)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaStepRunner>> CudaStepRunner::Create(
    CudaLlama* model, const CudaStepMemory* memory,
    const CudaReportRing& reports, const CudaDevice& device,
    cudaStream_t stream) {
  std::unique_ptr<CudaStepRunner> runner(new CudaStepRunner);
  runner->model_ = model;
  runner->memory_ = memory;
  runner->reports_ = reports;
  runner->device_ = device;
  runner->stream_ = stream;
  const CudaStepLimits& limits = memory->limits();
  const int64_t num_logits =
      int64_t{limits.max_rows} * model->description().vocab_size;
  if (limits.max_rows > kMaxCudaSelectRows ||
      num_logits > kMaxCudaSelectLogits) {
    return InvalidArgument("a step of ", limits.max_rows, " rows has ",
                           num_logits, " logits, at most ", kMaxCudaSelectRows,
                           " rows and ", kMaxCudaSelectLogits,
                           " logits can be selected from");
  }
  ASSIGN_OR_RETURN(runner->logits_, DeviceBuffer<float>::Create(num_logits));
  const Shape largest = {.num_lines = limits.max_rows,
                         .max_groups = reports.max_groups,
                         .max_candidates = limits.max_candidates};
  ASSIGN_OR_RETURN(runner->select_scratch_,
                   DeviceBuffer<std::byte>::Create(
                       CudaSelectScratchBytes(runner->SelectInputs(largest))));
  return runner;
}

absl::Status CudaStepRunner::Enqueue(const CudaStep& step) {
  if (!step.only_beams) return EnqueueEagerly(step);
  ASSIGN_OR_RETURN(const cudaGraphExec_t graph, FindGraph(GraphShape(step)));
  return CudaStatus(cudaGraphLaunch(graph, stream_), "cudaGraphLaunch");
}

CudaStepRunner::Shape CudaStepRunner::GraphShape(const CudaStep& step) const {
  const int max_candidates =
      std::min(PowerOfTwoFrom(std::max(step.max_candidates, kMinCandidates)),
               std::max(step.max_candidates, memory_->limits().max_candidates));
  // Blocks of groups that are not there cost little, graphs more; but wide
  // groups are selected for by many blocks each.
  const int max_groups = max_candidates > kMaxNarrowCudaSelect
                             ? PowerOfTwoFrom(step.num_groups)
                             : step.num_rows;
  return {.num_rows = step.num_rows,
          .num_tokens = step.num_rows,
          .num_lines = step.num_rows,
          .max_groups = std::min(max_groups, reports_.max_groups),
          .max_candidates = max_candidates,
          .max_copies = step.num_rows,
          .has_edits = step.has_edits,
          .has_partials = step.has_partials};
}

absl::StatusOr<cudaGraphExec_t> CudaStepRunner::FindGraph(const Shape& shape) {
  const auto found = graphs_.find(shape);
  if (found != graphs_.end()) return found->second.get();
  ASSIGN_OR_RETURN(CudaGraph graph,
                   CaptureGraph(stream_, [&] { return EnqueueAll(shape); }));
  return graphs_.emplace(shape, std::move(graph)).first->second.get();
}

absl::Status CudaStepRunner::EnqueueEagerly(const CudaStep& step) {
  const Shape shape = {.num_rows = step.num_rows,
                       .num_tokens = step.num_tokens,
                       .num_lines = step.num_lines,
                       .max_groups = std::max(step.num_groups, 1),
                       .max_candidates = std::max(step.max_candidates, 1),
                       .max_copies = step.max_copies,
                       .has_edits = step.has_edits,
                       .has_partials = step.has_partials};
  return EnqueueAll(shape);
}

absl::Status CudaStepRunner::EnqueueAll(const Shape& shape) {
  const CudaStepArrays& arrays = memory_->arrays();
  RETURN_IF_ERROR(CudaBeginStep(arrays.state, shape.num_rows, stream_));
  if (shape.max_copies > 0) {
    RETURN_IF_ERROR(CudaCopyTails(arrays.state.copies, arrays.state.num_copies,
                                  shape.max_copies, model_->cache(), device_,
                                  stream_));
  }
  if (shape.num_tokens > 0) {
    RETURN_IF_ERROR(model_->Enqueue(BatchOf(shape), logits_.data(), stream_));
  }
  if (shape.num_lines > 0) {
    RETURN_IF_ERROR(CudaSelect(SelectInputs(shape),
                               {arrays.candidates, arrays.num_candidates},
                               select_scratch_.data(), device_, stream_));
  }
  return CudaAdvanceGroups(arrays.state, arrays.candidates,
                           arrays.num_candidates, reports_, shape.max_groups,
                           stream_);
}

CudaBatch CudaStepRunner::BatchOf(const Shape& shape) const {
  const CudaStepArrays& arrays = memory_->arrays();
  const CudaStepLimits& limits = memory_->limits();
  return {.num_tokens = shape.num_tokens,
          .tokens = arrays.state.batch_tokens,
          .positions = arrays.state.batch_positions,
          .token_tables = arrays.token_tables,
          .attention = {.items = arrays.items,
                        .item_counts = arrays.item_counts,
                        .partial_indptr = arrays.partial_indptr,
                        .max_queries = shape.num_tokens,
                        .max_items = limits.max_items,
                        .max_partials =
                            shape.has_partials ? limits.max_partials : 0,
                        .positions = arrays.state.batch_positions,
                        .tables = arrays.state.tables,
                        .table_stride = limits.table_stride},
          .num_logits = shape.num_lines,
          .logits_tokens = arrays.state.logits_tokens};
}

CudaSelectInputs CudaStepRunner::SelectInputs(const Shape& shape) const {
  const CudaStepArrays& arrays = memory_->arrays();
  return {.num_rows = shape.num_lines,
          .vocab_size = model_->description().vocab_size,
          .max_groups = shape.max_groups,
          .max_candidates = shape.max_candidates,
          .max_total_candidates = static_cast<int>(std::min<int64_t>(
              int64_t{shape.max_groups} * shape.max_candidates,
              memory_->limits().max_candidates)),
          .logits = logits_.data(),
          .num_groups = arrays.state.num_groups,
          .groups = arrays.state.selections,
          .row_groups = arrays.state.row_groups,
          .cum_log_probs = arrays.state.batch_cum_log_probs,
          .row_edits = shape.has_edits ? arrays.row_edits : nullptr,
          .edits = arrays.edits};
}

}  // namespace espalier
