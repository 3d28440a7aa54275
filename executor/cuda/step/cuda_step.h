// CudaStep: a step that was built (cuda_step_builder.h): what is enqueued for
// it, and where its answers will be.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "exec_request/step_plan.h"
#include "executor/cuda/batch/cuda_batch_logprobs.h"
#include "executor/cuda/batch/cuda_groups.h"
#include "executor/cuda/batch/cuda_input_batch.h"
#include "executor/cuda/step/cuda_source_reader.h"
#include "executor/cuda/step/cuda_step_shape.h"
#include "executor/selection_rows.h"

namespace espalier {

// The shape of a step, and who asked for what.
struct CudaStep {
  CudaStepShape shape;
  // Whether it is padded, so that a graph of its shape can run it.
  bool is_replayable = false;

  std::vector<CudaGroupMove> moves;  // before the delta

  // What a draft was drawn from, held until the step has ended: rows to verify
  // from `first_row` on. Verification reads it where it is, on the executor's
  // device; from elsewhere it goes to these rows of logits before the step.
  struct DraftRows {
    DraftLogits logits = {};
    int first_row = 0;
  };
  std::vector<DraftRows> draft_rows;

  // A draft that is drawn meanwhile: its tokens take their places in the batch
  // before the step, which waits for them on the device.
  struct PlacedDraft {
    PendingDraft draft = {};
    int first_token = 0;   // of the batch
    int first_draft = -1;  // of verify_drafts; -1: it has no place there
    // What says what became of it: from this candidate of the step on, of as
    // many tokens as have rows of logits after them.
    int first_candidate = 0;
    int num_verified = 0;
  };
  std::vector<PlacedDraft> placed_drafts;

  // A row that begins where verification of the draft before ends, which the
  // device finds out before the step.
  struct UnreadRow {
    PendingDraft before = {};
    int first_token = 0;  // of the batch
    int num_tokens = 0;
    int first_draw = 0;
    int num_draws = 0;
    int verify_sequence = -1;  // -1: it has no place there
  };
  std::vector<UnreadRow> unread_rows;

  // What the encoder reads before the decoder's tokens are fed.
  std::vector<CudaSourceRead> sources;

  // One for every selection and continuation of the plan, in its order.
  struct Answer {
    RequestId request = {};
    // Whether there are log-probabilities of candidates.
    bool has_log_probs = false;
    // Of kRows, by which rows are ranked; of the plan, which lives as long.
    const PlanSelection* rows = nullptr;
    // Of draws whose rows of logits differ: these, and the selection, of the
    // plan.
    const PlanSelection* runs = nullptr;
    std::vector<SelectionRow> logits_rows = {};
    // Of beams that feed paths, whose steps are replayed: the selection, of the
    // plan.
    const PlanSelection* paths = nullptr;
    // Of beams whose paths the step has no room to verify.
    bool has_unverified_drafts = false;
    std::vector<CudaAnswerPart> parts = {};  // none: was not fed
    absl::Status error = absl::OkStatus();
  };
  std::vector<Answer> answers;

  // One for every scoring of the plan, in its order.
  struct Scored {
    RequestId request = {};
    std::vector<TokenId> tokens = {};
    CudaLogprobPlace place = {};
  };
  std::vector<Scored> scorings;
};

}  // namespace espalier
