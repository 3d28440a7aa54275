// DraftSampler: samples drafts on the device that computes the draft model's
// logits. One call feeds the sequences, then repeatedly samples a token of each
// and feeds it, until all tokens are sampled. The host takes no part in
// between. On a GPU the call is one run of the device, and neither logits nor
// tokens cross the link before it ends.
//
//   a b  c      fed before: a b; feeds c, draws d, feeds it, draws e
//   a b  c  d
//   p q  r s    the other row of the same call feeds two tokens and draws t
//   p q  r s t
//
// It works on the pages of a Model (model.h), which may run other plans between
// two calls, so it is used by the model's thread alone.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "exec_request/plan_drafts.h"
#include "exec_request/step_plan.h"

namespace espalier {

// Draft of one sequence.
struct SampledDraft {
  // All requested tokens, even after the end of a text. A token that could not
  // be sampled is negative, and later tokens are meaningless.
  std::vector<TokenId> tokens = {};
  // Start() only: the tokens while they are being sampled, in place of
  // `tokens`.
  PendingDraft pending = {};
  // Logits of the tokens if NeedsDraftLogits; empty if there was no memory for
  // them.
  DraftLogits logits = {};
};

class DraftSampler {
 public:
  virtual ~DraftSampler() = default;

  // True if it can draft for the sequence: the sequence's score processors must
  // not depend on the drafted tokens.
  virtual bool CanSample(const DraftSequence& sequence) const = 0;
  // Returns the tokens that a row of Sample() may feed, at least 1.
  virtual int max_row_tokens() const = 0;
  // Returns the largest number of tokens drafted for a sequence.
  virtual int max_draft_tokens() const = 0;

  // Makes plan.page_copies, feeds plan.rows, one for each of `sequences`, and
  // samples sequence.num_tokens tokens of each, as DrawDraft does
  // (kernels/verify/verify.h). The last token of a row has a row of logits.
  // REQUIRES: CanSample; rows and tokens within the limits; a row's pages have
  // room for the tokens of the row and all drafted tokens but the last one.
  // Errors: as Model::Forward.
  virtual absl::StatusOr<std::vector<SampledDraft>> Sample(
      const StepPlan& plan,
      std::span<const DraftSequence* const> sequences) = 0;

  // As Sample(), but may return before the tokens are sampled. Then the model
  // must not be used before Wait(), and the step that verifies them follows on
  // stream(). The rows of logits are complete when the tokens are.
  virtual absl::StatusOr<std::vector<SampledDraft>> Start(
      const StepPlan& plan, std::span<const DraftSequence* const> sequences) {
    return Sample(plan, sequences);
  }
  // True if Start() supports sequences with DraftSequence::verified_before,
  // after all others. Such a sequence's row feeds one token of any value, at
  // the position that assumes no accepted draft token, and has pages for every
  // outcome. The step that verifies the earlier draft is on stream(). If
  // Start() runs synchronously, the draft of such a sequence is empty and
  // nothing is fed for it.
  virtual bool follows_verification() const { return false; }
  // Stream of Start(), a cudaStream_t; null if it runs synchronously.
  virtual void* stream() const { return nullptr; }
  // Waits for the started drafts. Returns the time that they took, or 0 if it
  // was returned before. Errors: as Model::Forward.
  virtual absl::StatusOr<absl::Duration> Wait() { return absl::ZeroDuration(); }
};

}  // namespace espalier
