// CudaGraphRunner: enqueues the work of a step on the device: as a graph if its
// shape allows that, otherwise function by function.
//
//   begin ─> tail copies ─> edits of  ┬─> forward ─┬─> selection ─> advance,
//                           histories │   pass     │   sampling     report
//                                     └─> masks  ──┘   Gumbel top-k
//                                                      log-probabilities
//
// A step contains only the parts that some request needs: a step without
// sampling has no sampling kernel.
// Graphs are cached by rounded-up shape
// (executor/cuda/step/cuda_graph_cache.h). A step without a graph enqueues the
// same kernels one by one.
//
// Thread safety: one thread, one stream.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <tuple>

#include "absl/status/status.h"
#include "base/cuda.h"
#include "base/cuda_pinned_memory.h"
#include "exec_request/cuda_model.h"
#include "executor/cuda/batch/cuda_step_memory.h"
#include "executor/cuda/step/cuda_fork.h"
#include "executor/cuda/step/cuda_graph_cache.h"
#include "executor/cuda/step/cuda_source_reader.h"
#include "executor/cuda/step/cuda_step_builder.h"
#include "executor/cuda/step/cuda_step_shape.h"
#include "executor/cuda/transfer/cuda_upload_ring.h"
#include "kernels/kv_cache/cuda_cache_engine.h"
#include "kernels/verify/cuda_draft_steps.h"
#include "kernels/verify/cuda_verified_drafts.h"

namespace espalier {

class CudaGraphRunner {
 public:
  // `model`, its `cache` and `memory` outlive it. Keeps up to `max_graphs`
  // graphs. `constraints` are in device memory; null: no step has masks.
  // REQUIRES: max_graphs >= 0.
  // Errors: kResourceExhausted; kInvalidArgument if selection cannot take as
  // many rows as the limits allow.
  static absl::StatusOr<std::unique_ptr<CudaGraphRunner>> Create(
      CudaModel* model, const CudaCacheEngine* cache,
      const CudaStepMemory* memory, const CudaReportRing& reports,
      const CudaLogprobRing& logprob_reports, int max_graphs,
      cudaStream_t stream, const CudaConstraint* constraints = nullptr);

  // Allocates the scratch of Gumbel top-k unless it exists. It is larger than
  // all logits, and no other step needs it. Must precede the first step with
  // such rows.
  // Errors: kResourceExhausted, with the sizes; nothing has changed then.
  absl::Status ReserveGumbelTopK();
  bool has_gumbel_top_k() const { return gumbel_scratch_.size() > 0; }

  // Enqueues the step. Captures a graph if its shape has none.
  // Errors: as base/cuda.h. Some of the step may have been enqueued then.
  absl::Status Enqueue(const CudaStep& step);

  // Totals over all steps so far.
  struct Counts {
    int64_t num_graph_launches = 0;
    // Replayable steps without a graph, for lack of memory or by max_graphs.
    int64_t num_without_graph = 0;
    int64_t num_captured = 0;
    int num_graphs = 0;  // in the cache now
  };
  Counts counts() const {
    return {num_graph_launches_, num_without_graph_, graphs_.num_captured(),
            graphs_.size()};
  }

  // Current memory by purpose, and current pinned bytes. Some pinned memory is
  // allocated by the first step that needs it.
  CudaMemoryParts memory() const;
  size_t num_pinned_bytes() const { return uploads_.num_bytes(); }

 private:
  explicit CudaGraphRunner(int max_graphs) : graphs_(max_graphs) {}

  CudaStepShape ShapeOfGraph(const CudaStepShape& step) const;
  absl::Status EnqueueAll(const CudaStepShape& shape,
                          std::span<const CudaSourceRead> sources = {},
                          std::span<const CudaAlignedTokens> aligned = {});
  int vocab_size() const { return model_->description().vocab_size; }
  CudaBatch BatchOf(const CudaStepShape& shape) const;
  CudaRowHistories RowHistories(const CudaStepShape& shape) const;
  absl::Status EnqueueForward(const CudaStepShape& shape,
                              std::span<const CudaSourceRead> sources,
                              std::span<const CudaAlignedTokens> aligned);
  absl::Status EnqueueMasks(const CudaStepShape& shape, cudaStream_t stream);
  const uint32_t* MasksOf(const CudaStepShape& shape) const;
  CudaSelectInputs InputsWithin(const CudaSelectBounds& bounds) const;
  CudaSelectInputs SelectInputs(const CudaStepShape& shape) const;
  CudaSampleInputs SampleInputs(const CudaStepShape& shape) const;
  CudaVerifyInputs VerifyInputs(const CudaStepShape& shape) const;
  CudaGumbelTopKInputs GumbelTopKInputs(const CudaStepShape& shape) const;
  CudaSelectInputs BestInputs(const CudaStepShape& shape) const;
  template <typename T>
  T* OfStep(PinnedBuffer<T>* all) const;
  CudaPlacedBatch PlacedBatch() const;
  absl::Status BeginRows(const CudaStep& step);
  absl::Status PlaceDrafts(const CudaStep& step);
  // Enqueues, after the step, the report of its verified drafts for drafts and
  // rows that begin after these.
  absl::Status ReportVerified(const CudaStep& step);
  absl::Status EnqueueStep(const CudaStep& step);
  absl::Status SendDraftLogits(const CudaStep& step);
  absl::Status EnqueueChoice(const CudaStepShape& shape);
  absl::Status EnqueueLogprobs(const CudaStepShape& shape);

  // Constant after construction.
  CudaModel* model_ = nullptr;
  const CudaCacheEngine* cache_ = nullptr;
  const CudaStepMemory* memory_ = nullptr;
  CudaReportRing reports_;
  CudaLogprobRing logprob_reports_;
  cudaStream_t stream_ = nullptr;
  const CudaConstraint* constraints_ = nullptr;
  DeviceBuffer<float> logits_;  // [max_rows, vocab_size]

  DeviceBuffer<std::byte> scratch_;         // used by one kernel at a time
  DeviceBuffer<std::byte> gumbel_scratch_;  // empty until ReserveGumbelTopK()

  CudaFork mask_fork_;                               // if steps may have masks
  std::unique_ptr<CudaSourceReader> source_reader_;  // null: no encoder

  CudaGraphCache<CudaStepShape, CudaGraph> graphs_;
  int64_t num_graph_launches_ = 0;
  int64_t num_without_graph_ = 0;

  // Uploads of draft logits that are in host memory.
  CudaUploadRing uploads_;
  // [reports, max_rows], read by the device in place.
  PinnedBuffer<CudaPlacedDraft> placed_drafts_;
  // [reports, max_rows], read by the device in place.
  PinnedBuffer<CudaUnreadRow> unread_rows_;
  int64_t num_enqueued_ = 0;
};

}  // namespace espalier
