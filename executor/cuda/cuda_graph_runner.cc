#include "executor/cuda/cuda_graph_runner.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "base/status.h"
#include "kernels/constrain/cuda_item_masks.h"
#include "kernels/constrain/cuda_token_masks.h"

namespace espalier {

absl::StatusOr<std::unique_ptr<CudaGraphRunner>> CudaGraphRunner::Create(
    CudaModel* model, const CudaCacheEngine* cache,
    const CudaStepMemory* memory, const CudaReportRing& reports,
    const CudaLogprobRing& logprob_reports, int max_graphs, cudaStream_t stream,
    const CudaConstraint* constraints) {
  std::unique_ptr<CudaGraphRunner> runner(new CudaGraphRunner(max_graphs));
  runner->model_ = model;
  runner->cache_ = cache;
  runner->memory_ = memory;
  runner->reports_ = reports;
  runner->logprob_reports_ = logprob_reports;
  runner->stream_ = stream;
  runner->constraints_ = constraints;
  const CudaStepLimits& limits = memory->limits();
  const CudaStepScratch scratch(limits, runner->vocab_size());
  const size_t num_logits = scratch.logits_bytes / sizeof(float);
  if (limits.max_rows > kMaxCudaLogitsRows ||
      num_logits > size_t{kMaxCudaLogits}) {
    return InvalidArgument("a step of ", limits.max_rows, " rows has ",
                           num_logits, " logits, at most ", kMaxCudaLogitsRows,
                           " rows and ", kMaxCudaLogits,
                           " logits can be selected from");
  }
  RETURN_IF_ERROR(PrepareCudaCollectEdits());
  ASSIGN_OR_RETURN(runner->logits_,
                   TakeDeviceMemory<float>("logits", num_logits));
  ASSIGN_OR_RETURN(runner->scratch_, TakeDeviceMemory<std::byte>(
                                         "selection", scratch.choice_bytes));
  ASSIGN_OR_RETURN(runner->placed_drafts_,
                   PinnedBuffer<CudaPlacedDraft>::Create(
                       size_t(reports.num_reports) * limits.max_rows));
  ASSIGN_OR_RETURN(runner->unread_rows_,
                   PinnedBuffer<CudaUnreadRow>::Create(
                       size_t(reports.num_reports) * limits.max_rows));
  if (constraints != nullptr) {
    ASSIGN_OR_RETURN(runner->mask_fork_, CudaFork::Create());
  }
  if (model->description().encoder) {
    ASSIGN_OR_RETURN(runner->source_reader_,
                     CudaSourceReader::Create(model, memory));
  }
  // Selection loads sums of inactive rows before it tests whether they are
  // active. They are uninitialised and never used, but compute-sanitizer would
  // report the loads.
  RETURN_IF_CUDA_ERROR(cudaMemsetAsync(runner->scratch_.data(), 0,
                                       scratch.choice_bytes, stream));
  return runner;
}

absl::Status CudaGraphRunner::ReserveGumbelTopK() {
  if (has_gumbel_top_k()) return absl::OkStatus();
  const CudaStepScratch scratch(memory_->limits(), vocab_size());
  ASSIGN_OR_RETURN(gumbel_scratch_,
                   TakeDeviceMemory<std::byte>(
                       "drawing beams (do_sample or stochastic with beams)",
                       scratch.gumbel_bytes));
  return absl::OkStatus();
}

CudaMemoryParts CudaGraphRunner::memory() const {
  const auto bytes = [](const auto& buffer) {
    return static_cast<int64_t>(buffer.size_bytes());
  };
  CudaMemoryParts parts = {
      {"logits", bytes(logits_)},
      {"selection", bytes(scratch_)},
      {"drawn beams", bytes(gumbel_scratch_)},
      {"logits of drafts", static_cast<int64_t>(uploads_.num_bytes()), true}};
  if (source_reader_ != nullptr) {
    parts.push_back({"sources", source_reader_->num_bytes()});
    parts.push_back({"sources", source_reader_->num_pinned_bytes(), true});
  }
  return parts;
}

absl::Status CudaGraphRunner::Enqueue(const CudaStep& step) {
  ++num_enqueued_;
  RETURN_IF_ERROR(BeginRows(step));
  RETURN_IF_ERROR(PlaceDrafts(step));
  RETURN_IF_ERROR(SendDraftLogits(step));
  RETURN_IF_ERROR(EnqueueStep(step));
  return ReportVerified(step);
}

absl::Status CudaGraphRunner::EnqueueStep(const CudaStep& step) {
  if (!step.is_replayable) {
    return EnqueueAll(step.shape, step.sources, step.aligned);
  }
  const CudaStepShape shape = ShapeOfGraph(step.shape);
  ASSIGN_OR_RETURN(const CudaGraph* const graph, graphs_.Get(shape, [&] {
    return CaptureGraph(stream_, [&] { return EnqueueAll(shape); });
  }));
  if (graph == nullptr) {
    ++num_without_graph_;
    return EnqueueAll(shape);
  }
  ++num_graph_launches_;
  return CudaStatus(cudaGraphLaunch(graph->get(), stream_), "cudaGraphLaunch");
}

// Returns this step's part of an array [reports, max_rows].
template <typename T>
T* CudaGraphRunner::OfStep(PinnedBuffer<T>* all) const {
  return all->data() + num_enqueued_ % reports_.num_reports *
                           int64_t{memory_->limits().max_rows};
}

CudaPlacedBatch CudaGraphRunner::PlacedBatch() const {
  const CudaStepArrays& arrays = memory_->arrays();
  return {.tokens = arrays.state.batch_tokens,
          .positions = arrays.state.batch_positions,
          .token_tables = arrays.token_tables,
          .tables = arrays.state.tables,
          .page_tokens = arrays.state.page_tokens,
          .draws = arrays.state.draws,
          .verify_drafts = arrays.verify_drafts,
          .verify_sequences = arrays.verify_sequences,
          .table_stride = arrays.state.table_stride,
          .page_size = arrays.state.page_size};
}

absl::Status CudaGraphRunner::BeginRows(const CudaStep& step) {
  CudaUnreadRow* const rows = OfStep(&unread_rows_);
  int count = 0;
  for (const CudaStep::UnreadRow& row : step.unread_rows) {
    rows[count++] = {
        .verified = reinterpret_cast<uintptr_t>(row.before.verified()),
        .max_accepted = row.before.num_tokens(),
        .first_token = row.first_token,
        .num_tokens = row.num_tokens,
        .first_draw = row.first_draw,
        .num_draws = row.num_draws,
        .verify_sequence = row.verify_sequence};
  }
  return CudaBeginRows(rows, count, PlacedBatch(), stream_);
}

absl::Status CudaGraphRunner::PlaceDrafts(const CudaStep& step) {
  CudaPlacedDraft* const placed = OfStep(&placed_drafts_);
  int count = 0;
  for (const CudaStep::PlacedDraft& of_row : step.placed_drafts) {
    const PendingDraft& draft = of_row.draft;
    placed[count++] = {
        .tokens = reinterpret_cast<uintptr_t>(draft.tokens()),
        .stride = draft.stride(),
        .num_tokens = draft.num_tokens(),
        .first_token = of_row.first_token,
        .first_draft = of_row.first_draft,
        .verified = reinterpret_cast<uintptr_t>(draft.verified()),
        .first_candidate = of_row.first_candidate,
        .num_verified = of_row.num_verified};
  }
  return CudaPlaceDrafts(placed, count, PlacedBatch(), stream_);
}

absl::Status CudaGraphRunner::ReportVerified(const CudaStep& step) {
  return CudaReportVerified(OfStep(&placed_drafts_),
                            static_cast<int>(step.placed_drafts.size()),
                            memory_->arrays().candidates, stream_);
}

// Copies draft logits from other memory to the rows after the step's own rows
// of logits; earlier steps have read these rows. Verification reads draft
// logits on this device in place.
absl::Status CudaGraphRunner::SendDraftLogits(const CudaStep& step) {
  for (const auto& [logits, first_row] : step.draft_rows) {
    float* const to = logits_.data() + size_t(first_row) * vocab_size();
    if (logits.device() == DraftLogits::kHost) {
      RETURN_IF_ERROR(uploads_.Send(logits.values(), to, stream_));
    } else if (logits.device() != model_->device().ordinal) {
      RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(to, logits.data(),
                                           logits.size() * sizeof(float),
                                           cudaMemcpyDefault, stream_));
    }
  }
  return absl::OkStatus();
}

