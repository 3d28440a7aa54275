// CudaExecutor: runs step plans on a GPU. While requests decode, a step is one
// replay of a CUDA graph: moves and tail copies, the forward pass, selection,
// and the bookkeeping of beams (kernels/resident/cuda_resident.h); and the next
// step is launched before this one's answer is read, so the device does not
// wait for the host.
//
//   plan ──> [ delta, if anything changed ] graph ──> report, event ──> done
//   thread   one kernel, from pinned memory  replay    pinned ring      thread
//
// One thread of the executor's own launches steps and watches for their ends;
// while steps run it does not sleep. What a step needs to know lives on the
// device between steps. The host sends what changed since the last one:
// requests that join or leave, the tail pages of a page that begins, work lists
// of attention whose bounds are passed, edits of scores. Graphs are kept by the
// shape of a batch (rows and candidates, rounded up), never by request, and
// captured on first use, up to a bound; where there is none for a step, and
// where it feeds prompts, the same functions run one by one. Tokens of drafts
// to verify are padded as rows are, and part of a shape.
//
// With an encoder (docs/step.md, "Sources") steps that feed sources have it
// read these first, in calls of their own
// (executor/cuda/step/cuda_source_reader.h); from then on a group decodes as
// others do, and cross-attention has a work list that changes only as groups
// come and go.
//
// Thread safety: as StepExecutor. The caller's thread hands plans over and
// returns; it never waits for the device. Executors of one process, on one
// device or on several, do not touch each other, nor the current device of a
// caller's thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/cuda_memory.h"
#include "base/cuda_resources.h"
#include "exec_request/cuda_model.h"
#include "exec_request/step_executor.h"

namespace espalier {

struct CudaExecutorOptions {
  // Graphs of steps to keep, of the shapes used last; 0: none. A step whose
  // graph is not there, or has no memory, runs without: slower by what
  // launching its kernels one by one takes.
  int max_graphs = 128;
  // Pinned host memory for pages of preempted groups
  // (ModelDescription::num_host_slots), taken at creation; 0: none.
  int64_t host_cache_bytes = 0;
  // Whether it is an error if there is not so much, or it holds no page. If
  // not, there are as many slots as there is memory for, halved until there is,
  // or none.
  bool requires_host_cache = true;
};

// What a CudaExecutor has done since its construction.
struct CudaExecutorFigures {
  int64_t num_steps = 0;
  int64_t num_graph_launches = 0;  // of these steps
  int64_t num_without_graph = 0;   // of these, for want of memory or by bound
  int64_t num_captures = 0;        // of graphs
  int num_graphs = 0;              // kept
  int64_t num_deltas = 0;          // steps before which something changed
  // On the device's clock, from the first kernel of a step to its last.
  absl::Duration busy;
  // Between the end of a step and the start of the next, where that one had
  // been launched before the first ended: the device's own time for it.
  int64_t num_gaps = 0;
  absl::Duration idle;
  absl::Duration median_gap;  // of the last few thousand
  // What it and its model hold, and for what. Allocated at creation, except
  // scratch of drawn beams (at first use). Graph memory is not counted.
  CudaMemoryParts memory;
};

class CudaExecutor : public StepExecutor {
 public:
  // Runs steps on the model's device, within its bounds of a call: a step has
  // at most max_tokens tokens, and max_logits rows that select. `model` runs
  // nothing else as long as the executor lives.
  // Errors: kInvalidArgument if max_graphs or host_cache_bytes is negative, or
  // that holds no page, if the model bounds the work of attention below what
  // such a step can have, or selection cannot take as many rows;
  // kResourceExhausted if memory runs out, else as base/cuda.h.
  static absl::StatusOr<std::unique_ptr<CudaExecutor>> Create(
      std::shared_ptr<CudaModel> model,
      const CudaExecutorOptions& options = {});
  // Finishes the plans that were started; their `done`s are called.
  ~CudaExecutor() override;

  // The model's, with limits by which requests are refused, or wait, before a
  // plan can be too large: no scheduler that keeps them plans such a step.
  const ModelDescription& description() const override;

  // One runs, one waits on the device.
  int max_plans_in_flight() const override { return 2; }

  // A result's forward_time is that of the whole step on the device.
  // Errors, as results: kResourceExhausted, with the figures, if a plan is
  // larger than its limits; kInvalidArgument if a request selects from a row of
  // logits that is not its row's last, rows that choose by themselves are to be
  // continued, or there is no such host slot; what the model returns; as
  // base/cuda.h. After a plan that could not be launched no group is resident:
  // continuations are answered without candidates until rows set them again. An
  // error that leaves the device unusable is that of every later plan.
  void Execute(StepPlan plan, Done done) override;

  // At any time, from any thread.
  CudaExecutorFigures figures() const;

 private:
  class Impl;
  explicit CudaExecutor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier
