#include "model/cuda/cuda_step_runner.h"

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

// A bound of how many there are, for few graphs: a power of two within what
// there can be; 0 for none.
int GraphBound(int count, int least, int most) {
  if (count == 0) return 0;
  return std::min(PowerOfTwoFrom(std::max(count, least)),
                  std::max(count, most));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaStepRunner>> CudaStepRunner::Create(
    CudaLlama* model, const CudaStepMemory* memory,
    const CudaReportRing& reports, const CudaLogProbRing& log_prob_reports,
    int max_graphs, const CudaDevice& device, cudaStream_t stream) {
  if (max_graphs < 0) {
    return InvalidArgument("max_graphs must not be negative, got ", max_graphs);
  }
  std::unique_ptr<CudaStepRunner> runner(new CudaStepRunner(max_graphs));
  runner->model_ = model;
  runner->memory_ = memory;
  runner->reports_ = reports;
  runner->log_prob_reports_ = log_prob_reports;
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
  RETURN_IF_ERROR(PrepareCudaCollectEdits());
  ASSIGN_OR_RETURN(runner->logits_, DeviceBuffer<float>::Create(num_logits));
  const Shape largest = runner->LargestShape();
  const size_t scratch_bytes =
      std::max({CudaSelectScratchBytes(runner->SelectInputs(largest)),
                CudaSelectScratchBytes(runner->BestInputs(largest)),
                CudaSampleScratchBytes(runner->SampleInputs(largest))});
  ASSIGN_OR_RETURN(runner->scratch_,
                   DeviceBuffer<std::byte>::Create(scratch_bytes));
  // Selection loads the sums of dead rows, which nobody has written, before it
  // knows that they are dead; it makes nothing of them, but tools cannot tell.
  RETURN_IF_CUDA_ERROR(
      cudaMemsetAsync(runner->scratch_.data(), 0, scratch_bytes, stream));
  // Now, so that no step fails for want of it.
  const size_t perturb_bytes =
      CudaPerturbScratchBytes(runner->PerturbInputs(largest));
  ASSIGN_OR_RETURN(runner->perturb_scratch_,
                   DeviceBuffer<std::byte>::Create(perturb_bytes));
  return runner;
}

// As far as scratch is concerned.
CudaStepRunner::Shape CudaStepRunner::LargestShape() const {
  const CudaStepLimits& limits = memory_->limits();
  return {.num_lines = limits.max_rows,
          .max_groups = reports_.max_groups,
          .max_candidates = limits.max_candidates,
          .max_draws = limits.max_rows,
          .max_perturbed = limits.max_candidates,
          .max_best = limits.max_best_tokens,
          .has_edits = true};
}

absl::Status CudaStepRunner::Enqueue(const CudaStep& step) {
  if (!step.only_beams) return EnqueueEagerly(step);
  const Shape shape = GraphShape(step);
  ASSIGN_OR_RETURN(const CudaGraph* const graph,
                   graphs_.Get(shape, [&] { return Capture(shape); }));
  if (graph == nullptr) {
    ++num_without_graph_;
    return EnqueueAll(shape);
  }
  ++num_graph_launches_;
  return CudaStatus(cudaGraphLaunch(graph->get(), stream_), "cudaGraphLaunch");
}

// With all the memory it needs on the device, so that no launch fails for it.
absl::StatusOr<CudaGraph> CudaStepRunner::Capture(const Shape& shape) {
  ASSIGN_OR_RETURN(CudaGraph graph,
                   CaptureGraph(stream_, [&] { return EnqueueAll(shape); }));
  RETURN_IF_CUDA_ERROR(cudaGraphUpload(graph.get(), stream_));
  return graph;
}

CudaStepRunner::Shape CudaStepRunner::GraphShape(const CudaStep& step) const {
  const CudaStepLimits& limits = memory_->limits();
  const int max_candidates =
      GraphBound(step.max_candidates, kMinCandidates, limits.max_candidates);
  // Blocks of groups that are not there cost little, graphs more; but few
  // groups, and wide ones, are selected for by many blocks each.
  const bool few_groups = step.num_groups <= kMaxFewCudaSelectGroups;
  const int max_groups = few_groups || max_candidates > kMaxNarrowCudaSelect
                             ? PowerOfTwoFrom(step.num_groups)
                             : step.num_rows;
  Shape shape = {
      .num_rows = step.num_rows,
      .num_tokens = step.num_rows,
      .num_lines = step.num_rows,
      .max_groups = std::min(max_groups, reports_.max_groups),
      .max_candidates = max_candidates,
      .max_group_rows = step.max_group_rows,
      .max_draws = step.num_draws > 0 ? step.num_rows : 0,
      .max_perturbed =
          GraphBound(step.max_perturbed, kMinCandidates, limits.max_candidates),
      .max_asked =
          GraphBound(step.num_asked, kMinCandidates, limits.max_asked_tokens()),
      .max_best =
          GraphBound(step.max_best, kMinCandidates, limits.max_best_tokens),
      .max_copies = step.num_rows,
      .has_edits = step.has_edits,
      .makes_edits = step.makes_edits,
      .has_partials = step.has_partials};
  shape.max_group_rows = SameCudaSelectRows(SelectInputs(shape), device_);
  return shape;
}

absl::Status CudaStepRunner::EnqueueEagerly(const CudaStep& step) {
  const Shape shape = {.num_rows = step.num_rows,
                       .num_tokens = step.num_tokens,
                       .num_lines = step.num_lines,
                       .max_groups = std::max(step.num_groups, 1),
                       .max_candidates = step.max_candidates,
                       .max_group_rows = step.max_group_rows,
                       .max_draws = step.num_draws,
                       .max_perturbed = step.max_perturbed,
                       .max_asked = step.num_asked,
                       .max_best = step.max_best,
                       .max_copies = step.max_copies,
                       .has_edits = step.has_edits,
                       .makes_edits = step.makes_edits,
                       .has_partials = step.has_partials};
  return EnqueueAll(shape);
}

absl::Status CudaStepRunner::EnqueueAll(const Shape& shape) {
  const CudaStepArrays& arrays = memory_->arrays();
  RETURN_IF_ERROR(CudaBeginStep(arrays.state, shape.num_rows, stream_));
  if (shape.max_copies > 0) {
    RETURN_IF_ERROR(CudaCopyBeamTails(arrays.state, shape.max_copies,
                                      model_->cache(), device_, stream_));
  }
  // Before the forward pass, which is a barrier: selection reads edits early.
  if (shape.makes_edits) {
    RETURN_IF_ERROR(CudaCollectEdits(HistoryInputs(shape), arrays.row_edits,
                                     arrays.edits, stream_));
  }
  if (shape.num_tokens > 0) {
    RETURN_IF_ERROR(model_->Enqueue(BatchOf(shape), logits_.data(), stream_));
  }
  RETURN_IF_ERROR(EnqueueChoice(shape));
  if (shape.max_asked > 0) RETURN_IF_ERROR(EnqueueLogProbs(shape));
  return CudaAdvanceGroups(arrays.state, arrays.candidates,
                           arrays.num_candidates, reports_, shape.max_groups,
                           stream_);
}

absl::Status CudaStepRunner::EnqueueChoice(const Shape& shape) {
  const CudaStepArrays& arrays = memory_->arrays();
  if (shape.max_candidates > 0) {
    RETURN_IF_ERROR(CudaSelect(SelectInputs(shape),
                               {arrays.candidates, arrays.num_candidates},
                               scratch_.data(), device_, stream_));
  }
  if (shape.max_perturbed > 0) {
    RETURN_IF_ERROR(CudaPerturb(PerturbInputs(shape),
                                {arrays.candidates, arrays.num_candidates},
                                perturb_scratch_.data(), device_, stream_));
  }
  if (shape.max_draws == 0) return absl::OkStatus();
  return CudaSample(SampleInputs(shape), arrays.candidates, scratch_.data(),
                    device_, stream_);
}

absl::Status CudaStepRunner::EnqueueLogProbs(const Shape& shape) {
  const CudaStepArrays& arrays = memory_->arrays();
  const CudaStepLogProbs& log_probs = arrays.log_probs;
  const int vocab_size = model_->description().vocab_size;
  RETURN_IF_ERROR(CudaAskOfCandidates(log_probs, arrays.candidates, vocab_size,
                                      shape.max_groups, stream_));
  RETURN_IF_ERROR(CudaLogProbs({.vocab_size = vocab_size,
                                .max_asked = shape.max_asked,
                                .logits = logits_.data(),
                                .num_asked = &log_probs.counts->num_asked,
                                .asked = log_probs.asked},
                               log_probs.scores, stream_));
  if (shape.max_best > 0) {
    RETURN_IF_ERROR(CudaSelect(BestInputs(shape),
                               {log_probs.best, log_probs.num_found},
                               scratch_.data(), device_, stream_));
  }
  return CudaReportLogProbs(log_probs, arrays.state.clock, log_prob_reports_,
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

CudaHistoryInputs CudaStepRunner::HistoryInputs(const Shape& shape) const {
  const CudaStepArrays& arrays = memory_->arrays();
  const CudaResidentState& state = arrays.state;
  return {.num_rows = shape.num_lines,
          .vocab_size = model_->description().vocab_size,
          .table_stride = state.table_stride,
          .page_size = state.page_size,
          .rows = arrays.edit_rows,
          .rules = arrays.edit_rules,
          .cum_log_probs = state.batch_cum_log_probs,
          .logits_tokens = state.logits_tokens,
          .positions = state.batch_positions,
          .token_tables = arrays.token_tables,
          .tables = state.tables,
          .page_tokens = state.page_tokens};
}

CudaSelectInputs CudaStepRunner::SelectInputs(const Shape& shape) const {
  const CudaStepArrays& arrays = memory_->arrays();
  return {.num_rows = shape.num_lines,
          .vocab_size = model_->description().vocab_size,
          .max_groups = shape.max_groups,
          .max_candidates = shape.max_candidates,
          .max_group_rows = shape.max_group_rows,
          // Of the step, not of the groups that are selected for: these are
          // placed behind tokens drawn and candidates of perturbed rows.
          .max_total_candidates = memory_->limits().max_candidates,
          .logits = logits_.data(),
          .num_groups = arrays.state.num_groups,
          .groups = arrays.state.selections,
          .row_groups = arrays.select_row_groups,
          .cum_log_probs = arrays.state.batch_cum_log_probs,
          .row_edits = shape.has_edits ? arrays.row_edits : nullptr,
          .edits = arrays.edits};
}

CudaSampleInputs CudaStepRunner::SampleInputs(const Shape& shape) const {
  const CudaStepArrays& arrays = memory_->arrays();
  return {.num_rows = shape.num_lines,
          .vocab_size = model_->description().vocab_size,
          .max_draws = shape.max_draws,
          .logits = logits_.data(),
          .num_draws = arrays.num_draws,
          .draws = arrays.state.draws,
          .row_params = arrays.row_params,
          .params = arrays.params,
          .cum_log_probs = arrays.state.batch_cum_log_probs,
          .row_edits = shape.has_edits ? arrays.row_edits : nullptr,
          .edits = arrays.edits};
}

CudaPerturbInputs CudaStepRunner::PerturbInputs(const Shape& shape) const {
  const CudaStepArrays& arrays = memory_->arrays();
  Shape rows = shape;
  rows.max_candidates = shape.max_perturbed;
  rows.max_group_rows = 1;
  CudaSelectInputs select = SelectInputs(rows);
  select.groups = arrays.perturbed_selections;
  select.row_groups = arrays.state.row_groups;  // CudaSelect's leave these out
  return {.select = select,
          .rows = arrays.perturbed_rows,
          .row_params = arrays.perturbed_params,
          .params = arrays.params};
}

// A group a line: its best tokens by the model's own scores.
CudaSelectInputs CudaStepRunner::BestInputs(const Shape& shape) const {
  const CudaStepLogProbs& log_probs = memory_->arrays().log_probs;
  return {.num_rows = shape.num_lines,
          .vocab_size = model_->description().vocab_size,
          .max_groups = shape.num_lines,
          .max_candidates = shape.max_best,
          .max_group_rows = 1,
          .max_total_candidates = static_cast<int>(
              std::min<int64_t>(int64_t{shape.num_lines} * shape.max_best,
                                memory_->limits().max_best_tokens)),
          .logits = logits_.data(),
          .num_groups = &log_probs.counts->num_best_groups,
          .groups = log_probs.best_groups,
          .row_groups = log_probs.best_row_groups,
          .cum_log_probs = log_probs.zeros};
}

}  // namespace espalier
