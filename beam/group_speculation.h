// GroupSpeculation: how a group speculates. It owns the group's drafts
// (beam/drafts/group_drafts.h), and which of them the running step and the one
// ahead of it verify. It plans steps that request, feed and verify drafts, as
// DraftChoice decides (beam/drafts/draft_choice.h), and applies their results
// to the drafts and to the pages of rejected tokens.
//
//   Plan(room, &plan)             rows with drafts, or a request for drafts
//   PlanDraftsAhead(room, &plan)  the step after one that verifies drafts
//   TakeDrafts(...)               the draft model's reply, before the result
//   ValidateResult(...)           of a step that verifies drafts
//   Advance(...)                  after the strategy has applied the result
//   FollowRows, MergeRows         then the pages of beams, if they fed paths
//
// Samples feed their drafts in their own rows; beams feed paths, each in a row
// of its own, and one result may decide several steps
// (beam/drafts/draft_replay.h).
//
// Invariant: a step verifies tokens of samples or paths of beams, never both.
//
// Belongs to its group's strand.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/shared_list.h"
#include "beam/drafts/draft_choice.h"
#include "beam/drafts/draft_replay.h"
#include "beam/drafts/drafts_in_flight.h"
#include "beam/drafts/group_drafts.h"
#include "beam/drafts/path_rows.h"
#include "beam/group_plan_writer.h"
#include "beam/group_search.h"
#include "beam/pages/group_pages.h"
#include "exec_request/step_plan.h"
#include "request/request.h"

namespace espalier {

class GroupSpeculation {
 public:
  // The first four arguments are the group's and outlive this.
  //   drafter  as for GroupDrafts
  GroupSpeculation(const Request* request, const GroupSearch* search,
                   GroupPages* pages, GroupPlanWriter* writer,
                   std::unique_ptr<Drafter> drafter);

  // enabled(): steps may have drafts, or could at first; constant.
  // is_on(): the next steps may.
  bool enabled() const { return enabled_; }
  bool is_on() const { return drafts_.is_on(); }
  const GroupDrafts& drafts() const { return drafts_; }
  // As GroupDrafts::SetCost and TakeFigures.
  void SetCost(const DraftCost& cost) { drafts_.SetCost(cost); }
  SpeculationFigures TakeFigures() { return drafts_.TakeFigures(); }
  // As SequenceGroup::NumWaitsToDraft.
  int NumWaitsToDraft() const;
  // Least number of pages that the next step needs to verify the requested
  // drafts, beside those for one token of each sequence.
  int64_t num_asked_pages() const { return num_asked_pages_; }

  // True if the step after the one whose result is outstanding can be planned:
  // CanDraftAhead() with drafts of a draft model, after a step with such
  // drafts; AllowsPlainAhead() if neither step has drafts, and the sequences
  // have one length.
  bool CanDraftAhead() const { return drafts_.can_go_on() && CanVerifyAhead(); }
  bool AllowsPlainAhead() const {
    return !drafts_.is_on() && in_flight_.empty() && replay_ == nullptr &&
           have_one_length_;
  }
  // Returns the number of tokens that each sequence drafts in that step; 0 if
  // they do not fit `room`.
  int NumAhead(const DraftRoom& room) const {
    return ChoiceIn(room).NumAhead(in_flight_);
  }
  // Adds rows ahead with these drafts (SampleDrafts::is_ahead). Errors: as
  // GroupPages::Append.
  // REQUIRES: CanDraftAhead(), NumAhead(room) > 0.
  absl::Status PlanDraftsAhead(const DraftRoom& room, StepPlan* plan);

  // Plans a step with drafts that fit `room`, or requests drafts for the next
  // one, which feeds nothing. Returns false, having planned nothing, if the
  // step has to decode without drafts. Errors: as GroupPages::Append.
  // REQUIRES: is_on(), no result is outstanding.
  absl::StatusOr<bool> Plan(const DraftRoom& room, StepPlan* plan);
  // Called when a step without drafts is planned.
  void OnPlainStep() { drafts_.OnPlan(/*verifies=*/false); }

  // Takes the draft model's drafts. Errors: kInternal if they do not match the
  // request.
  absl::Status TakeDrafts(std::span<DraftedTokens> drafts, int vocab_size);

  // True if the oldest outstanding step verifies drafts. Then ValidateResult
  // validates its result, with their description.
  bool verifies_drafts() const {
    return !in_flight_.empty() || replay_ != nullptr;
  }
  absl::Status ValidateResult(const SelectionResult& result, int vocab_size);
  // Applies a step's result to the drafts, after the strategy: records the
  // accepted tokens, truncates rejected ones, and sets the length of the next
  // drafts.
  //   is_last      of the steps that the result decides
  //   might_draft  false for the prompt's step, which cannot have drafts
  // REQUIRES: enabled().
  void Advance(const SelectionResult& result, bool is_last, bool might_draft);

  // True if the sequences fed paths in the running step. FollowRows moves the
  // ranks to the rows that they took, before a further step of the result;
  // MergeRows ends the rows after the last one.
  bool has_rows() const { return replay_ != nullptr; }
  void FollowRows() { pages_->FollowRows(replay_->rows()); }
  void MergeRows(StepPlan* next_plan);

 private:
  bool is_beam_search() const { return IsBeamSearch(request_->params); }
  const DecodeStrategy& strategy() const { return search_->strategy(); }
  DraftChoice ChoiceIn(const DraftRoom& room) const {
    return {*request_, finishing_token_ids_, strategy(), *pages_, drafts_,
            room};
  }
  // CanDraftAhead, if a draft model can draft.
  bool CanVerifyAhead() const;
  absl::Status PlanDrafts(std::vector<std::vector<TokenId>> drafts,
                          int max_draft_tokens, StepPlan* plan);
  absl::Status PlanPaths(PathRows drafts, StepPlan* plan);
  // Adds the sequences that the draft model drafts for in the next step.
  // PlanDrafted also adds their rows, to verify the drafts in this step.
  //   counts  tokens to draft, by rank
  void RequestDrafts(const DraftChoice& choice, StepPlan* plan);
  absl::Status PlanDrafted(std::span<const int> counts, StepPlan* plan);
  DraftSequence DraftOf(int rank, int num_tokens,
                        const PlanSelection& selection);
  // Sets the paths of `*replay_` in `*selection`.
  void DescribePaths(PlanSelection* selection) const;
  // Advance for samples, and for beams.
  void ApplyDrafts(const SelectionResult& result, bool might_draft);
  void ApplyPaths(const SelectionResult& result, bool is_last,
                  bool might_draft);
  // Extends drafters that read history by this step's tokens.
  void AdvanceDrafters();

  const Request* const request_;
  const GroupSearch* const search_;
  GroupPages* const pages_;
  GroupPlanWriter* const writer_;
  const SharedList<TokenId> finishing_token_ids_;  // ascending

  // Members that steps without drafts read are adjacent.
  bool enabled_ = false;
  bool have_one_length_ = true;  // the live sequences
  DraftsInFlight in_flight_;
  // Drafted paths of beams, in place of in_flight_; null if the running step
  // has none.
  std::unique_ptr<DraftReplay> replay_;
  GroupDrafts drafts_;
  std::shared_ptr<const std::vector<TokenId>> prompt_;  // for a draft model
  int64_t num_asked_pages_ = 0;
};

}  // namespace espalier
