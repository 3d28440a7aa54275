// DraftedGroups: what an executor keeps of groups of samples that a draft model
// drafts for before their steps, and how they go on (ContinuedDrafts): which
// samples live, with which tokens, at which positions, in which pages. When the
// answer before a continuation with drafts is there, it becomes rows: those
// that the planner writes who has read that answer.
//
//   plan t     rows, drafted for, verified  ──> answer t
//   plan t+1   a continuation with drafts          │
//              rows, selection, drafting    <──────┘
//
//   DraftedGroups::Asked asked = groups.Expand(&plan);  // all are answered
//   std::vector<DraftedTokens> drafts = ...;    // FillDrafts writes them in
//   absl::StatusOr<StepResult> result = ...;    // of the plan
//   groups.Advance(&asked, &result);            // first of all with the result
//   if (result.ok()) asked.Restore(&drafts, &*result);  // the planner's answer
//
// Why the planner can write a continuation before it has read the answer that
// this goes on from:
//
// - Its samples are at least those that live then: samples end, and none begin.
//   One that has ended feeds nothing.
// - Of each it names pages for all that both steps can feed, whatever the first
//   one accepts, and gives none of them to others before it has read both
//   answers. Before `first_place` it names none: there lie tokens whose answers
//   it has read, which nothing changes.
// - Drafts that the first step rejects lie at positions that the second one
//   feeds anew, or after them, which it does not read. Plans run in order, so
//   what it does read is there.
// - What it drafts follows the answer, and is drafted when that is there.
//
// Where device and sampler take each other's word (PlanSelection::
// verified_before) rows need not wait for the answer either: those of plan t+1
// are written for what the samples were before step t, and say which of its
// drafts they begin after. The answer is then completed: of samples that have
// ended in step t it has nothing, and sums begin with those of step t.
//
// For one thread at a time. What throws std::bad_alloc has done nothing that
// matters when it is called again.
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
  // What the answer to a plan that was expanded answers.
  struct Asked {
    // Who asked, by selection of the expanded plan.
    std::vector<RequestId> selections;
    // Of these, selections that the planner wrote; and, in the plan as that
    // wrote it, its sequences to draft for.
    size_t num_planned = 0;
    size_t num_drafting = 0;
    size_t num_answers = 0;  // of the expanded plan
    // By sequence to draft for of the expanded plan: its sample.
    std::vector<int> samples;
    // Where those of each of `selections` are there.
    struct Range {
      size_t begin = 0;
      size_t end = 0;
    };
    std::unordered_map<RequestId, Range> ranges;
    // The planner's continuations: who asked, and which answer of the expanded
    // plan is theirs; -1: none, since no sample lives.
    struct Continued {
      RequestId request;
      int answer = -1;
      int num_drafting = 0;  // sequences, after those of the one before
      // Whether its rows were written before the answer before was there; and
      // then, once their own is there, which of them are of samples that live.
      bool is_unread = false;
      std::vector<bool> lives = {};
    };
    std::vector<Continued> continuations;

    // Makes the answer to the expanded plan the one to the plan that the
    // planner wrote.
    //   drafts  [drafting of the expanded plan], as FillDrafts leaves them; of
    //           the planner's plan afterwards
    void Restore(std::vector<DraftedTokens>* drafts, StepResult* result) const;

   private:
    // By continuation, SelectionResult::num_drafted.
    std::vector<std::vector<int>> NumDrafted(
        std::span<const DraftedTokens> drafts) const;
  };

  // The plan before, whose answer is not there: what Expand said of it, and
  // what was drafted for it.
  struct Unread {
    const Asked* asked = nullptr;
    std::span<const DraftedTokens> drafts = {};
  };

  // Whether the plan goes on from an answer that has to be there before Expand,
  // if not with Unread.
  static bool HasContinuations(const StepPlan& plan);
  // Whether Expand can write its rows without the last answer: each sample of
  // a group that goes on has a draft whose verification the device says
  // (PendingDraft::verified), and scores that are edited alike however many of
  // it are accepted. Takes no memory.
  bool CanFollow(const StepPlan& plan, const Unread& before) const;

  // Writes continuations with drafts out as rows, selections and sequences to
  // draft for, after the plan's own; takes note of the groups that its rows
  // set and that ended. A group without samples, or that is not known, gets
  // nothing.
  // REQUIRES: the answers to all plans before are taken; or to all but
  // `before`, and CanFollow.
  Asked Expand(StepPlan* plan, const Unread& before);
  Asked Expand(StepPlan* plan) { return Expand(plan, Unread()); }

  // Takes the answer to an expanded plan, in the order of the plans, and
  // completes it where its rows did not wait for the one before. Groups of one
  // that failed are forgotten, and those whose answer is not one to what they
  // asked.
  void Advance(Asked* asked, absl::StatusOr<StepResult>* result);

  int num_groups() const { return static_cast<int>(groups_.size()); }

 private:
  struct Sample {
    int idx = 0;  // of the request's
    int slot = 0;
    SequenceId sequence = {};
    int position = 0;  // of its last token, which is not fed
    float cum_log_prob = 0;
    std::vector<TokenId> generated = {};
    std::vector<PageId> pages = {};
  };
  struct Group {
    std::shared_ptr<const std::vector<TokenId>> prompt = nullptr;
    SmallVector<TokenId> eos_token_ids;  // ascending
    int num_slots = 1;
    bool keeps_histories = false;
    std::vector<Sample> samples;  // that live, by rank
  };

  void SetGroups(const StepPlan& plan);
  static void SetPages(const ContinuedDrafts& drafts, Group* group);
  // Calls fn(sample, its pending draft in the plan before) for the group's
  // samples, by rank, while that returns true. Whether it was called for all.
  template <typename Fn>
  static bool ForEachDraftBefore(RequestId request, const Group& group,
                                 const Unread& before, const Fn& fn);
  static void AddRows(const GroupContinuation& continuation, const Group& group,
                      std::vector<PendingDraft> verified_before,
                      StepPlan* plan);
  static PlanSelection SelectionOf(const GroupContinuation& continuation,
                                   const Group& group, bool is_unread);
  // The answer to rows that did not wait, as if they had.
  //   lives  [rows]  of which samples that is
  static SelectionResult Complete(const SelectionResult& answer,
                                  const Asked& asked, size_t first_drafting,
                                  const Group& group, std::vector<bool>* lives);
  // Whether it is an answer to what these samples asked; what it takes them on
  // by, for which there is memory when MakeRoomFor has returned. Texts and
  // tables stay where they are, however long they have become.
  static bool IsAnswer(const SelectionResult& answer, const Group& group);
  static void MakeRoomFor(const SelectionResult& answer, Group* group);
  static void TakeTokens(const SelectionResult& answer, Group* group);

  std::unordered_map<RequestId, Group> groups_;
};

}  // namespace espalier