CudaStepShape CudaGraphRunner::ShapeOfGraph(const CudaStepShape& step) const {
  CudaStepShape shape = GraphShape(step, memory_->limits());
  shape.max_group_rows =
      CudaSelectRowBucket(SelectInputs(shape), model_->device());
  return shape;
}

absl::Status CudaGraphRunner::EnqueueAll(
    const CudaStepShape& shape, std::span<const CudaSourceRead> sources,
    std::span<const CudaAlignedTokens> aligned) {
  const CudaStepArrays& arrays = memory_->arrays();
  RETURN_IF_ERROR(CudaPrepareInputs(arrays.state, shape.num_rows, stream_));
  if (shape.max_copies > 0) {
    RETURN_IF_ERROR(cache_->CopyPages(arrays.state.copies,
                                      arrays.state.num_copies, shape.max_copies,
                                      stream_));
  }
  // Before the forward pass, which is a barrier: selection reads edits early.
  if (shape.has_device_edits) {
    RETURN_IF_ERROR(CudaCollectEdits({.histories = RowHistories(shape),
                                      .rows = arrays.edit_rows,
                                      .params = arrays.edit_params},
                                     arrays.row_edits, arrays.edits, stream_));
  }
  // After edits, which replace the rows' masks. Selection reads masks early: it
  // does not start before they are made, and neither does the next step if this
  // one fails.
  absl::Status status;
  const bool finds_masks =
      shape.has_state_masks || shape.has_item_masks || shape.has_pushdown_masks;
  if (finds_masks) {
    status = mask_fork_.Begin(stream_, [&](cudaStream_t beside) {
      return EnqueueMasks(shape, beside);
    });
  }
  if (status.ok()) status = EnqueueForward(shape, sources, aligned);
  if (finds_masks) status.Update(mask_fork_.Join(stream_));
  RETURN_IF_ERROR(status);
  if (shape.has_edited_rows) {
    RETURN_IF_ERROR(
        CudaEditRows({.histories = RowHistories(shape),
                      .logits = logits_.data(),
                      .rows = arrays.edited_rows,
                      .rules = arrays.rules,
                      .row_edits = shape.has_edits ? arrays.row_edits : nullptr,
                      .edits = arrays.edits},
                     stream_));
  }
  RETURN_IF_ERROR(EnqueueChoice(shape));
  if (shape.max_asked > 0) RETURN_IF_ERROR(EnqueueLogprobs(shape));
  return CudaUpdateBeams(arrays.state, arrays.candidates, arrays.num_candidates,
                         reports_, shape.max_groups, stream_);
}

absl::Status CudaGraphRunner::EnqueueForward(
    const CudaStepShape& shape, std::span<const CudaSourceRead> sources,
    std::span<const CudaAlignedTokens> aligned) {
  // After the copies: a page that is copied from may be a source's from now
  // on.
  if (!sources.empty()) {
    RETURN_IF_ERROR(source_reader_->Enqueue(sources, stream_));
  }
  if (shape.num_tokens == 0) return absl::OkStatus();
  CudaBatch batch = BatchOf(shape);
  batch.aligned = aligned;
  return model_->Enqueue(batch, logits_.data(), stream_);
}

absl::Status CudaGraphRunner::EnqueueMasks(const CudaStepShape& shape,
                                           cudaStream_t stream) {
  const CudaStepArrays& arrays = memory_->arrays();
  const CudaBeamState& state = arrays.state;
  const CudaMaskInputs inputs = {
      .vocab_size = vocab_size(),
      .num_rows = shape.num_logits_rows,
      .num_cached_masks = state.num_cached_masks,
      .num_kept_places = memory_->limits().num_kept_places(),
      .num_places = state.num_places,
      .constraints = constraints_,
      .rows = arrays.mask_rows,
      .logits_tokens = state.logits_tokens,
      .positions = state.batch_positions,
      .parents = state.parents,
      .tokens = state.tokens,
      .states = state.constraint_states,
      .places = state.places,
      .frames = arrays.mask_frames,
      .cache = state.masks,
      .jobs = arrays.mask_jobs,
      .pushdown_jobs = arrays.pushdown_jobs,
      .kept_places = arrays.kept_places};
  if (shape.has_pushdown_masks) {
    RETURN_IF_ERROR(CudaAdvancePlaces(inputs, stream));
  }
  constexpr int kStride = sizeof(CudaRowEdits) / sizeof(int);
  RETURN_IF_ERROR(CudaFindMasks(
      inputs, memory_->limits().first_cached_mask(), &arrays.row_edits->mask,
      shape.max_verified > 0 ? &arrays.verify_row_edits->mask : nullptr,
      kStride, stream));
  const CudaDevice& device = model_->device();
  if (shape.has_item_masks) {
    RETURN_IF_ERROR(CudaMakeItemMasks(inputs, arrays.masks, device, stream));
  }
  if (shape.has_pushdown_masks) {
    RETURN_IF_ERROR(
        CudaMakePushdownMasks(inputs, arrays.masks, device, stream));
  }
  if (shape.has_state_masks) {
    RETURN_IF_ERROR(CudaMakeTokenMasks(inputs, arrays.masks, device, stream));
  }
  return CudaEndMasks(stream);
}

absl::Status CudaGraphRunner::EnqueueChoice(const CudaStepShape& shape) {
  const CudaStepArrays& arrays = memory_->arrays();
  if (shape.max_candidates > 0) {
    RETURN_IF_ERROR(CudaSelect(SelectInputs(shape),
                               {arrays.candidates, arrays.num_candidates},
                               scratch_.data(), model_->device(), stream_));
  }
  if (shape.max_gumbel_top_k > 0) {
    RETURN_IF_ERROR(CudaGumbelTopK(
        GumbelTopKInputs(shape), {arrays.candidates, arrays.num_candidates},
        gumbel_scratch_.data(), model_->device(), stream_));
  }
  if (shape.max_draws > 0) {
    RETURN_IF_ERROR(CudaSample(SampleInputs(shape), arrays.candidates,
                               scratch_.data(), model_->device(), stream_));
  }
  // Sampling wrote "no token" to rows with drafts; verification replaces that.
  if (shape.max_verified == 0) return absl::OkStatus();
  return CudaVerify(VerifyInputs(shape), {.candidates = arrays.candidates},
                    scratch_.data(), model_->device(), stream_);
}

absl::Status CudaGraphRunner::EnqueueLogprobs(const CudaStepShape& shape) {
  const CudaStepArrays& arrays = memory_->arrays();
  const CudaStepLogprobs& log_probs = arrays.log_probs;
  RETURN_IF_ERROR(CudaGatherLogprobQueries(
      log_probs, arrays.candidates, vocab_size(), shape.max_groups, stream_));
  RETURN_IF_ERROR(CudaLogprobs(
      {.vocab_size = vocab_size(),
       .max_asked = shape.max_asked,
       .logits = logits_.data(),
       .num_logprob_queries = &log_probs.counts->num_logprob_queries,
       .asked = log_probs.asked},
      log_probs.scores, stream_));
  if (shape.max_best > 0) {
    RETURN_IF_ERROR(CudaSelect(BestInputs(shape),
                               {log_probs.best, log_probs.num_found},
                               scratch_.data(), model_->device(), stream_));
  }
  return CudaReportLogprobs(log_probs, arrays.state.clock, logprob_reports_,
                            stream_);
}

CudaBatch CudaGraphRunner::BatchOf(const CudaStepShape& shape) const {
  const CudaStepArrays& arrays = memory_->arrays();
  const CudaStepLimits& limits = memory_->limits();
  CudaBatch batch = {
      .num_tokens = shape.num_tokens,
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
                    .has_own_tables = shape.has_own_tables,
                    .positions = arrays.state.batch_positions,
                    .tables = arrays.state.tables,
                    .table_stride = limits.row_stride()},
      .num_logits = shape.num_logits_rows,
      .logits_tokens = arrays.state.logits_tokens};
  if (limits.source_stride == 0) return batch;
  const CudaAttentionArrays<DeviceArray>& work = arrays.cross_attention;
  batch.cross_attention = {
      .items = work.items,
      .item_counts = work.item_counts,
      .partial_indptr = work.partial_indptr,
      .max_queries = shape.num_tokens,
      .max_items = limits.max_items,
      .max_partials = shape.has_cross_partials ? limits.max_partials : 0,
      .has_own_tables = false,  // it has no runs
      .positions = arrays.cross_positions,
      .tables = memory_->source_table(0),
      .table_stride = limits.row_stride()};
  return batch;
}

CudaRowHistories CudaGraphRunner::RowHistories(
    const CudaStepShape& shape) const {
  const CudaStepArrays& arrays = memory_->arrays();
  const CudaBeamState& state = arrays.state;
  return {.num_rows = shape.num_logits_rows,
          .vocab_size = vocab_size(),
          .table_stride = state.table_stride,
          .page_size = state.page_size,
          .cum_log_probs = state.batch_cum_log_probs,
          .logits_tokens = state.logits_tokens,
          .positions = state.batch_positions,
          .token_tables = arrays.token_tables,
          .tables = state.tables,
          .page_tokens = state.page_tokens};
}

const uint32_t* CudaGraphRunner::MasksOf(const CudaStepShape& shape) const {
  return shape.has_masks ? memory_->arrays().masks.legal : nullptr;
}

