// CudaDraftRunner: enqueues the steps of a draft model on a GPU. Their inputs
// are in device memory (cuda_draft_memory.h). Each step is a forward pass, a
// draw for every row, and the update of the next step's inputs.
//
//   first step ─> next step ─> ... ─> tokens, in pinned memory
//   [ forward pass, draw and keep logits, advance ]
//
// Steps are replayed from graphs of 1, 2, 4 or 8 steps: four steps take one
// launch, seven take three, and few graphs serve all numbers of steps. Graphs
// are cached by Shape.
//
// Thread safety: one thread, one stream. The destructor requires that the
// device is current and the stream is idle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/cuda_resources.h"
#include "exec_request/cuda_model.h"
#include "executor/cuda/draft/cuda_draft_logits.h"
#include "executor/cuda/draft/cuda_draft_memory.h"
#include "executor/cuda/step/cuda_graph_cache.h"
#include "kernels/sample/cuda_sample.h"

namespace espalier {

class CudaDraftRunner {
 public:
  // Memory that steps read and write. It outlives the runner, as does the
  // stream.
  struct Memory {
    CudaModel* model = nullptr;
    const CudaDraftMemory* inputs = nullptr;
    const CudaDraftLogitsPool* kept = nullptr;
    TokenId* drafted = nullptr;  // [runs, tokens, max_rows]  pinned host memory
  };
  // Keeps up to `max_graphs` graphs.
  // Errors: kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<CudaDraftRunner>> Create(
      const Memory& memory, int max_graphs, cudaStream_t stream);

  // Host values that determine the launches of a run, or of one of its graphs.
  struct Shape {
    int num_rows = 1;  // padded
    int num_steps = 1;
    bool feeds_two = false;  // the first step feeds two tokens per row
    bool has_edits = false;
    bool keeps_logits = false;
    bool first_has_partials = false;  // attention of a step that feeds two
    bool has_partials = false;
    friend auto operator<=>(const Shape&, const Shape&) = default;
  };
  // Enqueues the run's steps; captures missing graphs.
  // Errors: as base/cuda.h. Some steps may have been enqueued then.
  absl::Status Enqueue(const Shape& run);

  int64_t num_graph_launches() const { return num_graph_launches_; }
  int num_graphs() const { return graphs_.size(); }

 private:
  static constexpr int kMaxGraphSteps = 8;

  CudaDraftRunner(const Memory& memory, int max_graphs, cudaStream_t stream)
      : memory_(memory), stream_(stream), graphs_(max_graphs) {}

  // Launches the graph of `shape`, or EnqueueEach() if no graph is available.
  absl::Status Replay(const Shape& shape);
  absl::Status EnqueueEach(const Shape& shape);
  absl::Status EnqueueStep(const Shape& shape, bool feeds_two);
  CudaBatch BatchOf(const Shape& shape, bool feeds_two) const;
  CudaSampleInputs SampleInputs(const Shape& shape) const;

  const CudaDraftLimits& limits() const { return memory_.inputs->limits(); }
  int vocab_size() const { return memory_.model->description().vocab_size; }

  const Memory memory_;
  cudaStream_t const stream_;
  DeviceBuffer<float> logits_;  // [max_rows, vocab_size]
  DeviceBuffer<std::byte> scratch_;
  CudaGraphCache<Shape, CudaGraph> graphs_;
  int64_t num_graph_launches_ = 0;
};

}  // namespace espalier
