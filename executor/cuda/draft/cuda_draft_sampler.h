// CudaDraftSampler: samples drafts on a GPU (executor/drafts/draft_sampler.h).
// The host sends the first tokens and sampling parameters of some sequences.
// The steps of the draft model, with their draws and the inputs of the next
// step, are replayed from graphs. The device writes the tokens of all steps to
// pinned memory.
//
//   delta ─> tail copies ─> first step ─> next step ─> ... ─> tokens
//                           [ forward pass, draw and keep logits, advance ]
//
// CudaDraftRunner runs the steps. Rows of logits that verification by rejection
// needs stay in device memory (cuda_draft_logits.h) and are read there.
//
// Start() returns before the device has sampled anything (a pending run). The
// executor runs its steps on the sampler's stream, too, which orders all that
// the device does:
//
//   copies of tails, delta, steps of the draft model ─> step that verifies ─>
//   next run, whose first launch reads the verification into its inputs
//
// The host's memory is ordered like this:
//
// - Inputs of a run: Send() writes a pinned buffer that the device reads.
//   RunAfterWait() writes it again only after Wait(), which waits on the host
//   for `ended` (an event) of the last run.
// - The model's activations and scratch: the model runs nothing else until
//   Wait() (DraftSampler::Start).
// - Tokens of a run: each run has its own part of drafted_, and UnusedRun()
//   returns a run again only when no PendingDraft holds it.
// - A draft that follows an unread verification reads the memory of the earlier
//   draft's run, which the new draft's plan holds.
// - Kept rows of logits: the executor's step holds them until it has ended.
//
// Thread safety: one thread, that of the model's other calls.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/cuda_pinned_memory.h"
#include "base/cuda_resources.h"
#include "exec_request/cuda_model.h"
#include "executor/cuda/batch/cuda_batch_uploader.h"
#include "executor/cuda/draft/cuda_draft_batch.h"
#include "executor/cuda/draft/cuda_draft_logits.h"
#include "executor/cuda/draft/cuda_draft_memory.h"
#include "executor/cuda/draft/cuda_draft_runner.h"
#include "executor/cuda/transfer/cuda_delta.h"
#include "executor/cuda/transfer/cuda_delta_buffer.h"
#include "executor/drafts/draft_sampler.h"
#include "kernels/kv_cache/cuda_cache_engine.h"
#include "kernels/verify/cuda_verified_drafts.h"
#include "kernels/verify/verified_draft.h"

namespace espalier {

struct CudaDraftSamplerOptions {
  // Graphs of steps to keep; 0: none.
  int max_graphs = 128;
  // Maximum memory for rows of logits that wait for verification.
  int64_t kept_logits_bytes = int64_t{256} << 20;
};

class CudaDraftSampler : public DraftSampler {
 public:
  // REQUIRES: `model` runs nothing else during Sample().
  // Errors: kResourceExhausted if memory runs out, else as base/cuda.h.
  static absl::StatusOr<std::unique_ptr<CudaDraftSampler>> Create(
      std::shared_ptr<CudaModel> model,
      const CudaDraftSamplerOptions& options = {});
  ~CudaDraftSampler() override;

  bool CanSample(const DraftSequence& sequence) const override;
  int max_row_tokens() const override;
  int max_draft_tokens() const override { return kMaxDraftTokens; }
  absl::StatusOr<std::vector<SampledDraft>> Sample(
      const StepPlan& plan,
      std::span<const DraftSequence* const> sequences) override;
  // Does not wait if the sequences fit one run and one of the kMaxPending runs
  // is free, which is one whose tokens no PendingDraft holds.
  absl::StatusOr<std::vector<SampledDraft>> Start(
      const StepPlan& plan,
      std::span<const DraftSequence* const> sequences) override;
  absl::StatusOr<absl::Duration> Wait() override;
  bool follows_verification() const override { return max_row_tokens() == 2; }
  void* stream() const override { return stream_.get(); }

