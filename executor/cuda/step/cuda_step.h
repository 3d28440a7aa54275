// CudaStep: a step that CudaStepBuilder has built: the work to enqueue, and the
// locations of its results.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "exec_request/cuda_model.h"
#include "exec_request/step_plan.h"
#include "executor/cuda/batch/cuda_batch_logprobs.h"
#include "executor/cuda/batch/cuda_groups.h"
#include "executor/cuda/batch/cuda_input_batch.h"
#include "executor/cuda/step/cuda_source_reader.h"
#include "executor/cuda/step/cuda_step_shape.h"
#include "executor/selection_rows.h"

namespace espalier {

struct CudaStep {
  CudaStepShape shape;
  // The batch is padded, so that a graph of its shape can run the step.
  bool is_replayable = false;

  std::vector<CudaGroupMove> moves;  // applied before the delta

  // Logits that a draft was sampled from, held until the step has ended: the
  // rows to verify from `first_row` on. Verification reads logits on the
  // executor's device in place; others are copied to these rows before the
  // step.
  struct DraftRows {
    DraftLogits logits = {};
    int first_row = 0;
  };
  std::vector<DraftRows> draft_rows;

  // A draft that is still being sampled. The step waits for it on the device
  // and copies its tokens into the batch first.
  struct PlacedDraft {
    PendingDraft draft = {};
    int first_token = 0;   // index in the batch
    int first_draft = -1;  // index in verify_drafts; -1: not in there
    // The outcome of verification is read from the step's candidates from
    // first_candidate on, for the draft's first num_verified tokens.
    int first_candidate = 0;
    int num_verified = 0;
  };
  std::vector<PlacedDraft> placed_drafts;

  // A row that starts after the accepted tokens of an earlier draft. The device
  // sets its start before the step; the host has not read that verification.
  struct UnreadRow {
    PendingDraft before = {};
    int first_token = 0;  // index in the batch
    int num_tokens = 0;
    int first_draw = 0;
    int num_draws = 0;
    int verify_sequence = -1;  // index in verify_sequences; -1: not in there
  };
  std::vector<UnreadRow> unread_rows;

  // Encoder reads before the decoder's tokens are fed.
  std::vector<CudaSourceRead> sources;

  // One result for every selection and continuation of the plan, in its order.
  // Pointers are into the plan, which outlives this.
  struct Answer {
    RequestId request = {};
    // Log-probabilities of candidates are reported.
    bool has_log_probs = false;
    // kRows: the selection, which has the rows' ranking.
    const PlanSelection* rows = nullptr;
    // kDraws with rows of logits that differ: the selection and these rows.
    const PlanSelection* runs = nullptr;
    std::vector<SelectionRow> logits_rows = {};
    // Beams with draft paths, whose steps the host replays: the selection.
    const PlanSelection* paths = nullptr;
    // The step has no capacity to verify the draft paths.
    bool has_unverified_drafts = false;
    std::vector<CudaAnswerPart> parts = {};  // empty: the group was not fed
    absl::Status error = absl::OkStatus();
  };
  std::vector<Answer> answers;

  // One result for every entry of StepPlan::scorings, in its order.
  struct Scored {
    RequestId request = {};
    std::vector<TokenId> tokens = {};
    CudaLogprobPlace place = {};
    // Its scores of attention, in memory of the step.
    int64_t first_score = 0;
    int64_t num_scores = 0;
  };
  std::vector<Scored> scorings;
  // The tokens of those `scorings` that have scores, in their order, and the
  // number of all scores. The executor sets where they are written.
  std::vector<CudaAlignedTokens> aligned;
  int64_t num_scores = 0;
};

}  // namespace espalier
