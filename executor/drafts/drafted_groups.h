// DraftedGroups: group state that an executor keeps between steps for samples
// with a draft model, and the update from one step to the next
// (ContinuedDrafts): the live samples with their tokens, positions and pages.
// Once the previous result has arrived, a continuation with drafts is expanded
// to rows, the same that the planner would write after reading that result.
//
//   plan t     rows, drafted for, verified  ──> result t
//   plan t+1   a continuation with drafts          │
//              rows, selection, drafting    <──────┘
//
//   DraftedGroups::Asked asked = groups.Expand(&plan);  // all results applied
//   std::vector<DraftedTokens> drafts = ...;    // FillDrafts() adds them
//   absl::StatusOr<StepResult> result = ...;    // for the expanded plan
//   groups.Advance(&asked, &result);            // before any use of the result
//   if (result.ok()) asked.Restore(&drafts, &*result);  // the planner's result
//
// The planner can write a continuation before it has read the previous result,
// for these reasons:
//
// - It lists at least the samples that will be live, because samples end and
//   none begin. A sample that has ended feeds nothing.
// - For each sample it lists pages for all that both steps can feed, even if
//   the first one accepts all drafts. It does not reuse these pages before it
//   has read both results. Pages before `first_place` hold tokens whose results
//   it has read; they do not change.
// - Drafts that the first step rejects are at positions that the second step
//   feeds again, or at later ones, which it does not read. Plans run in order,
//   so all positions that it reads have been written.
// - Drafts of the second step are made after the first result has arrived.
//
// If the device and the sampler support SampleDrafts::verified_before, rows do
// not wait for the result either. The rows of plan t+1 are then written for the
// samples before step t, and name the drafts of step t that they follow. Its
// result is completed afterwards: samples that ended in step t are removed, and
// sums start from those of step t.
//
// Thread safety: one thread at a time. A call that throws std::bad_alloc can be
// repeated.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/small_vector.h"
#include "exec_request/step_plan.h"

namespace espalier {

class DraftedGroups {
 public:
  // Maps the result of an expanded plan back to the planner's plan.
  struct Asked {
    // Request of each selection of the expanded plan.
    std::vector<RequestId> selections;
    size_t num_planned = 0;  // selections in the planner's plan
    // [drafting of the planner's plan], with the number of samples of the
    // selection, if there is one.
    struct Planned {
      DraftTarget target;
      int num_samples = 0;
    };
    std::vector<Planned> drafting;
    size_t num_answers = 0;  // results of the expanded plan
    // [drafting of the expanded plan], sample of each sequence.
    std::vector<int> samples;
    // Range in `samples` of each request in `selections`.
    struct Range {
      size_t begin = 0;
      size_t end = 0;
    };
    std::unordered_map<RequestId, Range> ranges;
    // A continuation of the planner, and the index of its result for the
    // expanded plan; -1: it has none, because no sample is live.
    struct Continued {
      RequestId request;
      int answer = -1;
      int num_drafting = 0;  // sequences, after those of the one before
      // Its rows were written before the previous result was known. `lives`
      // then marks the rows of live samples, after Advance().
      bool is_unread = false;
      std::vector<bool> lives = {};
    };
    std::vector<Continued> continuations;

    // Converts the result of the expanded plan to that of the planner's plan.
    //   drafts  in: [drafting of the expanded plan], after FillDrafts();
    //           out: those that a later plan verifies
    void Restore(std::vector<DraftedTokens>* drafts, StepResult* result) const;

   private:
    // Returns SelectionResult::num_drafted for each selection of the planner's
    // plan, and then for each continuation.
    std::vector<std::vector<int>> NumDrafted(
        std::span<const DraftedTokens> drafts) const;
  };

  // The previous plan without its result: the return value of its Expand(), and
  // its drafts.
  struct Unread {
    const Asked* asked = nullptr;
    std::span<const DraftedTokens> drafts = {};
  };

  // True if Expand() needs the previous result, or CanFollow().
  static bool HasContinuations(const StepPlan& plan);
  // True if Expand() can write rows without the previous result: for each live
  // sample of a continued group, the device reports the verification of its
  // draft (PendingDraft::verified), and its score edits do not depend on the
  // number of accepted tokens. Does not allocate.
  bool CanFollow(const StepPlan& plan, const Unread& before) const;

  // Expands continuations with drafts to rows, selections and sequences to
  // draft for, after those of the plan. Records the groups that the plan's rows
  // set, and drops those that ended. A group without samples, or an unknown
  // one, gets no rows. REQUIRES: Advance() was called for all earlier plans; or
  // for all except `before`, and CanFollow().
  Asked Expand(StepPlan* plan, const Unread& before);
  Asked Expand(StepPlan* plan) { return Expand(plan, Unread()); }

  // Applies the result of an expanded plan, in the order of the plans.
  // Completes the result if its rows did not wait for the previous one. Drops
  // the groups of a failed plan, and groups with an invalid result.
  void Advance(Asked* asked, absl::StatusOr<StepResult>* result);

  int num_groups() const { return static_cast<int>(groups_.size()); }

 private:
  struct Sample {
    int idx = 0;  // in the request
    int slot = 0;
    SequenceId sequence = {};
    int position = 0;  // last token, which is not fed
    float cum_log_prob = 0;
    std::vector<TokenId> generated = {};
    std::vector<PageId> pages = {};
  };
  struct Group {
    std::shared_ptr<const std::vector<TokenId>> prompt = nullptr;
    SmallVector<TokenId> eos_token_ids;  // ascending
    int num_slots = 1;
    bool keeps_histories = false;
    std::vector<Sample> samples;  // live ones, by rank
  };

  void SetGroups(const StepPlan& plan);
  static void SetPages(const ContinuedDrafts& drafts, Group* group);
  // Calls fn(sample, its pending draft in the previous plan) for the group's
  // samples, by rank, while that returns true. True if all calls returned true.
  template <typename Fn>
  static bool ForEachDraftBefore(RequestId request, const Group& group,
                                 const Unread& before, const Fn& fn);
  static void AddRows(const GroupContinuation& continuation, const Group& group,
                      std::vector<PendingDraft> verified_before,
                      StepPlan* plan);
  static PlanSelection SelectionOf(const GroupContinuation& continuation,
                                   const Group& group, bool is_unread);
  // Returns the result of rows that did not wait, converted to the result of
  // rows that did.
  //   lives  [rows]  out, true for rows of live samples
  static SelectionResult Complete(const SelectionResult& answer,
                                  const Asked& asked, size_t first_drafting,
                                  const Group& group, std::vector<bool>* lives);
  // True if the result is valid for the group's samples.
  static bool IsAnswer(const SelectionResult& answer, const Group& group);
  // Reserves memory for TakeTokens(), which then cannot fail. Texts grow
  // geometrically, so that most steps copy none.
  static void MakeRoomFor(const SelectionResult& answer, Group* group);
  // Appends the result's tokens to the samples, and removes those that ended.
  static void TakeTokens(const SelectionResult& answer, Group* group);

  std::unordered_map<RequestId, Group> groups_;
};

}  // namespace espalier
