// RowsAhead: completes rows that the planner wrote before it read the preceding
// result of their group (SampleDrafts::is_ahead). Plans run in order, so the
// executor has that result when the rows run. It keeps it until the group's
// next one: the tokens of the samples that live on.
//
//   plan t     rows, drafted for, verified  ──> result t
//   plan t+1   rows ahead, now complete     <──────┘
//
//   RowsAhead::Asked asked = rows.Complete(&plan);  // all results applied
//   std::vector<DraftedTokens> drafts = ...;   // FillDrafts() adds them
//   absl::StatusOr<StepResult> result = ...;   // for the completed plan
//   rows.Advance(drafts, &asked, &result);     // the planner's result
//
// The planner can write such rows for these reasons:
//
// - They are of all samples that may be live, because samples end and none
//   begin. A sample that has ended feeds nothing.
// - Their pages suffice for all that both steps can feed, even if the first one
//   accepts all drafts. The planner does not reuse these pages before it has
//   read both results.
// - Drafts that the first step rejects are at positions that the second step
//   feeds again, or at later ones, which it does not read. Plans run in order,
//   so all positions that it reads have been written.
// - Drafts of the second step are made after the first result has arrived.
//
// If the device and the sampler support SampleDrafts::verified_before, rows do
// not wait for the result either. They stay as planned and name the drafts of
// step t that they follow. Their result is completed afterwards: samples that
// ended in step t are removed, and sums start from those of step t.
//
// Thread safety: one thread at a time. A call that throws std::bad_alloc can be
// repeated.
#pragma once

#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/small_vector.h"
#include "exec_request/step_plan.h"

namespace espalier {

class RowsAhead {
 public:
  // Tokens that a step gave a sample, which lives on.
  struct Sample {
    int idx = 0;  // in the request
    std::vector<TokenId> tokens = {};
    float cum_log_prob = 0;
  };

  // Record of a plan until its result arrives.
  struct Asked {
    // Selection that verifies drafts made within its step.
    struct Group {
      RequestId request;
      size_t selection = 0;                     // in the planner's plan
      SmallVector<TokenId> eos_token_ids = {};  // ascending
      // Indices in the request, by row. Empty: all have ended, so the completed
      // plan has no such selection.
      SmallVector<int> samples = {};
      std::vector<int> drafts = {};  // [samples], index in `drafts`; -1: none
      bool is_unread = false;  // the rows did not wait for the last result
      // Written by Advance().
      SelectionResult completed = {};  // if is_unread
      std::vector<int> num_drafted = {};
      std::vector<Sample> next = {};
    };
    std::vector<Group> groups;
    size_t num_answers = 0;  // selections in the result
    // Rows whose samples have ended, for FillDrafts().
    std::vector<int> ended_rows;
  };

  // The previous plan without its result.
  struct Unread {
    const Asked* asked = nullptr;
    std::span<const DraftedTokens> drafts = {};
  };

  static bool HasRowsAhead(const StepPlan& plan);
  // True if Complete() does not need the result of `before`: the device reports
  // the verification of the drafts there (PendingDraft::verified), and score
  // edits do not depend on the number of accepted tokens. Does not allocate.
  static bool CanFollow(const StepPlan& plan, const Unread& before);

  // Completes rows ahead, except that ended_rows still have tokens. Drops
  // groups that ended. REQUIRES: Advance() was called for all earlier plans; or
  // for all except `before`, and CanFollow().
  Asked Complete(StepPlan* plan, const Unread& before);
  Asked Complete(StepPlan* plan) { return Complete(plan, Unread()); }

  // Records the result of a completed plan and converts it to that of the
  // planner's plan. In the order of the plans. Drops groups of a failed plan,
  // and groups with an invalid result.
  //   drafts  that the plan verified, not pending: [drafting of the completed
  //           plan], without those that a later plan verifies
  void Advance(std::span<const DraftedTokens> drafts, Asked* asked,
               absl::StatusOr<StepResult>* result);

  int num_groups() const { return static_cast<int>(last_.size()); }

 private:
  // Completes the rows of one selection, one for each of `sequences`. Sequences
  // of samples that have ended get no tokens, and their rows are appended to
  // `*ended_rows`.
  void CompleteRows(std::span<DraftSequence> sequences,
                    std::vector<int>* ended_rows, StepPlan* plan) const;
  // Sets the fields of `*group` that Advance() writes.
  void Prepare(const SelectionResult& answer,
               std::span<const DraftedTokens> drafts,
               Asked::Group* group) const;

  std::unordered_map<RequestId, std::vector<Sample>> last_;  // results
};

}  // namespace espalier