  struct Counts {
    int64_t num_runs = 0;
    int64_t num_pending_runs = 0;  // the runs that Start() began
    // The pending runs that began after an unread verification.
    int64_t num_unread_runs = 0;
    int64_t num_graph_launches = 0;
    int num_graphs = 0;
  };
  Counts counts() const {
    return {num_runs_, num_pending_runs_, num_unread_runs_,
            runner_->num_graph_launches(), runner_->num_graphs()};
  }
  // Free rows of the pool for kept logits.
  int num_free_rows() const { return kept_->num_free(); }

 private:
  static constexpr int kMaxDraftTokens = 64;
  // Enough for the running step, the next one and the one after that.
  static constexpr int kMaxPending = 4;

  // A run, and its part of drafted_. All its PendingDrafts share it.
  struct Run {
    std::shared_ptr<PinnedBuffer<TokenId>> drafted;
    int first_drafted = 0;
    CudaEvent started;
    CudaEvent ended;
    PinnedBuffer<VerifiedDraft> verified;  // [max_rows]  outcome of its drafts
    PinnedBuffer<CudaUnreadDraft> unread;  // [max_rows]  its starts
  };

  explicit CudaDraftSampler(std::shared_ptr<CudaModel> model)
      : model_(std::move(model)) {}
  absl::Status Init(const CudaDraftSamplerOptions& options);
  absl::StatusOr<std::shared_ptr<Run>> MakeRun(int first_drafted) const;
  // Waits on the host for the last run, then runs `body`. After an error it
  // waits for the stream and invalidates the shadow copies.
  template <typename Body>
  absl::Status RunAfterWait(const Body& body);
  // Returns a run of runs_ that no PendingDraft holds; null if all are held.
  std::shared_ptr<Run> UnusedRun() const;

  // Enqueues the run for rows [first, first + sequences.size()) of the plan.
  // Sets the logits of `drafts`, [sequences.size()].
  absl::Status Enqueue(const StepPlan& plan, size_t first,
                       std::span<const DraftSequence* const> sequences,
                       Run* run, std::span<SampledDraft> drafts);
  // Returns the draft of the run's row.
  PendingDraft DraftOf(const std::shared_ptr<Run>& run,
                       const DraftSequence& sequence, size_t row) const;
  CudaDraftBatch LayOut(const StepPlan& plan, size_t first,
                        std::span<const DraftSequence* const> sequences,
                        int first_drafted, std::span<SampledDraft> drafts);
  absl::Status Send(const StepPlan& plan, size_t first,
                    const CudaDraftBatch& batch);
  void SendTokens(const CudaDraftTokens& tokens, const CudaDraftInputs& inputs,
                  CudaAttentionUploader* attention);
  // Enqueues the update of the starts that depend on an unread verification.
  absl::Status BeginDrafts(std::span<const DraftSequence* const> sequences,
                           Run* run);
  absl::Status RunSteps(const CudaDraftBatch& batch);
  // Invalidates the shadow copies.
  void Forget();

  const CudaDraftLimits& limits() const { return memory_->limits(); }
  int vocab_size() const { return model_->description().vocab_size; }

  const std::shared_ptr<CudaModel> model_;
  CudaStream stream_;
  std::optional<CudaCacheEngine> cache_;
  std::optional<CudaDraftMemory> memory_;
  std::optional<CudaDraftLogitsPool> kept_;
  CudaDeltaBuffer delta_buffer_;
  // [1 + kMaxPending, kMaxDraftTokens, max_rows]: tokens of the synchronous
  // run, then of pending runs.
  std::shared_ptr<PinnedBuffer<TokenId>> drafted_;
  std::shared_ptr<Run> waited_;             // that of Sample()
  std::vector<std::shared_ptr<Run>> runs_;  // [kMaxPending]  those of Start()
  std::shared_ptr<Run> last_;               // null after Wait()
  std::unique_ptr<CudaDraftRunner> runner_;
  std::optional<CudaDelta> delta_;
  std::vector<ShadowedArray<int>> sent_tables_;  // by row
  ShadowedArray<TokenEdit> sent_edits_;
  std::optional<CudaAttentionUploader> first_attention_;
  std::optional<CudaAttentionUploader> next_attention_;
  int64_t num_runs_ = 0;
  int64_t num_pending_runs_ = 0;
  int64_t num_unread_runs_ = 0;
};

}  // namespace espalier
