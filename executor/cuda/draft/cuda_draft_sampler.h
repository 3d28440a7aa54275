// CudaDraftSampler: samples drafts on a GPU (exec_request/draft_sampler.h): the
// host sends what some sequences feed and how they draw; then the steps of the
// draft model, each with its draws and the inputs of the step after it, are
// replays of graphs, and the host gets the tokens of all steps in pinned
// memory.
//
//   delta ─> tail copies ─> first step ─> next step ─> ... ─> tokens
//                           [ forward pass, draw and keep logits, advance ]
//
// CudaDraftRunner runs the steps. Rows of logits that rejection will ask for
// stay in device memory (cuda_draft_logits.h), where verification reads them.
//
// Start returns before the device has drawn anything (a pending run).
// Everything of the sampler is on its one stream, and a run is
//
//   copies of tails, delta, started (event), steps, ended (event)
//
// What orders it against others:
//
// - What a run was sent: Send writes a pinned buffer that the device reads.
//   RunAfterWait writes it again only after Wait(), which waits for `ended` of
//   the last run on the host.
// - The model's activations and scratch: nobody else runs the model until
//   Wait() (DraftSampler::Start).
// - Tokens of a run: the executor's stream waits for `ended`
//   (exec_request/pending_draft.h). They are in the run's own part of drafted_,
//   and UnusedRun gives a run out again only when no PendingDraft holds it.
// - What a draft begins after, where the host does not know that yet: the
//   sampler's stream waits for the step that verifies the draft before
//   (exec_request/draft_verification.h), and one launch writes it into what was
//   sent. It is read in the memory of that draft's run, which the new draft's
//   plan holds.
// - Kept rows of logits: the same event. The executor's step reads them after
//   that wait, and holds the rows until it has ended.
//
// Thread safety: one thread, that of the model's other calls.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/cuda_resources.h"
#include "exec_request/cuda_model.h"
#include "exec_request/draft_sampler.h"
#include "executor/cuda/draft/cuda_draft_batch.h"
#include "executor/cuda/draft/cuda_draft_logits.h"
#include "executor/cuda/draft/cuda_draft_memory.h"
#include "executor/cuda/draft/cuda_draft_runner.h"
#include "executor/cuda/transfer/cuda_delta.h"
#include "executor/cuda/transfer/cuda_delta_buffer.h"
#include "kernels/verify/cuda_verified_drafts.h"
#include "kernels/verify/verified_draft.h"

namespace espalier {

struct CudaDraftSamplerOptions {
  // Graphs of steps to keep; 0: none.
  int max_graphs = 128;
  // For rows of logits that wait for verification, at most.
  int64_t kept_logits_bytes = int64_t{256} << 20;
};

class CudaDraftSampler : public DraftSampler {
 public:
  // `model` runs nothing while Sample does.
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
  // Does not wait where the sequences fit one run, and there is a place for
  // what they draw: of kMaxPending runs whose tokens somebody still holds.
  absl::StatusOr<std::vector<SampledDraft>> Start(
      const StepPlan& plan,
      std::span<const DraftSequence* const> sequences) override;
  absl::StatusOr<absl::Duration> Wait() override;
  bool follows_verification() const override { return max_row_tokens() == 2; }

  struct Counts {
    int64_t num_runs = 0;
    int64_t num_pending_runs = 0;  // of these, that were started
    // Of these, that began after a verification that no answer had told of.
    int64_t num_unread_runs = 0;
    int64_t num_graph_launches = 0;
    int num_graphs = 0;
  };
  Counts counts() const {
    return {num_runs_, num_pending_runs_, num_unread_runs_,
            runner_->num_graph_launches(), runner_->num_graphs()};
  }
  // Of the rows of logits that can be kept.
  int num_free_rows() const { return kept_->num_free(); }

 private:
  static constexpr int kMaxDraftTokens = 64;
  // Of the step that runs, of the one after it, and of the next.
  static constexpr int kMaxPending = 4;

  // What the device has of a step's work list.
  struct SentWork {
    CudaAttentionArrays<SentArray> arrays;
    std::vector<CudaAttentionRow> planned;
    int num_queries = -1;
    bool has_partials = false;
  };

  // A run that nobody waits for, and its part of drafted_. Each PendingDraft of
  // it shares it.
  struct PendingRun {
    std::shared_ptr<PinnedBuffer<TokenId>> drafted;
    int first_drafted = 0;
    CudaEvent started;
    CudaEvent ended;
    PinnedBuffer<VerifiedDraft> verified;  // [max_rows]  its drafts
    DraftVerification verification;        // of these
    PinnedBuffer<CudaUnreadDraft> unread;  // [max_rows]  what it begins after
  };

  explicit CudaDraftSampler(std::shared_ptr<CudaModel> model)
      : model_(std::move(model)) {}
  absl::Status Init(const CudaDraftSamplerOptions& options);
  // Runs `body` once what was started has ended, which the host waits for.
  // After an error it waits for the stream, and what the device has is not
  // known.
  template <typename Body>
  absl::Status RunAfterWait(const Body& body);
  // One whose tokens nobody will read any more; null if there is none.
  std::shared_ptr<PendingRun> UnusedRun() const;

  // Rows [first, first + sequences) of the plan.
  absl::Status SampleRows(const StepPlan& plan, size_t first,
                          std::span<const DraftSequence* const> sequences,
                          std::vector<SampledDraft>* drafts);
  CudaDraftBatch LayOut(const StepPlan& plan, size_t first,
                        std::span<const DraftSequence* const> sequences,
                        int first_drafted, std::span<SampledDraft> drafts);
  absl::Status Send(const StepPlan& plan, size_t first,
                    const CudaDraftBatch& batch);
  void SendTokens(const CudaDraftTokens& tokens, const CudaDraftInputs& inputs,
                  SentWork* sent);
  // Has those of them that begin after a verification begin there.
  absl::Status BeginDrafts(std::span<const DraftSequence* const> sequences,
                           PendingRun* run);
  absl::Status CopyTails(std::span<const PageCopy> copies);
  absl::Status RunSteps(const CudaDraftBatch& batch);
  // What the device has is not known.
  void Forget();

  const CudaDraftLimits& limits() const { return memory_->limits(); }
  int vocab_size() const { return model_->description().vocab_size; }

  const std::shared_ptr<CudaModel> model_;
  CudaStream stream_;
  std::optional<CudaDraftMemory> memory_;
  std::optional<CudaDraftLogitsPool> kept_;
  CudaDeltaBuffer delta_buffer_;
  // [1 + kMaxPending, kMaxDraftTokens, max_rows]: of the run that is waited
  // for, and of pending ones.
  std::shared_ptr<PinnedBuffer<TokenId>> drafted_;
  std::vector<std::shared_ptr<PendingRun>> runs_;  // [kMaxPending]
  std::shared_ptr<PendingRun> last_;               // until it was waited for
  std::unique_ptr<CudaDraftRunner> runner_;
  std::optional<CudaDelta> delta_;
  std::vector<ShadowedArray<int>> sent_tables_;  // by row
  ShadowedArray<TokenEdit> sent_edits_;
  SentWork sent_first_;
  SentWork sent_next_;
  int64_t num_runs_ = 0;
  int64_t num_pending_runs_ = 0;
  int64_t num_unread_runs_ = 0;
};

}  // namespace espalier