// Without device memory, as `bounds` say.
CudaSelectInputs CudaGraphRunner::InputsWithin(
    const CudaSelectBounds& bounds) const {
  return {.num_rows = bounds.num_rows,
          .vocab_size = bounds.vocab_size,
          .max_groups = bounds.max_groups,
          .max_candidates = bounds.max_candidates,
          .max_total_candidates = static_cast<int>(bounds.max_total_candidates),
          .logits = logits_.data()};
}

CudaSelectInputs CudaGraphRunner::SelectInputs(
    const CudaStepShape& shape) const {
  const CudaStepArrays& arrays = memory_->arrays();
  CudaSelectInputs inputs =
      InputsWithin(SelectBounds(shape, memory_->limits(), vocab_size()));
  inputs.max_group_rows = shape.max_group_rows;
  inputs.num_groups = arrays.state.num_groups;
  inputs.groups = arrays.state.selections;
  inputs.row_groups = arrays.select_row_groups;
  inputs.cum_log_probs = arrays.state.batch_cum_log_probs;
  inputs.row_edits = shape.has_edits ? arrays.row_edits : nullptr;
  inputs.edits = arrays.edits;
  inputs.masks = MasksOf(shape);
  return inputs;
}

CudaSampleInputs CudaGraphRunner::SampleInputs(
    const CudaStepShape& shape) const {
  const CudaStepArrays& arrays = memory_->arrays();
  return {.num_rows = shape.num_logits_rows,
          .vocab_size = vocab_size(),
          .max_draws = shape.max_draws,
          .logits = logits_.data(),
          .num_draws = arrays.draw_count,
          .draws = arrays.state.draws,
          .row_params = arrays.row_params,
          .params = arrays.params,
          .cum_log_probs = arrays.state.batch_cum_log_probs,
          .row_edits = shape.has_edits ? arrays.row_edits : nullptr,
          .edits = arrays.edits,
          .masks = MasksOf(shape)};
}

CudaVerifyInputs CudaGraphRunner::VerifyInputs(
    const CudaStepShape& shape) const {
  const CudaStepArrays& arrays = memory_->arrays();
  return {.num_rows = shape.num_verify_rows,
          .vocab_size = vocab_size(),
          .max_sequences = shape.max_verified,
          .has_filters = shape.verifies_filtered,
          .has_draft_rows = shape.verifies_draft_rows,
          .logits = logits_.data(),
          .row_addresses =
              shape.verifies_draft_rows ? arrays.verify_row_addresses : nullptr,
          .num_sequences = arrays.verify_count,
          .sequences = arrays.verify_sequences,
          .row_sequences = arrays.verify_row_sequences,
          .drafts = arrays.verify_drafts,
          .row_params = arrays.verify_row_params,
          .params = arrays.params,
          .row_edits = shape.has_edits ? arrays.verify_row_edits : nullptr,
          .edits = arrays.edits,
          .masks = MasksOf(shape),
          .counters = arrays.verify_counters};
}

CudaGumbelTopKInputs CudaGraphRunner::GumbelTopKInputs(
    const CudaStepShape& shape) const {
  const CudaStepArrays& arrays = memory_->arrays();
  CudaSelectInputs select =
      InputsWithin(GumbelTopKBounds(shape, memory_->limits(), vocab_size()));
  select.max_group_rows = 1;
  select.num_groups = arrays.state.num_groups;
  select.groups = arrays.gumbel_selections;
  select.row_groups = arrays.state.row_groups;  // CudaSelect's leave these out
  select.cum_log_probs = arrays.state.batch_cum_log_probs;
  select.row_edits = shape.has_edits ? arrays.row_edits : nullptr;
  select.edits = arrays.edits;
  select.masks = MasksOf(shape);
  return {.select = select,
          .rows = arrays.gumbel_rows,
          .row_params = arrays.gumbel_params,
          .params = arrays.params};
}

// Each row of logits is a group here: its best tokens by unprocessed scores.
CudaSelectInputs CudaGraphRunner::BestInputs(const CudaStepShape& shape) const {
  const CudaStepLogprobs& log_probs = memory_->arrays().log_probs;
  CudaSelectInputs inputs =
      InputsWithin(BestBounds(shape, memory_->limits(), vocab_size()));
  inputs.max_group_rows = 1;
  inputs.num_groups = &log_probs.counts->num_best_groups;
  inputs.groups = log_probs.best_groups;
  inputs.row_groups = log_probs.best_row_groups;
  inputs.cum_log_probs = log_probs.zeros;
  return inputs;
}

}  // namespace espalier
