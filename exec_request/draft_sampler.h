// DraftSampler: samples drafts on the device on which a draft model computes
// its logits. One call feeds the sequences; then it draws a token of each and
// feeds that, until all tokens are drawn. The host takes no part in between. On
// a GPU the call is one run of the device, and neither logits nor tokens cross
// the link before it ends.
//
//   a b  c      fed before: a b; feeds c, draws d, feeds it, draws e
//   a b  c  d
//   p q  r s    the other row of the same call feeds two tokens and draws t
//   p q  r s t
//
// Works on the pages of a Model (model.h), which may feed other plans between
// two calls; so it is used by the one thread that the model is used by.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "exec_request/draft_logits.h"
#include "exec_request/pending_draft.h"
#include "exec_request/step_plan.h"

namespace espalier {

// What was drawn for a sequence.
struct SampledDraft {
  // As many as were asked for, also after the end of a text. A token that
  // could not be drawn is negative, and what follows it means nothing.
  std::vector<TokenId> tokens = {};
  // Instead of these, of Start: where they will be.
  PendingDraft pending = {};
  // Of these, where NeedsDraftLogits; empty where there was no room for them.
  DraftLogits logits = {};
};

class DraftSampler {
 public:
  virtual ~DraftSampler() = default;

  // Whether it can draw for the sequence: what its processors do to scores must
  // not depend on the tokens that it drafts.
  virtual bool CanSample(const DraftSequence& sequence) const = 0;
  // Tokens that a row of Sample may feed, at least 1.
  virtual int max_row_tokens() const = 0;
  // Tokens that it draws for a sequence at most.
  virtual int max_draft_tokens() const = 0;

  // Makes plan.page_copies, feeds plan.rows, one of each of `sequences`, whose
  // last token has a row of logits, and draws sequence.num_tokens of each, as
  // DrawDraft does (kernels/verify/verify.h).
  // REQUIRES: CanSample; rows and tokens within the limits; a row's pages have
  // room for all tokens that are fed, all but the last one that is drawn.
  // Errors: as Model::Forward.
  virtual absl::StatusOr<std::vector<SampledDraft>> Sample(
      const StepPlan& plan,
      std::span<const DraftSequence* const> sequences) = 0;

  // The same, but need not wait until the tokens are drawn. Then the model is
  // not to be used before Wait, and rows of logits are complete with the
  // tokens.
  virtual absl::StatusOr<std::vector<SampledDraft>> Start(
      const StepPlan& plan, std::span<const DraftSequence* const> sequences) {
    return Sample(plan, sequences);
  }
  // Whether Start takes sequences with DraftSequence::verified_before, as the
  // last ones. The row of one feeds one token, any, at the position for no
  // draft accepted, and has pages for all of them. Where Start has to wait for
  // what it draws, or that verification has failed, the draft of such a
  // sequence is empty: nothing is drawn or fed for it.
  virtual bool follows_verification() const { return false; }
  // Waits for what was started; returns how long it took, if it was not waited
  // for yet. Errors: as Model::Forward.
  virtual absl::StatusOr<absl::Duration> Wait() { return absl::ZeroDuration(); }
};

}  // namespace espalier
