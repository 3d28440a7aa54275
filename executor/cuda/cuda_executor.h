// CudaExecutor: runs step plans on a GPU. While requests decode, a step is one
// replay of a CUDA graph: moves and tail copies, the forward pass, selection,
// and the bookkeeping of beams (kernels/resident/cuda_resident.h). The next
// step is launched before this step's result is read, so the device does not
// wait for the host.
//
//   plan ──> [ delta, if anything changed ] graph ──> report, event ──> done
//   thread   one kernel, from pinned memory  replay    pinned ring      thread
//
// The executor has one thread, which launches steps and polls for their ends;
// it does not sleep while steps run. The state of a step stays on the device
// between steps. The host sends only changes: requests that join or leave, new
// tail pages, attention work lists whose bounds are exceeded, score edits.
// Graphs are cached by batch shape (rows and candidates, rounded up), never by
// request, and captured on first use, up to a limit. A step without a graph,
// and every step that feeds prompts, enqueues the same functions one by one.
// Tokens of drafts to verify are padded like rows, and are part of the shape.
//
// With a draft model, drafts are part of a step: the same thread enqueues the
// draft model's steps and the step that verifies them on one stream
// (executor/drafts/step_drafter.h).
//
// With an encoder (docs/step.md, "Sources"), steps that feed sources first run
// the encoder in separate calls (executor/cuda/step/cuda_source_reader.h). The
// group then decodes like any other, and the work list of cross-attention
// changes only when groups join or leave.
//
// Thread safety: as StepExecutor. Execute() queues the plan and returns; it
// never waits for the device. Executors of one process, on one device or on
// several, are independent and do not change the current device of a caller's
// thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/cuda_memory.h"
#include "base/cuda_resources.h"
#include "exec_request/cuda_model.h"
#include "exec_request/step_executor.h"
#include "executor/drafts/draft_model.h"

namespace espalier {

struct CudaExecutorOptions {
  // Maximum number of cached graphs, evicted by least recent use; 0: none. A
  // step without a graph pays for launching its kernels one by one.
  int max_graphs = 128;
  // Pinned host memory for pages of preempted groups
  // (ModelDescription::num_host_slots), taken at creation; 0: none.
  int64_t host_cache_bytes = 0;
  // Creation fails if this memory cannot be allocated or holds no page. If
  // false, the size is halved until the allocation succeeds, possibly to none.
  bool requires_host_cache = true;
  // Drafts tokens for requests with this option, before the step of their plan,
  // which verifies drafts of samples. If it fails, the requests have no drafts.
  // Must have the model's vocabulary, and be on its device if it samples there
  // (CudaDraftSampler). Null: no draft model.
  std::unique_ptr<DraftModel> draft_model = nullptr;
};

// Counters of a CudaExecutor since its construction.
struct CudaExecutorFigures {
  int64_t num_steps = 0;
  int64_t num_graph_launches = 0;  // steps replayed from a graph
  int64_t num_without_graph = 0;   // replayable steps that had no graph
  int64_t num_captures = 0;        // captured graphs
  int num_graphs = 0;              // in the cache now
  int64_t num_deltas = 0;          // steps with a non-empty delta
  // Device time from the first kernel of a step to its last.
  absl::Duration busy;
  // Gaps between the end of a step and the start of the next one, counted only
  // if that was launched before the first ended: overhead of the device, and
  // the steps of a draft model.
  int64_t num_gaps = 0;
  absl::Duration idle;
  absl::Duration median_gap;  // over the last few thousand gaps
  // Memory of the executor and its model, by purpose. It is allocated at
  // creation, except scratch for Gumbel top-k (at first use). Graph memory is
  // not counted.
  CudaMemoryParts memory;
};

class CudaExecutor : public StepExecutor {
 public:
  // Runs steps on the model's device, within the model's bounds of a call: a
  // step has at most max_tokens tokens and max_logits rows of logits.
  // REQUIRES: `model` runs nothing else in the lifetime of the executor.
  // Errors: kInvalidArgument if max_graphs or host_cache_bytes is negative, if
  // the draft model has another vocabulary, if host_cache_bytes holds no page,
  // if the model's attention bounds are below the needs of such a step, or if
  // selection does not support as many rows; kResourceExhausted if memory runs
  // out, else as base/cuda.h.
  static absl::StatusOr<std::unique_ptr<CudaExecutor>> Create(
      std::shared_ptr<CudaModel> model, CudaExecutorOptions options = {});
  // Finishes all queued plans and calls their `done`s.
  ~CudaExecutor() override;

  // Returns the model's description, with limits for requests. A scheduler that
  // keeps these limits never plans a step that is too large.
  const ModelDescription& description() const override;

  // One plan runs, one is queued on the device.
  int max_plans_in_flight() const override { return 2; }

  // A result's forward_time is the device time of the whole step.
  // Errors, as results: kResourceExhausted, with the numbers, if a plan exceeds
  // its limits; kInvalidArgument if a request selects from a row of logits that
  // is not its row's last, a per-row top-k group (kRows) is continued, or a
  // host slot does not exist; the model's; as base/cuda.h. After a plan that
  // could not be launched no group is resident: continuations have no
  // candidates until rows set their groups again. An error that leaves the
  // device unusable is the result of every later plan.
  void Execute(StepPlan plan, Done done) override;

  // May be called at any time, from any thread.
  CudaExecutorFigures figures() const;

 private:
  class Impl;
  explicit CudaExecutor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier
